"""`fastsim calibrate`: one measured run in, a latency model out."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastsim.cli import options

if TYPE_CHECKING:
    from fastsim.analysis.calibrate.aggregate import AggregateCalibration
    from fastsim.analysis.calibrate.calibrate import Calibration
    from fastsim.analysis.calibrate.run import MeasuredRun


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="A file of measured requests, a folder with requests.jsonl, or results that hold only means and "
            "percentiles: vllm bench serve and sweep, SGLang's bench_serving, AIPerf, inference-perf, guidellm.",
        ),
    ],
    sets: options.Sets = None,
    vllm_version: options.VllmVersion = None,
    from_log: Annotated[
        Path | None,
        typer.Option("--from-log", metavar="FILE", help="vLLM's log: num_gpu_blocks and max_model_len are taken."),
    ] = None,
    train_fraction: Annotated[
        float, typer.Option("--train-fraction", metavar="F", help="Fit the first share F of requests, judge the rest.")
    ] = 1.0,
    out: Annotated[Path | None, typer.Option("--out", metavar="F.toml", help="Write a spec to extend.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    chart: Annotated[
        Path | None, typer.Option("--chart", metavar="F.html", help="Chart measured against simulated (html, png).")
    ] = None,
    requests: Annotated[
        Path | None, typer.Option("--requests", metavar="F.parquet", help="Store measured and simulated times.")
    ] = None,
    format_name: Annotated[
        str | None, typer.Option("--format", metavar="NAME", help="The run's format; else recognised.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="M", help="Model preset or config.json, as a weak first belief.")
    ] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="G", help="GPU preset, with --model.")] = None,
    target: Annotated[
        str | None,
        typer.Option("--for", metavar="MODEL@GPU", help="Carry it to other hardware, as llama-3.1-70b@4xh100."),
    ] = None,
    fit_blocks: Annotated[
        bool, typer.Option("--fit-blocks", help="Fit engine.num_gpu_blocks too (always, if it is not given).")
    ] = False,
    bootstrap: Annotated[
        int | None,
        typer.Option("--bootstrap", metavar="N", parser=options.integer, help="Draws for the intervals [60]; 0: none."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the starts and the bootstrap.")] = 0,
) -> None:
    """Fit the latency coefficients so that simulated times repeat a measured run.

    The engine's settings come from the run's meta.json and --set. Requests after the first share F are simulated
    too, but their times are only compared.
    """
    from fastsim.analysis.calibrate.calibrate import calibrate
    from fastsim.analysis.calibrate.report import requests_table, write_chart, write_toml
    from fastsim.analysis.calibrate.run import read_run
    from fastsim.analysis.calibrate.transfer import transfer
    from fastsim.analysis.measured.read import is_summary
    from fastsim.errors import InputError, need

    need("fastsim calibrate", "scipy")
    if chart is not None:
        need("--chart", "altair", *(["vl_convert"] if chart.suffix.lower() in (".png", ".svg") else []))
    if (bootstrap or 0) < 0 or seed < 0:
        raise InputError(f"--bootstrap {bootstrap} and --seed {seed}, but integers of at least 0 were expected")
    settings = [*_logged(from_log, sets or []), *options.with_version(sets, vllm_version)]
    if is_summary(runs):
        if target is not None:
            raise InputError(f"--for {target}: only a run with per-request times is carried to other hardware")
        if train_fraction != 1.0 or chart is not None or requests is not None or format_name is not None:
            raise InputError(
                f"{runs[0]}: a result without per-request times, but those were expected with --train-fraction, "
                "--chart, --requests or --format (vllm bench serve --save-detailed stores them)"
            )
        _fit_levels(runs, settings, model, gpu, fit_blocks, bootstrap, seed, out, as_json)
        return
    run = read_run(runs[0], settings, format=format_name)
    if not as_json:
        typer.echo(_understood(run) + "\n")
    found = calibrate(
        run,
        train_fraction=train_fraction,
        model=model,
        gpu=gpu,
        fit_blocks=True if fit_blocks else None,
        bootstrap=60 if bootstrap is None else bootstrap,
        seed=seed,
    )
    carried = None if target is None else transfer(found, target, model, gpu)
    if out is not None:
        write_toml(found, out, carried)
    if chart is not None:
        write_chart(found, chart)
    if requests is not None:
        from fastsim.cli.run import store_table

        store_table(requests_table(found), requests, "--requests")
    if as_json:
        import json

        typer.echo(json.dumps(found.to_json() | ({} if carried is None else {"carried": carried.to_json()})))
        return
    typer.echo("\n".join(_text(found)))
    if carried is not None:
        from fastsim.cli.transfer import transfer_text

        typer.echo("\n" + transfer_text(carried))
    if out is not None:
        typer.echo(f"\nWritten to {out}: use it with extends = {str(out)!r} in a spec.")


def _logged(log: Path | None, sets: list[str]) -> list[str]:
    """What vLLM's log says of the pool, as settings; those given come behind it and win."""
    if log is None:
        return []
    from fastsim.analysis.measured.engine_log import pool_blocks
    from fastsim.analysis.measured.read import read_results
    from fastsim.config import Config, load_spec
    from fastsim.config.derived import with_values
    from fastsim.errors import InputError

    result = read_results([log])[0]
    blocks = pool_blocks(result, with_values(Config(), load_spec(None, sets).settings).engine.block_size)
    if blocks is None:
        raise InputError(
            f"--from-log {log}: does not say how large the KV cache is, but 'GPU KV cache size' was expected"
        )
    length = result.engine.get("engine.max_model_len")
    return [f"engine.num_gpu_blocks={blocks}", *([f"engine.max_model_len={length}"] if length else [])]


def _understood(run: "MeasuredRun") -> str:
    """What was read of a run, before anything is fitted to it."""
    import numpy as np

    from fastsim.cli.tables import number, table

    workload, engine = run.workload, run.config.engine
    ttft, e2e = (float(np.nanmean(times)) / 1e6 for times in (run.ttft_us, run.e2e_us))
    pool = "not given: fitted" if engine.num_gpu_blocks is None else f"{engine.num_gpu_blocks:,} of {engine.block_size}"
    rows = [
        ["requests", f"{workload.num_requests:,} over {number(float(np.ptp(workload.arrival_us)) / 1e6)} s"],
        ["tokens, mean", f"prompt {number(workload.mean_prompt_tokens)}, output {number(workload.mean_output_tokens)}"],
        [
            "measured, mean",
            f"TTFT {number(ttft)} s, E2E {number(e2e)} s, by {'the engine' if run.engine_clock else 'the client'}",
        ],
        [
            "engine",
            f"{engine.name}, max_num_seqs {engine.max_num_seqs}, {engine.max_num_batched_tokens} batched tokens",
        ],
        ["KV blocks", pool],
    ]
    return table([f"understood of {run.source}", ""], rows, left=2)


def _fit_levels(
    runs: list[Path],
    sets: list[str],
    model: str | None,
    gpu: str | None,
    fit_blocks: bool,
    bootstrap: int | None,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Fit to results that hold only means and percentiles."""
    from fastsim.analysis.calibrate.aggregate import calibrate_levels
    from fastsim.analysis.calibrate.aggregate_run import read_levels
    from fastsim.analysis.calibrate.report import write_toml
    from fastsim.cli.measured import results_text

    refits = 12 if bootstrap is None else bootstrap
    levels = read_levels(runs, sets)
    if not as_json:
        typer.echo(results_text(list(levels.results)) + "\n")
    found = calibrate_levels(levels, sets, model=model, gpu=gpu, fit_blocks=fit_blocks, bootstrap=refits, seed=seed)
    if out is not None:
        write_toml(found, out)
    if as_json:
        import json

        typer.echo(json.dumps(found.to_json()))
        return
    typer.echo("\n".join(_levels_text(found)))
    if out is not None:
        typer.echo(f"\nWritten to {out}: use it with extends = {str(out)!r} in a spec.")


def _levels_text(found: "AggregateCalibration") -> list[str]:
    from fastsim.cli.tables import table, wrapped

    levels = found.levels.levels
    lines = [
        wrapped(
            f"{len(levels)} results without per-request times; "
            f"{found.simulations:,} simulations in {found.seconds:.1f} s"
        ),
        "",
        _coefficients(found.coefficients, found.intervals),
        "",
        "Simulated against measured, in percent:",
    ]
    columns = [name for name in COLUMNS if any(name in errors for _, errors in found.errors)]
    rows = [
        [level.load, *(f"{errors[name]:+.1f}" if name in errors else "-" for name in columns)]
        for level, errors in found.errors
    ]
    lines.append(table(["load", *(name.replace("_served", "").removesuffix("_ms") for name in columns)], rows))
    lines.append("")
    lines += [wrapped(f"warning: {text}") for text in found.warnings]
    return lines + [wrapped(f"note: {text}") for text in found.notes]


COLUMNS = (
    "request_throughput_req_per_s",
    *(f"{name}_{each}_ms" for name in ("ttft", "tpot", "e2e") for each in ("served_mean", "p99")),
)
"""What the table of errors shows; `--json` has all."""


def _coefficients(
    values: dict[str, float], intervals: dict[str, tuple[float, float]], told: Sequence[str] | None = None
) -> str:
    from fastsim.cli.tables import number, table

    rows = []
    for name, value in values.items():
        low, high = intervals.get(name, (None, None))
        said = [] if told is None else ["" if not intervals else "yes" if name in told else "no: assumed"]
        rows.append([name, number(value), number(low), number(high), *said])
    head = ["coefficient", "fitted", "90 % from", "to", *([] if told is None else ["told by the run"])]
    return table(head, rows)


def _text(found: "Calibration") -> list[str]:
    from fastsim.analysis.calibrate.report import error_rows
    from fastsim.cli.tables import table, wrapped

    run = found.run
    where = ", ".join(run.provenance[name] for name in ("model", "gpu") if name in run.provenance)
    what = (
        f"{run.source}: {run.workload.num_requests} requests{', ' + where if where else ''}; "
        f"{found.num_train} fitted, {found.simulations:,} simulations in {found.seconds:.1f} s"
    )
    lines = [wrapped(what), ""]
    lines += [_coefficients(found.coefficients, found.intervals, found.told), ""]
    head = ["error of", "mean", "p50", "p90", "p99"]
    lines += [
        f"Simulated against measured, the {found.num_train} requests fitted:",
        table(head, error_rows(found.train)),
    ]
    if found.test is not None:
        rest = run.workload.num_requests - found.num_train
        lines += ["", f"The {rest} requests held back:", table(head, error_rows(found.test))]
    lines += ["", "What it says of (means, 90 % intervals):"]
    shown = []
    for entry in found.predictions:
        cells = [str(entry["name"])]
        for metric, unit, scale in (("ttft", "s", 1e3), ("tpot", "ms", 1.0), ("e2e", "s", 1e3)):
            value, interval = entry[f"{metric}_mean_ms"], entry.get(f"{metric}_mean_ms_90")
            text = "never" if value is None else f"{value / scale:.4g} {unit}"
            cells.append(text + (f" ({interval[0] / scale:.4g}-{interval[1] / scale:.4g})" if interval else ""))
        shown.append(cells)
    lines.append(table(["", "TTFT", "TPOT", "E2E"], shown))
    widths = [
        f"{entry['name']} {100 * (pair[1] - pair[0]) / entry['ttft_mean_ms']:.1f} %"
        for entry in found.predictions
        if (pair := entry.get("ttft_mean_ms_90")) and entry["ttft_mean_ms"]
    ]
    if widths:
        lines.append(wrapped(f"Width of the intervals of the mean TTFT: {', '.join(widths)}."))
    lines += ["", *(wrapped(f"warning: {text}") for text in found.warnings)]
    return lines + [wrapped(f"note: {text}") for text in found.notes]
