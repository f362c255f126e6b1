"""Rows of a sweep, and the means and differences that answers are made of."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

import fastsim
from fastsim.analysis.compare.bootstrap import mean_intervals, ratio_intervals, two_groups
from fastsim.analysis.compare.paired import BETTER, NONE, WORSE, compare

FOLDER = Path(__file__).resolve().parent.parent
SEED = "workload.seed"
THROUGHPUT = "request_throughput_req_per_s"
__all__ = ["BETTER", "FOLDER", "NONE", "SEED", "THROUGHPUT", "WORSE", "compare"]


@dataclass(frozen=True)
class Setup:
    """Where rows are kept and how they are computed."""

    out: Path
    workers: int | None = None
    tiny: bool = False
    fresh: bool = False


@dataclass(frozen=True)
class Section:
    """One question with its answer: `conclusion` first, then sentences, then a table."""

    name: str
    question: str
    conclusion: str
    sentences: list[str]
    header: list[str]
    rows: list[list[str]]
    configurations: int
    seeds: int
    notes: list[str] = field(default_factory=list)
    options: str = ""  # what the command has beyond the spec
    drawn: tuple[str, ...] | None = None  # columns of the picture; None: those that go together, (): no picture

    @property
    def command(self) -> str:
        """What runs the sweep."""
        return f"fastsim sweep sweeps/{self.name}.toml{self.options} --out {self.name}"


def grid_of(name: str, setup: Setup, tiny_axes: Sequence[str] = (), sets: Sequence[str] = ()) -> fastsim.Grid:
    """The grid of a spec in this folder; three seeds and `tiny_axes` in the tiny form."""
    axes = [f"{SEED}=0,1,2", *tiny_axes] if setup.tiny else []
    return fastsim.Grid.from_toml(FOLDER / f"{name}.toml", sets, axes)


def rows_of(name: str, setup: Setup, tiny_axes: Sequence[str] = (), sets: Sequence[str] = ()) -> pl.DataFrame:
    """The rows of a sweep, computed now or read from its folder below `setup.out`."""
    out = setup.out / (f"{name}-tiny" if setup.tiny else name)
    result = fastsim.sweep(grid_of(name, setup, tiny_axes, sets), out, workers=setup.workers, fresh=setup.fresh)
    if result.errors:
        raise RuntimeError(f"{name}: {len(result.errors)} configurations failed; {min(result.errors.items())}")
    with warnings.catch_warnings():  # a caveat of an engine stands in the answer's own notes
        warnings.simplefilter("ignore", UserWarning)
        frame = fastsim.scan(out).collect()
    return frame.with_columns(pl.col(pl.Enum).cast(pl.String))


def section(name: str, frame: pl.DataFrame, **parts: Any) -> Section:
    """A section with what every one says of its sweep."""
    seeds = frame[SEED].n_unique() if SEED in frame.columns else 1
    return Section(name, configurations=frame.height, seeds=seeds, **parts)


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float
    two_groups: bool = False
    """Whether the seeds fall in two groups, so that the interval says less than it seems to."""

    @property
    def shown(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def mean_of(frame: pl.DataFrame, metric: str) -> Interval:
    """Mean of a metric over seeds, each seed counting alike."""
    seeds = frame.group_by(SEED).agg(pl.col(metric).cast(pl.Float64).mean()).sort(SEED)
    mean, low, high = mean_intervals(_column(seeds, metric))
    return Interval(float(mean[0]), float(low[0]), float(high[0]), bool(two_groups(_column(seeds, metric))[0]))


def _column(frame: pl.DataFrame, name: str) -> npt.NDArray[np.float64]:
    return frame[name].to_numpy().astype(np.float64)[:, None]


def ratio_of(frame: pl.DataFrame, above: pl.Expr, below: pl.Expr) -> Interval:
    """Ratio of two totals, with the interval over seeds."""
    seeds = frame.group_by(SEED).agg(above.sum().cast(pl.Float64).alias("a"), below.sum().cast(pl.Float64).alias("b"))
    arrays = [seeds.sort(SEED)[name].to_numpy()[:, None] for name in ("a", "b")]
    mean, low, high = ratio_intervals(arrays[0], arrays[1])
    grouped = bool(two_groups(arrays[0])[0] or two_groups(arrays[1])[0])
    return Interval(float(mean[0]) + 1, float(low[0]) + 1, float(high[0]) + 1, grouped)


def paired(frame: pl.DataFrame, by: str, level: Any, metric: str, baseline: Any, *, relative: bool = True) -> Interval:
    """Difference of one level to another in one metric, averaged over all cells: relative, or in its unit."""
    both = frame.filter(pl.col(by).is_in([level, baseline]))
    row = compare(both, by, [metric], baseline).row(0, named=True)
    name = "relative" if relative else "difference"
    missing = float("nan")
    values = [row[name], row[f"{name}_low"], row[f"{name}_high"]]
    return Interval(*(missing if value is None else value for value in values), bool(row["two_groups"]))


def counts(frame: pl.DataFrame, by: str, level: Any, metric: str, baseline: Any, cells: list[str]) -> dict[str, int]:
    """In how many cells a level is better, worse, or not shown to differ."""
    both = frame.filter(pl.col(by).is_in([level, baseline]))
    verdicts = compare(both, by, [metric], baseline, cells)["verdict"]
    return {verdict: int((verdicts == verdict).sum()) for verdict in (BETTER, WORSE, NONE)}
