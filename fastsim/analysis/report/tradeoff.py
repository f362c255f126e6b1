"""Trade-offs: two metrics of every setting, and those that no other beats in both (the Pareto front)."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from fastsim.analysis.cost import COST
from fastsim.analysis.report.rows import PER_USER, ReportAxis, SweepReport

MOST_POINTS = 1000
MOST_LOADS = 12

PAIRS = (
    ("output_throughput_tok_per_s", PER_USER, None),
    ("output_throughput_tok_per_s", "ttft_p99_ms", "ttft_served_p99_ms"),
    ("output_throughput_tok_per_s", "tpot_p99_ms", "tpot_served_p99_ms"),
    ("output_throughput_tok_per_s", "recomputed_share", None),
    (COST, "ttft_p99_ms", "ttft_served_p99_ms"),
)
"""x, y, and what stands in for y where it is null in every setting: the survivors' figure."""


@dataclass(frozen=True)
class TradeOff:
    """Two metrics by setting.

    `points` has `x` and `y` (null: not reached), `outcome`, `load` (an index into `loads`, null without them), `front`
    (whether no setting of its load beats it in both), `config_id` and the axes. `y_wanted` is what was to be shown
    where `y` stands in for it. Of all `settings` with an x, `lost` have no y.
    """

    x: str
    y: str
    y_wanted: str
    loads: list[str]
    load_axes: tuple[str, ...]
    settings: int
    lost: int
    points: pl.DataFrame

    @property
    def thinned(self) -> bool:
        """Whether points were left out."""
        return self.points.height < self.settings


def trade_offs(sweep: SweepReport) -> list[TradeOff]:
    """Throughput against latencies and waste; with a price, cost against TTFT."""
    names, loads, column = _loads(sweep)
    found = []
    for x, wanted, instead in PAIRS:
        if x not in sweep.metrics or wanted not in sweep.metrics:
            continue
        y = wanted
        if instead is not None and instead in sweep.metrics and sweep.settings[wanted].null_count() == len(column):
            y = instead
        frame = sweep.settings.select(
            pl.col(x).alias("x"), pl.col(y).alias("y"), "outcome", "config_id", *(axis.name for axis in sweep.axes)
        ).with_columns(column)
        frame = frame.filter(pl.col("x").is_not_null())
        if frame.is_empty():
            continue
        front = _front(frame, sweep.more_is_better(x), sweep.more_is_better(y))
        frame = frame.with_columns(pl.Series("front", front, pl.Boolean))
        found.append(TradeOff(x, y, wanted, loads, names, frame.height, frame["y"].null_count(), _thin(frame)))
    return found


def _loads(sweep: SweepReport) -> tuple[tuple[str, ...], list[str], pl.Series]:
    """The loads that settings are compared under: the axes that change the requests.

    Where they are more than a reader can choose from, all settings stand together and no load is named.
    """
    axes = [axis for axis in sweep.axes if axis.name in sweep.load_axes]
    none = pl.Series("load", [None] * sweep.settings.height, pl.Int64)
    if not axes:
        return (), [], none
    names = [axis.name for axis in axes]
    groups = sweep.settings.select(names).unique(maintain_order=True).sort(names)
    if groups.height > MOST_LOADS and len(axes) > 1:
        axes = axes[:1]
        names = [axes[0].name]
        groups = sweep.settings.select(names).unique(maintain_order=True).sort(names)
    if groups.height > 3 * MOST_LOADS:
        return (), [], none
    labels = [_load_label(axes, row) for row in groups.rows()]
    indexed = groups.with_row_index("load").with_columns(pl.col("load").cast(pl.Int64))
    joined = sweep.settings.join(indexed, on=names, how="left", nulls_equal=True, maintain_order="left")
    return tuple(names), labels, joined["load"]


def _load_label(axes: list[ReportAxis], row: tuple[object, ...]) -> str:
    texts = [axis.labels[axis.levels.to_list().index(value)] for axis, value in zip(axes, row, strict=True)]
    return ", ".join(f"{axis.short} {text}" for axis, text in zip(axes, texts, strict=True))


def _front(frame: pl.DataFrame, x_more: bool, y_more: bool) -> list[bool]:
    """Whether no other point of the same load is at least as good in both and better in one; null is on no front."""
    x = frame["x"].to_numpy() * (-1 if x_more else 1)
    y = frame["y"].fill_null(float("nan")).to_numpy() * (-1 if y_more else 1)
    load = frame["load"].fill_null(-1).to_numpy()
    front = np.zeros(len(x), bool)
    best: dict[int, float] = {}
    for k in np.lexsort((y, x)):  # NaN sorts last, so an x of its own comes before it
        if y[k] < best.get(load[k], np.inf):
            best[load[k]] = y[k]
            front[k] = True
    return front.tolist()


def _thin(frame: pl.DataFrame) -> pl.DataFrame:
    """At most so many points: the fronts, then evenly from the others in the order of config_id."""
    if frame.height <= MOST_POINTS:
        return frame
    front = frame.filter("front")
    front = front.gather(np.linspace(0, front.height - 1, min(front.height, MOST_POINTS // 2)).astype(int))
    others = frame.filter(~pl.col("front"))
    picks = np.linspace(0, others.height - 1, min(others.height, MOST_POINTS - front.height)).astype(int)
    return pl.concat([front, others.gather(picks)]).sort("config_id")
