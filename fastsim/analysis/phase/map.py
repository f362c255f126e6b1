"""Phase maps over one or two axes: where service holds, thrashes, starves or overloads, at a fraction of all runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from fastsim.analysis.compare.metrics import null_is_infinite
from fastsim.analysis.evaluate.evaluate import Evaluator
from fastsim.analysis.phase.axes import PhaseAxis, phase_grid
from fastsim.analysis.phase.classes import Classes, read_classes
from fastsim.analysis.phase.refine import Cells, refine
from fastsim.config import Spec, load_spec, spec_from_mapping
from fastsim.errors import InputError
from fastsim.sweeps.grid import Grid
from fastsim.sweeps.grid.sweep import SEED

DEFAULT_SEEDS = 5
FINE = 40
"""Sides with more values are first probed at every eighth, others at every fourth."""

DECIDED = 0.7
"""Below this share of its seeds (3 of 5, 2 of 3) a cell is nearly undecided: its neighbours are looked at, too."""


FIGURES = ("ttft_p99_ms", "goodput_req_per_s", "output_throughput_tok_per_s", "preemptions")
"""What is kept of every run beside its class, with the metric that the classes come from."""


def over_seeds(values: pl.Series, name: str) -> float | None:
    """The middle of a metric over a cell's runs: of a percentile the median, in which null is infinite, else the mean.

    None: no run has a value, or the median is infinite.
    """
    known = [float(value) for value in values.drop_nulls()]
    if not null_is_infinite(name):
        return fmean(known) if known else None
    middle = median([*known, *[float("inf")] * values.null_count()])
    return None if middle == float("inf") else middle


@dataclass(frozen=True)
class PhaseMap:
    """A map over one or two axes. Arrays have shape (len(y.values), len(x.values)); (1, len(x.values)) of one axis.

    Attributes
    ----------
    x, y
        Names and values of the axes; y is None for a map of one.
    classes
        Names of the classes, the worst first and the good one last.
    column
        The result column they come from.
    labels
        int64: the class of each cell: what most of its seeds say, the worse one of two that as many say. Of a cell that
        was not evaluated, the class of the nearest that was.
    evaluated
        bool: which cells were run.
    agreement
        float64: share of a cell's seeds that are of its class; NaN where it was not run.
    seeds, runs, full_runs
        Seeds a cell, simulations run, and what the whole grid would have taken.
    strides
        Cells between the first probes, along y and x: islands that fit between them can be missed.
    at_base
        Axes of the spec that were left at their base values.
    seeds_alike
        Whether all seeds gave the same requests, as those of a trace are.
    nothing_done
        Runs that their horizon ended before any request completed.
    figures
        One row a run: `x_place`, `y_place`, `class`, and FIGURES.
    """

    x: PhaseAxis
    y: PhaseAxis | None
    classes: tuple[str, ...]
    column: str
    labels: npt.NDArray[np.int64]
    evaluated: npt.NDArray[np.bool_]
    agreement: npt.NDArray[np.float64]
    seeds: int
    runs: int
    full_runs: int
    strides: tuple[int, int]
    at_base: tuple[str, ...]
    seeds_alike: bool
    nothing_done: int = 0
    figures: pl.DataFrame = field(default_factory=pl.DataFrame)

    @property
    def disagrees(self) -> npt.NDArray[np.bool_]:
        """bool: cells that were run and whose seeds are not of one mind."""
        return self.evaluated & (self.agreement < 1)

    def share(self, name: str) -> float:
        """Share of the map's cells that are of a class."""
        return float((self.labels == self.classes.index(name)).mean())

    def to_polars(self) -> pl.DataFrame:
        """One row a cell: the axes by name, `class`, `evaluated`, `agreement` (null where it was not run)."""
        rows, columns = self.labels.shape
        up = {} if self.y is None else {self.y.name: [value for value in self.y.values for _ in range(columns)]}
        return pl.DataFrame(
            {
                **up,
                self.x.name: list(self.x.values) * rows,
                "class": [self.classes[code] for code in self.labels.ravel()],
                "evaluated": self.evaluated.ravel(),
                "agreement": self.agreement.ravel(),
            }
        ).with_columns(pl.col("agreement").fill_nan(None))


def phase(
    spec: Spec | Mapping[str, Any] | str | Path,
    x: str,
    y: str | None = None,
    metric: str | None = None,
    *,
    resolution: int | None = None,
    seeds: int = DEFAULT_SEEDS,
    stride: int | None = None,
    workers: int | None = None,
) -> PhaseMap:
    """Map the verdict, or a limit on a metric, over one or two axes; only cells at boundaries and a few probes are run.

    Parameters
    ----------
    spec
        A spec file, a mapping of the shape that TOML gives, or `load_spec(...)`. Axes of its [sweep] other than x and y
        stay at their base values.
    x, y
        An axis of the spec's [sweep] by name, `key=start:stop[:num][:log]`, or `key=v1,v2,...`. Without y the map is a
        line: where is the cliff?
    metric
        `verdict` (by default), or a condition such as `ttft_p99_ms <= 2000`.
    resolution
        Values along a range that does not say its own; 64 by default.
    seeds
        Runs a cell, the same requests for all cells of a seed as far as the axes allow. A cell is what most of them
        say.
    stride
        Cells between the first probes; 1 runs the whole grid. By default 8, or 4 along sides of up to 40 cells.
    workers
        Processes; none: one.

    Raises
    ------
    InputError
        When an axis or the metric is malformed, or a combination of the grid breaks a rule.
    """
    if isinstance(spec, str | Path):
        spec = load_spec(spec)
    elif not isinstance(spec, Spec):
        spec = spec_from_mapping(spec)
    grid, x_axis, y_axis, at_base = phase_grid(spec, x, y, resolution, seeds)
    classes = read_classes(metric, grid.class_names)
    shape = (1 if y_axis is None else len(y_axis.values), len(x_axis.values))
    if stride is not None and stride < 1:
        raise InputError(f"--stride {stride}, but an integer of at least 1 was expected")
    rows, columns = (stride or (8 if size > FINE else 4) for size in shape)
    with Evaluator(grid, workers) as evaluator:
        cells = _Cells(evaluator, grid, classes, (None if y_axis is None else y_axis.name, x_axis.name), shape, seeds)
        labels, known = refine(shape, cells.evaluate, (rows, columns))
        runs = evaluator.runs
    return PhaseMap(
        x_axis,
        y_axis,
        classes.names,
        classes.column,
        labels,
        known,
        cells.agreement,
        seeds,
        runs,
        prod(shape) * seeds,
        (rows, columns),
        tuple(at_base),
        seeds > 1 and cells.alike,
        cells.nothing_done,
        cells.figures(),
    )


class _Cells:
    """Classes of cells by running all their seeds; keeps how far the seeds agree."""

    def __init__(
        self,
        evaluator: Evaluator,
        grid: Grid,
        classes: Classes,
        names: tuple[str | None, str],
        shape: tuple[int, int],
        seeds: int,
    ) -> None:
        self._evaluator = evaluator
        self._classes = classes
        self._seeds = seeds
        sizes = [len(axis.values) for axis in grid.axes]
        strides: dict[str | None, int] = {axis.name: prod(sizes[n + 1 :]) for n, axis in enumerate(grid.axes)}
        strides[None] = 0
        self._strides = np.array([strides[names[0]], strides[names[1]], strides[SEED]])
        self.agreement = np.full(shape, np.nan)
        self.alike = True
        self.nothing_done = 0
        self._figures: list[pl.DataFrame] = []

    def figures(self) -> pl.DataFrame:
        """One row a run, in the order of the map."""
        return pl.concat(self._figures).sort("y_place", "x_place", maintain_order=True)

    def evaluate(self, cells: Cells) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The class that most seeds of each cell are of, and whether not many more are."""
        first = cells @ self._strides[:2]
        indices = first[:, None] + self._strides[2] * np.arange(self._seeds)
        order = np.argsort(indices, axis=None)  # neighbours in the grid share workloads
        codes = np.empty(indices.size, np.int64)
        rows = self._evaluator.rows(indices.ravel()[order])
        codes[order] = self._classes.code(rows)
        self._keep(rows, np.repeat(cells, self._seeds, axis=0)[order], codes[order])
        ended = (pl.col("stop").cast(pl.String) == "horizon") & (pl.col("completed") == 0)
        self.nothing_done += int(rows.select(ended.sum()).item())
        workloads = np.empty(indices.size, np.int64)
        workloads[order] = rows["workload_id"].rank("dense").to_numpy()
        self.alike &= bool((np.ptp(workloads.reshape(indices.shape), axis=1) == 0).all())
        counts = np.stack([(codes.reshape(indices.shape) == k).sum(axis=1) for k in range(len(self._classes.names))])
        most: npt.NDArray[np.int64] = counts.argmax(axis=0).astype(np.int64)  # the first of equals: the worse
        share = counts.max(axis=0) / self._seeds
        self.agreement[cells[:, 0], cells[:, 1]] = share
        return most, share < DECIDED

    def _keep(self, rows: pl.DataFrame, cells: Cells, codes: npt.NDArray[np.int64]) -> None:
        column = self._classes.column
        kept = [pl.col(name) for name in dict.fromkeys((*FIGURES, *([column] if column not in FIGURES else [])))]
        places = {"y_place": cells[:, 0], "x_place": cells[:, 1], "class": [self._classes.names[k] for k in codes]}
        self._figures.append(pl.DataFrame(places).hstack(rows.select(kept)))
