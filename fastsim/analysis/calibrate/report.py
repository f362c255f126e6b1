"""A calibration for people and for the next run: text, TOML, chart."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastsim.analysis.calibrate.aggregate import AggregateCalibration
from fastsim.analysis.calibrate.calibrate import Calibration, ErrorTable
from fastsim.analysis.calibrate.transfer import Transfer
from fastsim.config import Config
from fastsim.errors import InputError, need
from fastsim.model import printable, shown

if TYPE_CHECKING:
    import polars as pl

METRICS = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}
ENGINE_KEYS = (
    "name",
    "num_gpu_blocks",
    "block_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "scheduler_reserve_full_isl",
    "long_prefill_token_threshold",
    "policy",
)


def toml_text(calibration: Calibration) -> str:
    """A spec that others extend: the engine's settings and the fitted coefficients, with where they come from."""
    lines = [
        f"# Latency model fitted by fastsim to {printable(calibration.run.source)}: "
        f"{calibration.run.workload.num_requests} requests, the first {calibration.num_train} of them fitted.",
        *(f"# {name}: {printable(value)}" for name, value in calibration.run.provenance.items()),
        *(f"# {line}" for line in _error_lines(calibration)),
        *(f"# note: {printable(note)}" for note in calibration.notes),
        *(f"# warning: {printable(warning)}" for warning in calibration.warnings),
        "",
        *_settings(calibration.config, calibration.coefficients, calibration.intervals, calibration.prior.fixed),
    ]
    return "\n".join(lines) + "\n"


def transfer_text(calibration: Calibration, carried: Transfer) -> str:
    """The same of a calibration carried to other hardware, with the range of each term."""
    lines = [
        f"# Latency model of {printable(carried.name)}, carried by fastsim from a fit to "
        f"{printable(calibration.run.source)}.",
        *(f"# {name}: {printable(value)}" for name, value in calibration.run.provenance.items()),
        *(f"# note: {printable(note)}" for note in (*calibration.notes, *carried.notes)),
        "# Ranges are no intervals: from the data sheet alone to the carried term.",
        "",
    ]
    kept = {name for name in calibration.prior.fixed if name.startswith("latency.")}
    fixed = {name: carried.config.value(name) for name in kept}
    settings = _settings(carried.config, carried.coefficients, carried.ranges, fixed)
    return "\n".join([*lines, *(line.replace("90 % interval", "range") for line in settings)]) + "\n"


def aggregate_text(calibration: AggregateCalibration) -> str:
    """The same of a calibration from means and percentiles."""
    runs = ", ".join(printable(level.source) for level in calibration.levels.levels)
    lines = [
        f"# Latency model fitted by fastsim to the means and percentiles of {runs}.",
        *(f"# {name}: {printable(value)}" for name, value in calibration.levels.provenance.items()),
        *(f"# note: {printable(note)}" for note in calibration.notes),
        *(f"# warning: {printable(warning)}" for warning in calibration.warnings),
        "",
        *_settings(calibration.config, calibration.coefficients, calibration.intervals, calibration.prior.fixed),
    ]
    return "\n".join(lines) + "\n"


def _settings(
    config: Config,
    coefficients: dict[str, float],
    intervals: dict[str, tuple[float, float]],
    fixed: Mapping[str, Any],
) -> Iterator[str]:
    """The lines of a spec: the engine's settings, the fitted coefficients, and the table that they stand beside."""
    yield "[engine]"
    for name in ENGINE_KEYS:
        if (value := getattr(config.engine, name)) is not None:
            yield f"{name} = {shown(value)}"
    yield from ("", "[latency]")
    for name, number in coefficients.items():
        if name == "num_gpu_blocks":
            continue
        low, high = intervals.get(name, (None, None))
        yield f"{name} = {number!r}" + (f"  # 90 % interval {low:.6g} to {high:.6g}" if low is not None else "")
    for key, value in fixed.items():
        yield f"{key.removeprefix('latency.')} = {list(value) if isinstance(value, tuple) else shown(value)}"


def _error_lines(calibration: Calibration) -> list[str]:
    lines = []
    for name, table in (("train", calibration.train), ("test", calibration.test)):
        if table is not None:
            errors = ", ".join(f"{METRICS[key]} {row['mean_error_pct']:+.1f} %" for key, row in table.items())
            lines.append(f"errors of means, {name}: {errors}")
    return lines


def write_toml(
    calibration: Calibration | AggregateCalibration, path: str | Path, carried: Transfer | None = None
) -> None:
    """Write `toml_text`, `aggregate_text` or, where it was carried to other hardware, `transfer_text` to a file.

    Raises
    ------
    InputError
        When it cannot be written.
    """
    try:
        if isinstance(calibration, AggregateCalibration):
            text = aggregate_text(calibration)
        else:
            text = toml_text(calibration) if carried is None else transfer_text(calibration, carried)
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None


def error_rows(table: ErrorTable) -> list[list[str]]:
    """Rows of a table of errors: metric, then mean, p50, p90, p99 in percent."""
    return [[METRICS[name], *(f"{value:+.2f} %" for value in row.values())] for name, row in table.items()]


def requests_table(calibration: Calibration) -> "pl.DataFrame":
    """One row a request: arrival, lengths, measured and simulated times in seconds, and whether it was fitted."""
    import polars as pl

    workload = calibration.run.workload
    rank = np.empty(workload.num_requests, np.int64)
    rank[workload.arrival_order()] = np.arange(workload.num_requests)
    columns: dict[str, Any] = {
        "arrival_s": workload.arrival_us / 1e6,
        "prompt_tokens": workload.prompt_tokens,
        "output_tokens": workload.output_tokens,
        "fitted": rank < calibration.num_train,
    }
    for (name, measured), (_, simulated) in zip(
        calibration.measured.named(), calibration.simulated.named(), strict=True
    ):
        columns[f"{name}_measured_s"] = measured / 1e6
        columns[f"{name}_simulated_s"] = simulated / 1e6
    return pl.DataFrame(columns)


def chart(calibration: Calibration) -> Any:
    """Measured against simulated, one panel a metric, one dot a request (an altair chart).

    Raises
    ------
    InputError
        When altair is not installed.
    """
    need("a chart", "altair")
    import altair as alt

    frame = requests_table(calibration)
    panels = []
    for name, title in METRICS.items():
        rows = frame.select(
            "arrival_s",
            "fitted",
            measured=f"{name}_measured_s",
            simulated=f"{name}_simulated_s",
        ).to_dicts()
        rows = [row for row in rows if np.isfinite(row["measured"]) and np.isfinite(row["simulated"])]
        top = max((max(row["measured"], row["simulated"]) for row in rows), default=1.0)
        dots = (
            alt.Chart(alt.InlineData(values=rows))
            .mark_circle(size=18, opacity=0.6)
            .encode(
                x=alt.X("measured:Q", title=f"measured {title} (s)", scale=alt.Scale(domain=[0, top])),
                y=alt.Y("simulated:Q", title=f"simulated {title} (s)", scale=alt.Scale(domain=[0, top])),
                color=alt.Color("fitted:N", title="fitted"),
                tooltip=["arrival_s:Q", "measured:Q", "simulated:Q"],
            )
        )
        ends = alt.InlineData(values=[{"at": 0.0}, {"at": top}])
        line = alt.Chart(ends).mark_line(color="grey", strokeDash=[4, 3]).encode(x="at:Q", y="at:Q")
        panels.append((line + dots).properties(width=260, height=260, title=title))
    return alt.hconcat(*panels).properties(title=f"Measured and simulated: {printable(calibration.run.source)}")


def write_chart(calibration: Calibration, path: str | Path) -> None:
    """Write the chart as .html, .json, .svg or .png.

    Raises
    ------
    InputError
        When the suffix is another, a package is missing, or the file cannot be written.
    """
    suffix = Path(path).suffix
    if suffix not in (".html", ".json", ".svg", ".png"):
        raise InputError(
            f"{path}: a chart ending in {suffix or 'nothing'}, but .html, .json, .svg or .png was expected"
        )
    try:
        chart(calibration).save(str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None
    except (ImportError, ValueError) as error:
        raise InputError(
            f"{path}: {error}, but vl-convert-python was expected: pip install 'fastsim-llm[plot]'"
        ) from None
