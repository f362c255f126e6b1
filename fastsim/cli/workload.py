"""`fastsim workload`: look at traffic, convert it, make it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastsim.cli import options
from fastsim.cli.given import takes_load

if TYPE_CHECKING:
    from fastsim.workload import Workload

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Look at recorded or described traffic, convert it, make it."
)
BARS = " ▁▂▃▄▅▆▇█"

Format = Annotated[
    str | None, typer.Option("--format", metavar="NAME", help="The trace's format: workload.format; else recognised.")
]
Start = Annotated[float | None, typer.Option("--start-s", metavar="S", help="Only from this time: window_start_s.")]
End = Annotated[float | None, typer.Option("--end-s", metavar="S", help="Only before this time: window_end_s.")]
Sample = Annotated[float | None, typer.Option("--sample", metavar="SHARE", help="This share of rows: sample_share.")]
Scale = Annotated[
    float | None, typer.Option("--rate-scale", metavar="F", help="Divide all gaps by F, which keeps their burstiness.")
]
Rate = Annotated[
    float | None, typer.Option("--rate", metavar="R", help="Scale all gaps alike to R requests a second on average.")
]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="OUT.csv", help="The plain CSV to write.")]


@app.command("show", no_args_is_help=True)
def show(
    trace: Annotated[Path, typer.Argument(metavar="FILE", help="A trace, or a folder of one (ServeGen, a run).")],
    format_name: Format = None,
    start_s: Start = None,
    end_s: End = None,
    sample: Sample = None,
    sets: options.Sets = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Rows, span, rate over time, lengths, shared prefixes, and what was unusable and why."""
    from fastsim.analysis.measured.read import is_summary
    from fastsim.workload.describe import describe

    if format_name is None and trace.exists() and is_summary([trace]):
        _show_results(trace, as_json)
        return
    workload = _read(trace, format_name, start_s, end_s, sample, None, sets)
    figures = describe(workload)
    report = workload.report
    if as_json:
        import json

        rows = {
            "workload_id": workload.workload_id,
            "rows_read": report.rows_read,
            "rows_used": report.rows_used,
            "unusable": report.unusable,
            "notes": list(report.notes),
        }
        typer.echo(json.dumps(rows | figures))
        return
    typer.echo("\n".join(_text(trace, workload, figures)))


@app.command("convert", no_args_is_help=True)
def convert(
    traces: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Traces; several are merged as classes.")],
    out: Out,
    format_name: Format = None,
    start_s: Start = None,
    end_s: End = None,
    sample: Sample = None,
    rate_scale: Scale = None,
    rate: Rate = None,
    sets: options.Sets = None,
) -> None:
    """Write traces of any format as one plain CSV, with window, sample and rate applied."""
    from fastsim.errors import InputError
    from fastsim.workload.write import merged, write_plain

    if rate is not None and rate_scale is not None:
        raise InputError("--rate and --rate-scale are both given, but one of them was expected")
    workloads = [_read(each, format_name, start_s, end_s, sample, rate_scale, sets) for each in traces]
    workload = merged(workloads) if len(workloads) > 1 else workloads[0]
    if rate is not None:
        workload = _at_rate(workload, rate)
    write_plain(workload, out)
    _say(workload, out)


@app.command("make", no_args_is_help=True)
@takes_load
def make(
    out: Out,
    spec: Annotated[Path | None, typer.Argument(metavar="[SPEC.toml]", help="A spec; its workload is made.")] = None,
    *,
    settings: list[str],
) -> None:
    """Write the requests that a spec's workload describes as a plain CSV."""
    from fastsim.config import load_spec
    from fastsim.errors import InputError
    from fastsim.workload import build_workload
    from fastsim.workload.write import write_plain

    config = load_spec(spec, settings).base
    if config.workload.concurrency is not None:
        raise InputError(
            f"workload.concurrency = {config.workload.concurrency}, but none was expected: "
            "a closed loop has no arrivals that a file could hold"
        )
    workload = build_workload(config.workload)
    write_plain(workload, out)
    _say(workload, out)


def _read(
    trace: Path,
    format_name: str | None,
    start_s: float | None,
    end_s: float | None,
    sample: float | None,
    rate_scale: float | None,
    sets: list[str] | None,
) -> "Workload":
    """The requests of a trace, with the options' keys set."""
    from fastsim.config import load_spec
    from fastsim.workload import build_workload

    given = {
        "format": format_name,
        "window_start_s": start_s,
        "window_end_s": end_s,
        "sample_share": sample,
        "rate_scale": rate_scale,
    }
    settings = [f"workload.{name}={value}" for name, value in given.items() if value is not None]
    base = load_spec(None, [*(sets or []), *settings, f"workload.trace={trace}"]).base
    return build_workload(base.workload)


def _show_results(path: Path, as_json: bool) -> None:
    """Say what a summary of measurements holds: it has no requests, but what was sent and what came out."""
    from dataclasses import asdict

    from fastsim.analysis.measured.read import read_results
    from fastsim.cli.measured import figures_text, results_text

    results = read_results([path])
    if as_json:
        import json

        rows = [
            asdict(result) | {"pairs": None, "prompt": result.prompt.mean, "output": result.output.mean}
            for result in results
        ]
        typer.echo(json.dumps({"results": rows}))
        return
    typer.echo(results_text(results) + "\n\n" + figures_text(results))


def _at_rate(workload: "Workload", rate: float) -> "Workload":
    from dataclasses import replace

    import numpy as np

    from fastsim.errors import InputError

    if not 0 < rate <= 1e6:
        raise InputError(f"--rate {rate:g}, but a number above 0 and up to 1e6 was expected")
    since = workload.arrival_us - workload.arrival_us.min()
    if since.max() == 0:
        raise InputError(f"--rate {rate:g}, but requests at different times were expected: all arrive at once")
    factor = (workload.num_requests - 1) / rate * 1e6 / since.max()
    return replace(workload, arrival_us=np.floor(since * factor).astype(np.int64))


def _say(workload: "Workload", out: Path) -> None:
    for line in _left_out(workload):
        typer.echo(f"note: {line}", err=True)
    from fastsim.cli.tables import counted

    typer.echo(f"{counted(workload.num_requests, 'request')} in {out}")


def _left_out(workload: "Workload") -> list[str]:
    from fastsim.cli.tables import counted

    report = workload.report
    lines = list(report.notes)
    lines += [f"{counted(count, 'row')} cannot be used: {reason}" for reason, count in report.unusable.items()]
    return lines


def _text(trace: Path, workload: "Workload", figures: dict[str, Any]) -> list[str]:
    from fastsim.cli.tables import counted, number, table, wrapped

    report = workload.report
    requests = counted(workload.num_requests, "request")
    what = f"{counted(report.rows_read, 'row')}, {requests} over {figures['span_s']:,.1f} s"
    lines = [wrapped(f"{trace}: {what}")]
    lines += [wrapped(f"  {line}", indent=4) for line in _left_out(workload)]
    over_time = figures["rate_over_time_per_s"]
    if over_time:
        top = max(over_time)
        bar = "".join(BARS[round(each / top * (len(BARS) - 1))] for each in over_time)
        text = (
            f"rate        {figures['rate_per_s']:.4g}/s on average, |{bar}| up to {top:.4g}/s in "
            f"{figures['span_s'] / len(over_time):.4g} s, cv of gaps {number(figures['gap_cv'])}"
        )
        lines.append(wrapped(text, indent=12))
    rows = [[name, *figures[name].values()] for name in ("prompt_tokens", "output_tokens")]
    lines += ["", table(["tokens", *figures["prompt_tokens"]], rows), ""]
    prefix = figures["prefix"]
    if prefix["requests"]:
        text = (
            f"prefixes    {prefix['requests']:,} requests share prefixes in {prefix['groups']:,} groups: "
            f"{prefix['token_share']:.1%} of all prompt tokens; an unlimited cache would hit "
            f"{prefix['repeated_token_share']:.1%}"
        )
        lines.append(wrapped(text, indent=12))
    else:
        lines.append("prefixes    none are shared")
    if len(figures["priorities"]) > 1:
        shown = ", ".join(f"{value}: {count:,}" for value, count in figures["priorities"].items())
        lines.append(wrapped(f"priorities  {shown}", indent=12))
    return lines
