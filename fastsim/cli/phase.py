"""`fastsim phase`: where service holds, thrashes, starves or overloads, over one or two axes."""

from pathlib import Path
from typing import Annotated

import typer

from fastsim.cli import options
from fastsim.cli.given import takes_hardware


@takes_hardware
def command(
    spec: options.Spec,
    x: Annotated[
        str,
        typer.Option(
            "--x",
            metavar="AXIS",
            help="An axis of the spec's [sweep], or KEY=START:STOP[:NUM][:log], or KEY=V1,V2,...",
        ),
    ],
    y: Annotated[
        str | None,
        typer.Option(
            "--y",
            metavar="AXIS",
            help="The same for the other side of the map; without it, one axis: where is the cliff?",
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option("--metric", metavar="M", help="verdict, or a limit: 'ttft_p99_ms <= 2000' (or <, >=, >)."),
    ] = "verdict",
    resolution: Annotated[
        int | None,
        typer.Option(
            "--resolution",
            metavar="N",
            parser=options.integer,
            help="Values along a range, or between the ends of a named axis.",
            show_default="64, a named axis as it is",
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", parser=options.integer, help="Runs a cell; most of them decide.")
    ] = 5,
    stride: Annotated[
        int | None,
        typer.Option(
            "--stride",
            metavar="N",
            parser=options.integer,
            help="Cells between the first probes; 1 runs every cell.",
            show_default="8, or 4 in small maps",
        ),
    ] = None,
    *,
    settings: list[str],
    workers: options.Workers = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the map as one JSON object.")] = False,
    page: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the map as a page too.", show_default=False)
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Write a picture too.", show_default=False)
    ] = None,
) -> int:
    """Map the verdict, or a limit on a metric, over one or two axes of a spec.

    First every few cells are run, then boundaries are bisected and followed: only cells beside them are run. A cell is
    what most of its seeds say; cells whose seeds differ are marked. An island that fits between the first probes can
    be missed.
    """
    from fastsim.analysis.phase.map import phase
    from fastsim.errors import need

    if page is not None or picture is not None:
        need("fastsim phase --html or --png", "altair", "vl_convert")
    from fastsim.cli.phase_text import phase_json, phase_text
    from fastsim.config import load_spec
    from fastsim.sweeps.runner.cores import available_cores

    found = phase(
        load_spec(spec, settings),
        x,
        y,
        metric,
        resolution=resolution,
        seeds=seeds,
        stride=stride,
        workers=workers if workers is not None else available_cores(),
    )
    typer.echo(phase_json(found) if as_json else phase_text(found))
    if page is not None or picture is not None:
        from fastsim.cli.phase_text import answer_of
        from fastsim.cli.report import write_file

        answer = answer_of(found)
        if page is not None:
            from fastsim.analysis.report.phase_picture import phase_page

            typer.echo(write_file(page, phase_page(found, answer).encode(), "--html"), err=as_json)
        if picture is not None:
            from fastsim.analysis.report.phase_picture import phase_png

            typer.echo(write_file(picture, phase_png(found, answer), "--png"), err=as_json)
    return 0
