"""How much chance there is: a metric of the best settings, seed by seed."""

from dataclasses import dataclass

import polars as pl

from fastsim.analysis.compare.paired import SEED
from fastsim.analysis.report.rows import ERROR, SweepReport

MOST_SETTINGS, MOST_SEEDS = 20, 100


@dataclass(frozen=True)
class Spread:
    """A metric by setting and seed.

    `settings` are rows of the sweep's table in the order shown; `points` has `setting` (index into it), `value` (null:
    not reached, or failed) and `outcome`.
    """

    metric: str
    settings: pl.DataFrame
    points: pl.DataFrame
    by_load: bool
    seeds_shown: int


def spread(sweep: SweepReport, metric: str) -> Spread | None:
    """The best setting of each value of the question's `for_each`, or the best settings; None with one seed."""
    if sweep.seeds < 2 or metric not in sweep.metrics:
        return None
    names = [axis.name for axis in sweep.axes]
    ranked = sweep.ranked
    groups = [name for name in sweep.question.for_each if name in names]
    by_load = bool(groups) and len(groups) < len(names)
    if by_load:
        ranked = ranked.unique(groups, keep="first", maintain_order=True).sort(groups)
    shown = ranked.head(MOST_SETTINGS).with_row_index("setting")
    if by_load and ranked.height > MOST_SETTINGS:
        picks = [k * (ranked.height - 1) // (MOST_SETTINGS - 1) for k in range(MOST_SETTINGS)]
        shown = ranked.gather(picks).with_row_index("setting")
    wanted = sweep.rows.select(*names, SEED, "outcome", pl.col(metric).cast(pl.Float64).alias("value"))
    keys = shown.select(*names, "setting").lazy()
    if names:
        points = wanted.join(keys, on=names, how="inner", nulls_equal=True)
    else:
        points = wanted.with_columns(pl.lit(0, pl.UInt32).alias("setting"))
    seeds = sweep.rows.select(pl.col(SEED).unique().sort().head(MOST_SEEDS))
    points = points.join(seeds, on=SEED, how="semi").sort("setting", SEED)
    points = points.select("setting", "value", "outcome")
    points = points.with_columns(pl.when(pl.col("outcome") != ERROR).then("value").alias("value"))
    return Spread(metric, shown, points.collect(), by_load, min(sweep.seeds, MOST_SEEDS))
