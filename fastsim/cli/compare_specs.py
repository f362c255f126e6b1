"""Rows to compare that are not there yet: specs are run first, into a folder that is kept or thrown away."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from fastsim.errors import InputError


@contextmanager
def rows_of(
    sources: Sequence[Path],
    engines: str | None,
    sets: Sequence[str],
    seeds: int | None,
    out: Path | None,
    workers: int | None,
) -> Iterator[tuple[Path, str | None]]:
    """The folder with the rows of the specs, and the axis that tells them apart (None: the spec's own).

    Raises
    ------
    InputError
        When the specs do not go together, or options have nothing to act on.
    WorkError
        When a configuration failed.
    """
    from fastsim.analysis.compare.specs import CHOICE, ENGINE, grid_of_engines, grid_of_specs, grid_of_sweep
    from fastsim.cli.progress import make_progress
    from fastsim.cli.tables import wrapped
    from fastsim.engines import full_names
    from fastsim.errors import WorkError
    from fastsim.sweeps.runner import sweep

    if seeds is not None and seeds < 1:
        raise InputError(f"--seeds {seeds}, but at least 1 was expected")
    notes: list[str] = []
    by: str | None = None
    if len(sources) > 1:
        if engines is not None:
            raise InputError(f"--engines {engines} with {len(sources)} specs, but one spec was expected with it")
        grid, notes = grid_of_specs(sources, sets, seeds)
        by = CHOICE
    elif engines is not None:
        grid = grid_of_engines(sources[0], sets, full_names(engines), seeds)
        by = ENGINE
    else:
        grid = grid_of_sweep(sources[0], sets, seeds)
    for note in [*notes, *grid.warnings]:
        typer.echo(wrapped(f"note: {note}", indent=6), err=True)
    with TemporaryDirectory(prefix="fastsim-compare-") as scratch:
        folder = Path(scratch) / "rows" if out is None else out
        result = sweep(grid, folder, workers=workers, progress=make_progress())
        if result.failed:
            first = next(iter(result.errors.items()), None)
            example = "" if first is None else f"; for example config_id {first[0]}: {first[1]}"
            raise WorkError(f"{result.failed:,} of {result.rows:,} configurations failed{example}")
        yield folder, by
