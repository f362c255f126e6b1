"""`fastsim check`: what can be said of a spec before a second is spent."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastsim.cli import options
from fastsim.cli.given import takes_hardware

if TYPE_CHECKING:
    from fastsim.analysis.check.preflight import AverageLoad, Fit, Regime
    from fastsim.sweeps.grid import Grid

MAX_CHECKED, MAX_CPU_S = 256, 10.0
"""Configurations whose workloads are built and looked at, and CPU seconds for it; of a larger grid those are spread
evenly, and the output says how many.
"""


@takes_hardware
def command(
    spec: options.Spec,
    *,
    settings: list[str],
    axes: options.Axes = None,
    cost: Annotated[
        bool, typer.Option("--cost/--no-cost", help="Run a few configurations to say how long a sweep will take.")
    ] = True,
) -> int:
    """Check a spec: its keys, requests that can never fit, the load, what to expect of it, and a sweep's time and size.

    Exits 1 if some request can never fit.
    """
    from time import process_time

    from fastsim.analysis.check.preflight import Fit, load_of
    from fastsim.analysis.check.sweep_cost import spread
    from fastsim.cli.hardware import print_grid
    from fastsim.cli.plan import describe_plan
    from fastsim.cli.run_text import groups_text
    from fastsim.cli.spec import read_grid
    from fastsim.cli.tables import wrapped
    from fastsim.engines import engine_of
    from fastsim.workload import WorkloadPlan

    grid, _ = read_grid(spec, settings, axes or [])
    typer.echo(describe_plan(grid, grid.select()))
    for warning in grid.warnings:
        typer.echo(f"note: {warning}")
    print_grid(grid)
    plan = WorkloadPlan()
    fits: dict[Fit, int] = {}
    loads: dict[AverageLoad, int] = {}
    checked = special = refused = 0
    groups: dict[str, None] = {}
    start = process_time()
    for index in spread(grid.size, MAX_CHECKED):
        checked += 1
        if grid.refusal(index) is not None:
            refused += 1
            continue
        config = grid.config(index)
        workload = plan.build(config.workload)
        declared = engine_of(config.engine.name)
        if not declared.is_plain(config.value):
            special += 1
            groups[groups_text(config)] = None
            continue
        fit = Fit.of(config, workload)
        fits[fit] = fits.get(fit, 0) + 1
        load = load_of(config, workload) if declared.has_averages else None
        if load is not None:
            loads[load] = loads.get(load, 0) + 1
        if grid.size > MAX_CHECKED and process_time() - start > MAX_CPU_S:
            break
    if checked < grid.size:
        typer.echo(f"looked at {checked:,} of {grid.size:,} configurations, spread over the grid:")
    if refused:
        typer.echo(f"{refused:,} of {checked:,} are refused at the server's start, and not looked at")
    if special:
        typer.echo(f"{special:,} of {checked:,} have KV cache groups or drafts: how many requests fit, and averages, "
                   "are told of one full-attention group without drafts only")  # fmt: skip
    for text in filter(None, groups):
        typer.echo(wrapped(text))
    stuck = _report_fits(fits, checked - refused) if fits else False
    if loads:
        _report_loads(loads, "average load" if grid.possible("fleet.replicas") == {1} else "average load of a replica")
    if cost and not stuck:
        typer.echo(_cost_text(grid))
    return 1 if stuck else 0


def _report_fits(fits: "dict[Fit, int]", checked: int) -> bool:
    """Print the worst case of each kind, with numbers. Returns whether some request can never fit."""
    from fastsim.analysis.check.unservable import causes_text
    from fastsim.cli.tables import wrapped

    stuck = [fit for fit in fits if fit.unservable]
    if stuck:
        count = sum(fits[fit] for fit in stuck)
        worst = max(stuck, key=lambda fit: sum(cause.count for cause in fit.unservable))
        text = (
            f"{count:,} of {checked:,} configurations have requests that can never be served: of "
            f"{worst.num_requests:,} requests {causes_text(worst.unservable)}"
        )
        typer.echo(wrapped(text))
    else:
        typer.echo("every request fits")
    wide = [fit for fit in fits if fit.max_num_seqs > fit.safe]
    if wide:
        count = sum(fits[fit] for fit in wide)
        worst = max(wide, key=lambda fit: fit.max_num_seqs / fit.safe)
        text = (
            f"{count:,} of {checked:,} configurations admit more than the KV cache holds: max_num_seqs "
            f"{worst.max_num_seqs:,}, but {worst.usable_blocks:,} blocks / {worst.blocks_per_request:,} "
            f"a request at full decode = {worst.safe:,} requests (the KV-safe number); when those grow long, vLLM "
            "preempts: generated tokens are kept, but their KV is computed again. vLLM's own line at its start: "
            f"Maximum concurrency for {worst.max_model_len:,} tokens per request: {worst.start_up_concurrency:.2f}x"
        )
        typer.echo(wrapped(text))
    return bool(stuck)


def _report_loads(loads: "dict[AverageLoad, int]", title: str) -> None:
    """Print what to expect, and below a title the load from the lightest to the heaviest configuration."""
    from fastsim.analysis.check.preflight import Regime
    from fastsim.cli.tables import table, wrapped

    counts = {regime: sum(count for load, count in loads.items() if load.regime is regime) for regime in Regime}
    total = sum(counts.values())
    found = [regime for regime, count in counts.items() if count]
    verdicts = found[0].value if len(found) == 1 else ", ".join(f"{r.value} {counts[r]:,}" for r in found)
    of = "" if len(found) == 1 else f" (of {total:,})"
    typer.echo("\n" + wrapped(f"expected, from averages: {verdicts}{of}"))
    for regime in found:
        typer.echo(wrapped(f"  {regime.value}: {_meaning(regime)}", indent=4))
    rows: list[list[Any]] = []
    quantities: dict[str, list[float | None]] = {
        "arrivals / capacity": [load.capacity_share for load in loads],
        "KV cache in use": [load.kv_share for load in loads],
        "time taken by tokens alone": [load.token_share for load in loads],
        "requests running (Little's law)": [min(load.concurrency, load.cap) for load in loads],
        "running when the KV cache is full, on average": [load.fit for load in loads],
        "capacity_req_per_s": [load.capacity_per_s for load in loads],
    }
    for name, values in quantities.items():
        known = [value for value in values if value is not None]
        if known:
            rows.append([name, float(min(known)), float(max(known))])
    header = [title, "least", "most"]
    if all(row[1] == row[2] for row in rows):
        header, rows = [title, ""], [row[:2] for row in rows]
    typer.echo(table(header, [[row[0], *(float(f"{value:.3g}") for value in row[1:])] for row in rows]))


def _meaning(regime: "Regime") -> str:
    from fastsim.analysis.check.preflight import Regime

    return {
        Regime.HOLDS: "slots, blocks and time suffice, with room to spare",
        Regime.EDGE: "they suffice on average, but fluctuations reach the limit: some preemptions or some queueing",
        Regime.THRASH: "more run than the KV cache holds, so requests are preempted and computed again",
        Regime.OVERLOAD: "more arrives than can be served with the requests that may run: the queue grows",
    }[regime]


def _cost_text(grid: "Grid") -> str:
    """Time and size of the whole sweep, in a sentence."""
    from fastsim.analysis.check.sweep_cost import sweep_cost
    from fastsim.cli.tables import wrapped
    from fastsim.sweeps.runner.cores import available_cores

    found = sweep_cost(grid, sum(1 for _ in grid.select().parts()))
    cores = available_cores()
    each = f"{found.least_ms:.3g} to {found.most_ms:.3g} ms each in {found.runs} tried"
    if grid.size == 1:
        return f"\none run takes about {found.most_ms:.3g} ms of CPU time"
    return "\n" + wrapped(
        f"a sweep of {grid.size:,} rows takes about {_duration(found.cpu_s)} of CPU time ({each}), on {cores} cores "
        f"about {_duration(found.cpu_s / cores)} and the start of processes, and stores about {_size(found.size_bytes)}"
    )


def _duration(seconds: float) -> str:
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds / 86_400:.3g} days"


def _size(count: int) -> str:
    for unit, size in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if count < 1000 * size:
            return f"{float(f'{count / size:.2g}'):,.3g} {unit}"
    return f"{count / 1e12:.3g} TB"
