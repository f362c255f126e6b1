"""Specs as the command line reads them: a grid, and the question it is to answer."""

from collections.abc import Sequence
from pathlib import Path

from fastsim.analysis.answer import Answer, answer_from
from fastsim.config import Config, load_spec
from fastsim.errors import InputError
from fastsim.metrics import columns_with
from fastsim.sweeps.grid import Grid


def read_grid(path: Path, sets: Sequence[str] = (), axes: Sequence[str] = ()) -> tuple[Grid, Answer | None]:
    """The grid of a spec file or of a sweep's folder, and the question it wants answered.

    Raises
    ------
    InputError
        One sentence, when the spec or its `[answer]` is malformed.
    """
    if path.is_dir():
        return Grid.from_toml(_spec_in(path), sets, axes), None
    spec = load_spec(path, sets)
    grid = Grid(spec, axes)
    if spec.answer is None:
        return grid, None
    pinned = spec.layers[-1].settings if sets else {}
    metrics = [column.name for column in columns_with(grid.class_names)]
    return grid, answer_from(spec.answer, str(path), [axis.name for axis in grid.axes], metrics, pinned)


def read_base(path: Path | None, sets: Sequence[str] = ()) -> Config:
    """The base configuration of a spec file or folder, or of settings alone, not yet checked against the rules."""
    file = _spec_in(path) if path is not None and path.is_dir() else path
    return load_spec(file, sets).base


def _spec_in(folder: Path) -> Path:
    if not (folder / "spec.toml").is_file():
        raise InputError(f"{folder}: a folder without spec.toml, but a spec file or a sweep's folder was expected")
    return folder / "spec.toml"
