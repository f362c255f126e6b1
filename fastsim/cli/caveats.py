"""What must be known of the figures of an engine that no recording has verified."""

from collections.abc import Iterable
from pathlib import Path

import typer

from fastsim.cli.tables import wrapped
from fastsim.engines import caveats
from fastsim.errors import InputError


def print_caveats(names: Iterable[str]) -> None:
    """Say on stderr what must be known of the figures of some engines."""
    for sentence in caveats(names):
        typer.echo(wrapped(f"note: {sentence}", indent=6), err=True)


def print_folder_caveats(folder: Path) -> None:
    """The same of a sweep's folder, as far as it says which engines ran."""
    from fastsim.sweeps.grid import Grid

    file = folder / "spec.toml"
    if not file.is_file():
        return
    try:
        names = Grid.from_toml(file).possible("engine.name")
    except InputError:  # a spec of an older release: its rows are read all the same
        return
    print_caveats(sorted(names))
