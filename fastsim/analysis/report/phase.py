"""The map of where service holds: the two axes that matter most, and a verdict or metric for each cell."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from fastsim.analysis.compare.metrics import null_is_infinite
from fastsim.analysis.report.question import MEETS
from fastsim.analysis.report.rows import OUTCOMES, ReportAxis, SweepReport, dominant

MOST_NUMBERS, MOST_WORDS = 16, 40
"""Places of an axis on a map: an axis of more numbers is cut into ranges, of more words after so many."""


@dataclass(frozen=True)
class Place:
    """Where the values of an axis stand on a map: `labels` in order, and one index into them a level (-1: nowhere)."""

    axis: ReportAxis
    labels: list[str]
    index: list[int]

    @property
    def note(self) -> str:
        """What is not shown one by one, in a sentence; empty when all is."""
        levels = len(self.axis.labels)
        if len(self.labels) == levels:
            return ""
        if self.axis.is_number:
            return f"The {levels:,} values of {self.axis.name} are put together in {len(self.labels)} ranges."
        return f"Of the {levels:,} values of {self.axis.name} the first {len(self.labels)} are shown."

    def column(self, frame: pl.DataFrame, name: str) -> pl.DataFrame:
        """The frame with one more column, the index of the place of each row."""
        table = pl.DataFrame([self.axis.levels, pl.Series(name, self.index, pl.Int64)])
        return frame.join(table, on=self.axis.name, how="left", nulls_equal=True, maintain_order="left")


def place(axis: ReportAxis) -> Place:
    """Every value in a place of its own, or ranges of numbers, or the first words."""
    count = len(axis.labels)
    if count <= (MOST_NUMBERS if axis.is_number else MOST_WORDS):
        return Place(axis, axis.labels, list(range(count)))
    if not axis.is_number:
        return Place(axis, axis.labels[:MOST_WORDS], [k if k < MOST_WORDS else -1 for k in range(count)])
    index = [k * MOST_NUMBERS // count for k in range(count)]
    groups = [[label for label, at in zip(axis.labels, index, strict=True) if at == k] for k in range(MOST_NUMBERS)]
    labels = [group[0] if len(group) == 1 else f"{group[0]} to {group[-1]}" for group in groups]
    return Place(axis, labels, index)


def importance(sweep: SweepReport, metric: str) -> dict[str, float]:
    """How much of a metric's spread over settings each axis explains: epsilon squared of its ranks, 0 to 1.

    Null is the worst rank of a percentile and left out of others. An axis whose every value has one setting explains
    nothing by this measure (it corrects eta squared for the number of values).
    """
    values = pl.col(metric).fill_null(float("inf")) if null_is_infinite(metric) else pl.col(metric)
    return _explained(sweep, values)


def _explained(sweep: SweepReport, values: pl.Expr) -> dict[str, float]:
    frame = sweep.settings.with_columns(values.rank().alias("rank")).filter(pl.col("rank").is_not_null())
    n = frame.height
    total = _squares(frame)
    found = {}
    for axis in sweep.axes:
        groups = place(axis).column(frame, "place").group_by("place").agg(pl.col("rank").mean(), pl.len())
        k = groups.height
        if total == 0 or k < 2 or n <= k:
            found[axis.name] = 0.0
            continue
        between = float((groups["len"] * (groups["rank"] - _mean(frame)) ** 2).sum())
        within = max(total - between, 0.0) / (n - k)
        found[axis.name] = max((between - (k - 1) * within) / total, 0.0)
    return found


def _mean(frame: pl.DataFrame) -> float:
    return float(frame["rank"].mean())  # type: ignore[arg-type]


def _squares(frame: pl.DataFrame) -> float:
    return float(((frame["rank"] - _mean(frame)) ** 2).sum()) if frame.height else 0.0


def by_importance(sweep: SweepReport, metric: str) -> list[ReportAxis]:
    """The axes that have more than one value, those that explain most first."""
    weight = importance(sweep, metric)
    varied = [axis for axis in sweep.axes if len(axis.labels) > 1]
    return sorted(varied, key=lambda axis: -weight[axis.name])


@dataclass(frozen=True)
class PhaseGrid:
    """Cells of two axes (`y` None: of one).

    `cells` has a row a cell: `x`, `y` (indices of places), `settings`, `rows`, `n|OUTCOME`, `outcome`, `share` (of the
    rows that have that outcome), and for each metric its mean over settings that have a value and `METRIC|none`, the
    share of settings without one.
    """

    x: Place
    y: Place | None
    metrics: tuple[str, ...]
    cells: pl.DataFrame
    pooled: tuple[str, ...]

    def records(self) -> list[dict[str, Any]]:
        """Cells as dicts with the labels of their places."""
        y = self.y
        return [
            cell | {"x": self.x.labels[cell["x"]], "y": "" if y is None else y.labels[cell["y"]]}
            for cell in self.cells.to_dicts()
        ]


def phase_map(sweep: SweepReport, metrics: tuple[str, ...]) -> PhaseGrid | None:
    """The map over the two axes that explain most of the conditions (or the first metric) and of the verdict.

    None without an axis.

    Words go up the page and numbers along it. An axis that moves together with the first one (a zip) is no second one.
    """
    first_metric = MEETS if MEETS in sweep.metrics else metrics[0]
    metric, verdict = importance(sweep, first_metric), _explained(sweep, pl.col("n|ok") / pl.col("rows"))
    axes = [axis for axis in sweep.axes if len(axis.labels) > 1]
    axes.sort(key=lambda axis: -metric[axis.name] - verdict[axis.name])
    if not axes:
        return None
    first = axes[0]
    second = next((axis for axis in axes[1:] if not _together(sweep, first, axis)), None)
    x, y = first, second
    if y is not None and (not x.is_number, len(x.labels)) > (not y.is_number, len(y.labels)):
        x, y = y, x
    places = place(x), None if y is None else place(y)
    pooled = tuple(axis.name for axis in axes if axis not in (x, y))
    return PhaseGrid(*places, metrics, _cells(sweep, *places, metrics), pooled)


def _together(sweep: SweepReport, one: ReportAxis, other: ReportAxis) -> bool:
    pairs = sweep.settings.select(one.name, other.name).n_unique()
    return pairs == max(len(one.labels), len(other.labels))


def _cells(sweep: SweepReport, x: Place, y: Place | None, metrics: tuple[str, ...]) -> pl.DataFrame:
    frame = x.column(sweep.settings, "x")
    frame = frame.with_columns(pl.lit(0).alias("y")) if y is None else y.column(frame, "y")
    figures = [pl.col(name).mean() for name in metrics]
    missing = [pl.col(name).is_null().mean().alias(f"{name}|none") for name in metrics]
    counts = [pl.col("rows").sum(), *(pl.col(f"n|{name}").sum() for name in OUTCOMES)]
    grouped = frame.filter(pl.col("x") >= 0, pl.col("y") >= 0).group_by("x", "y")
    cells = grouped.agg(pl.len().alias("settings"), *counts, *figures, *missing).sort("x", "y")
    cells = cells.with_columns(dominant(cells).alias("outcome"))
    most = pl.max_horizontal(f"n|{name}" for name in OUTCOMES)
    return cells.with_columns((most / pl.col("rows")).alias("share"))
