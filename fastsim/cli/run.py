"""`fastsim run`: one configuration, and what became of its requests."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastsim.cli import options
from fastsim.cli.given import takes_hardware

if TYPE_CHECKING:
    from fastsim.config import Config
    from fastsim.simulation import Result
    from fastsim.workload import Workload


@takes_hardware
def command(
    source: options.Source = None,
    config_id: options.ConfigId = None,
    *,
    settings: list[str],
    as_json: Annotated[bool, typer.Option("--json", help="Print every metric as one JSON object.")] = False,
    requests: Annotated[
        Path | None, typer.Option("--requests", metavar="OUT.parquet", help="Store what became of each request.")
    ] = None,
    steps: Annotated[
        Path | None, typer.Option("--steps", metavar="OUT.parquet", help="Store what every step scheduled.")
    ] = None,
    timeline: Annotated[
        Path | None,
        typer.Option("--timeline", metavar="OUT.json", help="Store a trace for ui.perfetto.dev: a track a request."),
    ] = None,
    beside: Annotated[
        Path | None,
        typer.Option(
            "--beside", metavar="FILE", help="What was measured: a benchmark's result, log, /metrics, BLIS's."
        ),
    ] = None,
    fast_forward: Annotated[
        bool, typer.Option("--fast-forward/--no-fast-forward", help="Skip steps in which nothing is decided.")
    ] = True,
    repeat: Annotated[
        int,
        typer.Option("--repeat", metavar="N", parser=options.integer, help="Run it N times; kernel_ms is the median."),
    ] = 1,
) -> int:
    """Run one configuration: verdict, metrics, seconds.

    A spec with a [sweep] runs its base configuration. `fastsim run DIR --config-id N` reproduces a row of a sweep.
    """
    import time

    from fastsim.cli.caveats import print_caveats
    from fastsim.cli.hardware import print_hardware
    from fastsim.config import deployed
    from fastsim.engines import caveats
    from fastsim.errors import InputError

    started = time.perf_counter()
    if repeat < 1:
        raise InputError(f"--repeat {repeat}, but an integer of at least 1 was expected")
    written = choose_config(source, config_id, settings)
    print_hardware(written)
    print_caveats([written.engine.name])
    config = deployed(written)
    if config.hardware.model is not None and config_id is None:
        note_default_load(source, settings)
    if beside is not None:
        from fastsim.analysis.beside.rows import read_beside

        title, rows_beside = read_beside(beside, config)

    from fastsim.simulation import simulate
    from fastsim.workload import build_workload

    workload = build_workload(config.workload)
    record = steps is not None or timeline is not None
    if timeline is not None:
        from fastsim.analysis.explain.history import check_recorded

        check_recorded(config)
    result = simulate(config, workload, fast_forward=fast_forward, record_steps=record, repeat=repeat)
    if requests is not None:
        store_table(result.to_polars(), requests, "--requests")
    if steps is not None:
        store_table(steps_table(result), steps, "--steps")
    if timeline is not None:
        store_timeline(result, timeline)
    from fastsim.cli.clients import client_text, client_wait

    waited = client_wait(result, workload)
    if as_json:
        import json

        figures: dict[str, Any] = {"workload_id": workload.workload_id} | result.metrics
        if known := caveats([config.engine.name]):
            figures["caveats"] = known
        if beside is not None:
            from fastsim.cli.beside import beside_objects

            figures["beside"] = beside_objects(rows_beside(result.metrics))
        if waited is not None:
            figures["client_wait"] = waited._asdict()
        typer.echo(json.dumps(figures | {"kernel_ms": result.kernel_ms}))
        return 0

    from fastsim.analysis.check.unservable import causes, causes_text
    from fastsim.cli.run_text import run_text

    for note in workload.report.notes:
        typer.echo(f"note: {note}", err=True)
    if workload.report.unusable:
        typer.echo(f"note: {unusable_rows(workload.report)}", err=True)
    cut = outputs_cut(config, workload)
    why = causes_text(causes(config, workload)) if result.metrics["unservable"] else ""
    text = run_text(config, result.metrics, result.kernel_ms, time.perf_counter() - started, cut, why)
    if result.intervals:
        from fastsim.cli.interval_text import intervals_text

        said, _, ran = text.rpartition("\n\n")  # what ran, and how long it took, stays the last line
        text = "\n\n".join([said, intervals_text(result.intervals), ran])
    if result.replicas is not None:
        from fastsim.cli.fleet import fleet_text

        text += "\n\n" + fleet_text(result)
    if workload.request_class is not None:
        from fastsim.cli.classes import classes_text

        text += "\n\n" + classes_text(result.metrics, workload.class_names)
    if waited is not None:
        text += "\n\n" + client_text(waited, workload.concurrency)
    sessions = config.workload.sessions
    if sessions.turns > 1 and config.workload.trace is None and not workload.class_names:
        from fastsim.cli.turns import turns_text

        text += "\n\n" + turns_text(workload, result.requests.prefix_hit_tokens_first)
    if beside is not None:
        from fastsim.cli.beside import beside_text

        text = f"{beside_text(rows_beside(result.metrics), config.engine.name, beside, title)}\n\n{text}"
    typer.echo(text)
    return 0


def note_default_load(source: Path | None, settings: list[str]) -> None:
    """Say on stderr what the requests are, where neither spec nor settings do."""
    from fastsim.analysis.evaluate.loads import default_load_note
    from fastsim.cli.tables import wrapped
    from fastsim.config import load_spec

    note = default_load_note(load_spec(source, settings))
    if note is not None:
        typer.echo(wrapped(f"note: {note}"), err=True)


def outputs_cut(config: "Config", workload: "Workload") -> int:
    """How many outputs end at max_model_len; requests whose prompt leaves no room are not served at all."""
    from fastsim.engines import engine_of

    if not engine_of(config.engine.name).ends_at_max_model_len:
        return 0
    limit = config.engine.max_model_len
    total = workload.prompt_tokens.astype("int64") + workload.output_tokens
    return int(((workload.prompt_tokens < limit) & (total > limit)).sum())


def choose_config(source: Path | None, config_id: int | None, settings: list[str]) -> "Config":
    """The configuration that a spec, a folder or settings alone stand for, checked, and as it is written."""
    from fastsim.cli.spec import read_base, read_grid
    from fastsim.config import check_rules
    from fastsim.errors import InputError

    if source is None:
        if config_id is not None:
            raise InputError(f"--config-id {config_id} without a spec, but a spec or a sweep's folder was expected")
        if not settings:
            raise InputError("nothing to run: a spec, or --model and --gpu, was expected")
        base = read_base(None, settings)
        check_rules(base)
        return base
    if source.is_dir() and config_id is None:
        raise InputError(
            f"{source}: a sweep's folder without --config-id, but the number of a configuration was expected"
        )
    grid, _ = read_grid(source, settings)
    if config_id is not None:
        config = grid.written(config_id)
        if source.is_dir():
            from fastsim.cli.rebuilt import check_rebuilt

            check_rebuilt(source, config_id)
        return config
    check_rules(grid.base, str(source))
    return grid.base


def steps_table(result: "Result") -> Any:
    """One row a schedule() call: what it scheduled, preempted and finished, in the scheduler's order."""
    import polars as pl

    steps = result.steps or []
    return pl.DataFrame(
        {
            "t_us": [step.t_us for step in steps],
            "scheduled_requests": [[request for request, _ in step.scheduled] for step in steps],
            "scheduled_tokens": [[tokens for _, tokens in step.scheduled] for step in steps],
            "preempted": [step.preempted for step in steps],
            "finished": [step.finished for step in steps],
            "free_mid_blocks": [step.free_mid for step in steps],
            "free_end_blocks": [step.free_end for step in steps],
            "running": [step.running for step in steps],
            "waiting": [step.waiting for step in steps],
        },
        schema={
            "t_us": pl.Int64,
            **dict.fromkeys(("scheduled_requests", "scheduled_tokens", "preempted", "finished"), pl.List(pl.Int64)),
            **dict.fromkeys(("free_mid_blocks", "free_end_blocks", "running", "waiting"), pl.Int64),
        },
    )


def store_timeline(result: "Result", path: Path) -> None:
    """Write a run's trace as JSON, and say on stderr what was left out of it."""
    from fastsim.analysis.explain.history import history_of
    from fastsim.analysis.explain.timeline import make_timeline

    timeline = make_timeline(history_of(result), result.config.engine.name)
    timeline.write(path)
    thinned = f"; thinned: {'; '.join(timeline.notes)}" if timeline.notes else ""
    typer.echo(f"note: {path}: open it at https://ui.perfetto.dev or in chrome://tracing{thinned}", err=True)


def store_table(table: Any, path: Path, option: str) -> None:
    """Write a data frame as Parquet: made in memory, as what polars says of a full disk is no OSError."""
    from io import BytesIO

    from fastsim.errors import InputError

    made = BytesIO()
    table.write_parquet(made)
    try:
        path.write_bytes(made.getbuffer())
    except OSError as error:
        raise InputError(f"{option} {path}: cannot be written ({error.strerror or error})") from None


def unusable_rows(report: Any) -> str:
    """Which rows of a trace were left out, and why."""
    reasons = "; ".join(f"{count:,} {reason}" for reason, count in report.unusable.items())
    return f"{report.rows_used:,} of {report.rows_read:,} rows of the trace are requests; left out: {reasons}"
