"""What an axis changes: paired differences under common random numbers, with 95 % intervals over seeds.

Rows that agree in everything but the axis are a pair: the same requests at the same times, so that what both
configurations have in common cancels. Each seed gives one number, the mean difference of its pairs; the interval is a
bootstrap over seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from fastsim.analysis.compare.bootstrap import Float64Array, mean_intervals, ratio_intervals, two_groups
from fastsim.analysis.compare.metrics import DEFAULT_METRICS, better, null_is_infinite
from fastsim.analysis.compare.rows import SEED, Rows, check_axes, level_text, levels_of, read_rows
from fastsim.analysis.cost import Price
from fastsim.errors import InputError

__all__ = ["SEED", "Rows", "compare", "level_text"]

BETTER, WORSE, MORE, LESS, NONE, ONE_SEED = "better", "worse", "more", "less", "no difference shown", "one seed"
NO_PAIR = "no pair"

SCHEMA = {
    "level": pl.String,
    "baseline": pl.String,
    "metric": pl.String,
    "pairs": pl.Int64,
    "pairs_null": pl.Int64,
    "seeds": pl.Int64,
    "baseline_mean": pl.Float64,
    "level_mean": pl.Float64,
    "difference": pl.Float64,
    "difference_low": pl.Float64,
    "difference_high": pl.Float64,
    "relative": pl.Float64,
    "relative_low": pl.Float64,
    "relative_high": pl.Float64,
    "wins": pl.Float64,
    "two_groups": pl.Boolean,
    "verdict": pl.String,
    "rows_used": pl.Int64,
    "rows_present": pl.Int64,
}


@dataclass(frozen=True)
class _Plan:
    by: str
    levels: list[Any]  # the baseline first
    metrics: list[str]
    for_each: list[str]
    cells: list[str]  # the axes that pairs agree in, without seed and for_each


def compare(
    rows: Rows,
    by: str,
    metrics: Sequence[str] = DEFAULT_METRICS,
    baseline: Any = None,
    for_each: Sequence[str] = (),
    price: Price | None = None,
) -> pl.DataFrame:
    """Paired differences of every level of an axis to a baseline level.

    Parameters
    ----------
    rows
        A sweep's folder, or its rows.
    by
        The axis: a column with a dot in its name, such as `engine.watermark` or `choice.remedy`.
    metrics
        Result columns, numbers or yes/no (which count as 1 and 0).
    baseline
        A value of the axis, or its text; by default the value of the first row.
    for_each
        Axes whose values are compared apart.
    price
        What a GPU hour costs: the metric `cost_per_million_output_tokens` can be asked for with it.

    Returns
    -------
    pl.DataFrame
        One row a metric and level (and value of `for_each`, whose columns come first):

        ============================= ======= =========================================================================
        level, baseline, metric       String
        pairs                         Int64   pairs in which both have a value (in a percentile null is infinite, and
                                              that is one)
        pairs_null                    Int64   pairs with a null on either side; no difference can be taken of them
        seeds                         Int64   seeds with a pair
        baseline_mean, level_mean     Float64 over the pairs without null, each seed counting alike
        difference, _low, _high       Float64 level less baseline, in the metric's unit, with its 95 % interval
        relative, _low, _high         Float64 level_mean / baseline_mean - 1, with its 95 % interval
        wins                          Float64 share of pairs in which the level has more, less the share in which it has
                                              less; from -1 to 1
        two_groups                    Boolean the seeds of either level, or of the difference, fall in two groups: the
                                              interval says less than it seems to (see `bootstrap.two_groups`)
        verdict                       String  better, worse (for metrics without a better side: more, less), no
                                              difference shown: whether the interval excludes 0; `one seed` where
                                              there is no interval, `no pair` where no row of the level has a partner
        rows_used, rows_present       Int64   of the whole table: rows in any pair, of those that there are
        ============================= ======= =========================================================================

        A percentile that is null in some pair, and so infinite, is judged by the interval of `wins`; means and
        differences are of the pairs without null.

    Raises
    ------
    InputError
        When the axis, a metric or the baseline is not there, or two rows are the same configuration.
    """
    table = read_rows(rows, metrics, price)
    check_axes(table, [by], for_each)
    levels = levels_of(table, by, baseline)
    cells = [name for name in table.axes if name not in (by, *for_each)]
    return _compared(table.frame, _Plan(by, levels, table.metrics, list(for_each), cells))


def _compared(table: pl.DataFrame, plan: _Plan) -> pl.DataFrame:
    """Every level but the baseline against it, as one table."""
    keys = [*plan.for_each, *plan.cells, SEED]
    base = table.filter(pl.col(plan.by).eq_missing(plan.levels[0])).drop(plan.by)
    frames, paired = [], []
    for level in plan.levels[1:]:
        mine = table.filter(pl.col(plan.by).eq_missing(level)).drop(plan.by)
        pairs = mine.join(base, on=keys, how="inner", suffix="|base", nulls_equal=True, maintain_order="left")
        paired.append(pairs.select(keys))
        frames += [_of_group(group, plan, level) for group in _groups(pairs, plan) if group.height]
        frames.append(_without_pairs(mine, pairs, plan, level))
    found = pl.concat(paired)
    if not found.height:
        raise InputError(f"no two rows agree in everything but {plan.by}, so there is nothing to compare")
    used = found.height + found.unique().height
    counts = pl.lit(used, pl.Int64).alias("rows_used"), pl.lit(table.height, pl.Int64).alias("rows_present")
    return _in_order(pl.concat(frames).with_columns(counts), plan)


def _groups(pairs: pl.DataFrame, plan: _Plan) -> list[pl.DataFrame]:
    return pairs.partition_by(plan.for_each, maintain_order=True) if plan.for_each else [pairs]


def _without_pairs(mine: pl.DataFrame, pairs: pl.DataFrame, plan: _Plan, level: Any) -> pl.DataFrame:
    """A level in the groups where no row of it has a partner: nothing is known of it there."""
    groups: list[dict[str, Any]] = [] if pairs.height else [{}]
    if plan.for_each:
        there = mine.select(plan.for_each).unique(maintain_order=True)
        alone = there.join(pairs, on=plan.for_each, how="anti", nulls_equal=True, maintain_order="left")
        groups = alone.to_dicts()
    known: dict[str, Any] = {"level": level_text(level), "baseline": level_text(plan.levels[0]), "verdict": NO_PAIR}
    known |= dict.fromkeys(("pairs", "pairs_null", "seeds"), 0)
    records = [group | known | {"metric": metric} for group in groups for metric in plan.metrics]
    schema: dict[str, Any] = {name: mine.schema[name] for name in plan.for_each}
    return pl.DataFrame(records, schema=schema | SCHEMA)


def _in_order(out: pl.DataFrame, plan: _Plan) -> pl.DataFrame:
    """Groups in their own order, then metrics, then levels as they came."""
    order = pl.Enum(plan.metrics)
    return out.sort([*plan.for_each, pl.col("metric").cast(order)], maintain_order=True)


def _of_group(pairs: pl.DataFrame, plan: _Plan, level: Any) -> pl.DataFrame:
    """One level against the baseline within one group: a row a metric."""
    seeds = _per_seed(pairs, plan.metrics)
    values = {name: seeds.select(f"{m}|{name}" for m in plan.metrics).to_numpy().astype(np.float64) for name in _PARTS}
    difference = mean_intervals(values["difference"])
    relative = ratio_intervals(values["level"], values["base"])
    wins = mean_intervals(values["wins"])
    grouped = two_groups(values["difference"]) | two_groups(values["level"]) | two_groups(values["base"])
    records = []
    for k, metric in enumerate(plan.metrics):
        nulls = int(seeds[f"{metric}|nulls"].sum())
        counts = int(seeds[f"{metric}|pairs"].sum())
        by_wins = nulls > 0 and null_is_infinite(metric)
        judged = wins if by_wins else difference
        records.append(
            {name: pairs[name][0] for name in plan.for_each}
            | {
                "level": level_text(level),
                "baseline": level_text(plan.levels[0]),
                "metric": metric,
                "pairs": counts,
                "pairs_null": nulls,
                "seeds": int((seeds[f"{metric}|pairs"] > 0).sum()),
                "baseline_mean": _mean(values["base"][:, k]),
                "level_mean": _mean(values["level"][:, k]),
                **_interval("difference", difference, k),
                **_interval("relative", relative, k),
                "wins": _plain(wins[0][k]),
                "two_groups": bool(grouped[k]),
                "verdict": _verdict(metric, judged[1][k], judged[2][k]),
            }
        )
    schema: dict[str, Any] = {name: pairs.schema[name] for name in plan.for_each}
    return pl.DataFrame(records, schema=schema | SCHEMA)


_PARTS = ("difference", "level", "base", "wins")


def _per_seed(pairs: pl.DataFrame, metrics: Sequence[str]) -> pl.DataFrame:
    """Means over the pairs of each seed."""
    columns = []
    for name in metrics:
        level, base = pl.col(name), pl.col(f"{name}|base")
        both = level.is_not_null() & base.is_not_null()
        if null_is_infinite(name):  # more than any number, and as much as each other
            wins = (level.fill_null(np.inf) > base.fill_null(np.inf)).cast(pl.Float64) - (
                level.fill_null(np.inf) < base.fill_null(np.inf)
            ).cast(pl.Float64)
            counted = pl.len()
        else:
            wins = pl.when(both).then((level - base).sign())
            counted = both.sum()
        columns += [
            (level - base).mean().alias(f"{name}|difference"),
            level.filter(both).mean().alias(f"{name}|level"),
            base.filter(both).mean().alias(f"{name}|base"),
            wins.mean().alias(f"{name}|wins"),
            (~both).sum().cast(pl.Int64).alias(f"{name}|nulls"),
            counted.cast(pl.Int64).alias(f"{name}|pairs"),
        ]
    # group_by keeps no order, and a sum over seeds must not depend on one
    return pairs.group_by(SEED).agg(columns).sort(SEED)


def _verdict(metric: str, low: float, high: float) -> str:
    if not (np.isfinite(low) and np.isfinite(high)):
        return ONE_SEED
    if low <= 0 <= high:
        return NONE
    way = better(metric)
    if way == 0:
        return MORE if low > 0 else LESS
    return BETTER if (low > 0) == (way > 0) else WORSE


def _interval(name: str, intervals: tuple[Float64Array, Float64Array, Float64Array], k: int) -> dict[str, Any]:
    mean, low, high = intervals
    return {name: _plain(mean[k]), f"{name}_low": _plain(low[k]), f"{name}_high": _plain(high[k])}


def _mean(values: Float64Array) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
