"""A run's figures beside those that somebody measured, or that another simulator gave."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fastsim.analysis.beside.blis_metrics import Beside, blis_rows, is_blis_metrics, read_blis_metrics
from fastsim.analysis.measured.beside import measured_figures
from fastsim.config import Config
from fastsim.errors import InputError

Rows = Callable[[Mapping[str, Any]], list[Beside]]


def read_beside(path: Path, config: Config) -> tuple[str, Rows]:
    """Read a file to be laid beside a run: its title, and what makes the rows from the run's metrics.

    Raises
    ------
    InputError
        When the file holds no figures that a run has.
    """
    if not path.is_dir() and (is_blis_metrics(path) or not path.exists()):
        theirs = read_blis_metrics(path)
        return "BLIS", lambda metrics: blis_rows(theirs, metrics)
    title, figures = measured_figures(path, config)

    def rows(metrics: Mapping[str, Any]) -> list[Beside]:
        found = [Beside(name, name, value, metrics[name]) for name, value in figures.items() if name in metrics]
        if not found:
            raise InputError(f"{path}: holds no figure that a run has, but times or throughputs were expected")
        return found

    return title, rows
