"""What must be known of the figures of an engine that no recording has verified."""

from collections.abc import Iterable

import typer

from fastsim.cli.tables import wrapped
from fastsim.engines import caveats


def print_caveats(names: Iterable[str]) -> None:
    """Say on stderr what must be known of the figures of some engines."""
    for sentence in caveats(names):
        typer.echo(wrapped(f"note: {sentence}", indent=6), err=True)
