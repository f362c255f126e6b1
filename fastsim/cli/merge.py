"""`fastsim merge`: shards become one sweep."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="The folders of all shards of a sweep.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The new folder. Goes on where it was stopped.")
    ] = None,
) -> int:
    """Put the folders of `fastsim sweep --shard 1/N` to `N/N` together: the part files of an unsharded sweep.

    Refuses, and says why, when a shard or a part is missing, twice or damaged, or when shards are of different specs,
    sources or workloads.
    """
    from fastsim.cli.tables import counted
    from fastsim.errors import InputError
    from fastsim.sweeps.store.merge import merge

    if out is None:
        raise InputError("fastsim merge: --out is missing, but a folder for the rows was expected")
    done = merge(folders, out)
    for note in done.notes:
        typer.echo(f"note: {note}", err=True)
    rows, shards, parts = counted(done.rows, "row"), counted(done.shards, "shard"), counted(done.parts, "part")
    typer.echo(f"{rows} of {shards} in {done.folder} ({parts})")
    return 0
