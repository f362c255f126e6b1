"""`fastsim sweep`: every configuration of a spec, into a folder, and the answer on the screen."""

from pathlib import Path
from typing import Annotated

import typer

from fastsim.cli import options
from fastsim.cli.given import takes_hardware


@takes_hardware
def command(
    spec: options.Spec,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where rows are stored. Resumes what is there.")
    ] = None,
    *,
    settings: list[str],
    axes: options.Axes = None,
    workers: options.Workers = None,
    backend: Annotated[str, typer.Option("--backend", metavar="local|ray", help="Where workers run.")] = "local",
    shard: Annotated[
        str | None, typer.Option("--shard", metavar="I/N", help="Only the I-th of N equal shares of the parts.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", parser=options.integer, help="Only the first N configurations."),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            "--sample",
            metavar="N",
            parser=options.integer,
            help="Only N, each value of each axis in its share; always the same.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw away the rows that are there.")] = False,
) -> int:
    """Run every configuration of a spec's [sweep] and store one row each.

    Rows are the same whatever the number of workers, interruptions or shards. pl.scan_parquet("DIR/parts/*.parquet")
    reads them. The end is the answer to the spec's [answer] table, or a summary.
    """
    from fastsim.cli.hardware import print_grid
    from fastsim.cli.plan import describe_plan
    from fastsim.cli.spec import read_grid
    from fastsim.errors import InputError
    from fastsim.sweeps.runner import check_backend, sweep

    check_backend(backend)
    grid, answer = read_grid(spec, settings, axes or [])
    chosen = {"limit": limit, "sample": sample, "shard": parse_shard(shard)}
    selection = grid.select(**chosen)  # type: ignore[arg-type]
    for warning in grid.warnings:
        typer.echo(f"note: {warning}", err=True)
    print_grid(grid)
    if dry_run:
        typer.echo(describe_plan(grid, selection))
        return 0
    if out is None:
        raise InputError("fastsim sweep: --out is missing, but a folder for the rows was expected")

    from fastsim.cli.progress import make_progress

    result = sweep(
        grid,
        out,
        workers=workers,
        fresh=fresh,
        backend=backend,
        progress=make_progress(),
        **chosen,  # type: ignore[arg-type]
    )

    from fastsim.cli.outcome import print_outcome

    print_outcome(result, answer)
    return 1 if result.failed else 0


def parse_shard(text: str | None) -> tuple[int, int]:
    """`I/N` as two integers; (1, 1) when not given."""
    from fastsim.errors import InputError

    if text is None:
        return 1, 1
    shard, slash, of = text.partition("/")
    if not (slash and shard.isascii() and shard.isdigit() and of.isascii() and of.isdigit() and len(text) < 20):
        raise InputError(f"--shard {text}, but I/N with I from 1 to N was expected")
    return int(shard), int(of)
