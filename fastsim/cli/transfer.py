"""A calibration carried to other hardware, as text."""

from typing import TYPE_CHECKING, Any

from fastsim.cli.tables import number, table, wrapped

if TYPE_CHECKING:
    from fastsim.analysis.calibrate.transfer import Transfer


def transfer_text(carried: "Transfer") -> str:
    """The terms with their ratios and ranges, what the run's requests would see, and what cannot be told."""
    rows: list[list[Any]] = []
    for name, value in carried.coefficients.items():
        low, high = carried.ranges[name]
        rows.append([name, float(carried.ratios.get(name, 1.0)), number(value), number(low), number(high)])
    blocks = carried.config.engine.num_gpu_blocks
    lines = [
        wrapped(f"Carried to {carried.name}, with {blocks:,} KV blocks as its data sheet gives:"),
        table(["coefficient", "fit / data sheet", "carried", "from", "to"], rows),
        "",
        "The run's requests there (means):",
    ]
    ways: list[list[Any]] = [[name, *_cells(means)] for name, means in carried.ways.items()]
    ends = zip(_cells(carried.low), _cells(carried.high), strict=True)
    ways.append(["range", *(f"{low} to {high}" for low, high in ends)])
    lines.append(table(["step times by", "TTFT", "TPOT", "E2E"], ways))
    return "\n".join([*lines, *(wrapped(f"note: {note}") for note in carried.notes)])


def _cells(means: Any) -> list[str]:
    units = (("ttft_ms", "s", 1e3), ("tpot_ms", "ms", 1.0), ("e2e_ms", "s", 1e3))
    values = [(getattr(means, name), unit, scale) for name, unit, scale in units]
    return ["never" if value is None else f"{value / scale:.3g} {unit}" for value, unit, scale in values]
