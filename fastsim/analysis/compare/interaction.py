"""Whether what one axis changes depends on another: differences of paired differences, with 95 % intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from fastsim.analysis.compare.bootstrap import Float64Array, mean_intervals
from fastsim.analysis.compare.metrics import DEFAULT_METRICS, null_is_infinite
from fastsim.analysis.compare.rows import SEED, Rows, check_axes, level_text, levels_of, read_rows
from fastsim.analysis.cost import Price
from fastsim.errors import InputError

REVERSES, DEPENDS, NONE, ONE_SEED = "reverses", "depends", "no dependence shown", "one seed"

SCHEMA = {
    "level": pl.String,
    "baseline": pl.String,
    "with_level": pl.String,
    "with_baseline": pl.String,
    "metric": pl.String,
    "pairs": pl.Int64,
    "pairs_null": pl.Int64,
    "seeds": pl.Int64,
    "effect_at_baseline": pl.Float64,
    "effect_at_baseline_low": pl.Float64,
    "effect_at_baseline_high": pl.Float64,
    "effect": pl.Float64,
    "effect_low": pl.Float64,
    "effect_high": pl.Float64,
    "interaction": pl.Float64,
    "interaction_low": pl.Float64,
    "interaction_high": pl.Float64,
    "wins": pl.Float64,
    "verdict": pl.String,
    "rows_used": pl.Int64,
    "rows_present": pl.Int64,
}
_EFFECTS = ("effect_at_baseline", "effect", "interaction")
_KEYS = ("level", "baseline", "with_level", "with_baseline")


@dataclass(frozen=True)
class _InteractionPlan:
    by: str
    other: str
    metrics: list[str]
    for_each: list[str]
    keys: list[str]  # what the four rows of a quadruple agree in


def interaction(
    rows: Rows,
    by: str,
    other: str,
    metrics: Sequence[str] = DEFAULT_METRICS,
    baseline: Any = None,
    other_baseline: Any = None,
    for_each: Sequence[str] = (),
    price: Price | None = None,
) -> pl.DataFrame:
    """Whether the effect of an axis depends on another one.

    The effect of a level of `by` is its paired difference to the baseline. The interaction is that effect at a level of
    `other`, less the effect at the baseline of `other`: of four rows that agree in everything else, seed included.

    Parameters
    ----------
    rows
        A sweep's folder, or its rows.
    by, other
        Two axes.
    metrics
        Result columns, numbers or yes/no (which count as 1 and 0).
    baseline, other_baseline
        A value of either axis, or its text; by default that of the first row.
    for_each
        Axes whose values are judged apart.
    price
        What a GPU hour costs, for the metric `cost_per_million_output_tokens`.

    Returns
    -------
    pl.DataFrame
        One row a metric, level of `by` and level of `other` (and value of `for_each`, whose columns come first):

        =================================== ======= ===================================================================
        level, baseline                     String  of `by`
        with_level, with_baseline           String  of `other`
        metric                              String
        pairs                               Int64   quadruples in which all four have a value (in a percentile null is
                                                    infinite, and that is one)
        pairs_null                          Int64   quadruples with a null
        seeds                               Int64   seeds with a quadruple
        effect_at_baseline, _low, _high     Float64 level less baseline where `other` is at its baseline
        effect, _low, _high                 Float64 the same at `with_level`
        interaction, _low, _high            Float64 `effect` less `effect_at_baseline`, with its 95 % interval
        wins                                Float64 share of pairs in which the level has more less the share in which
                                                    it has less, at `with_level`, less the same at the baseline
        verdict                             String  `reverses` (it depends, and both effects exclude 0, to different
                                                    sides), `depends`, `no dependence shown`: whether the interval of
                                                    the interaction excludes 0; `one seed` where there is none
        rows_used, rows_present             Int64   of the whole table: rows in any quadruple, of those that there are
        =================================== ======= ===================================================================

        A percentile that is null in some quadruple, and so infinite, is judged by the interval of `wins`.

    Raises
    ------
    InputError
        When an axis, a metric or a baseline is not there, or two rows are the same configuration.
    """
    table = read_rows(rows, metrics, price)
    check_axes(table, [by, other], for_each)
    levels, others = levels_of(table, by, baseline), levels_of(table, other, other_baseline)
    keys = [*(name for name in table.axes if name not in (by, other)), SEED]
    plan = _InteractionPlan(by, other, table.metrics, list(for_each), keys)
    frames = []
    used: list[pl.DataFrame] = []
    for level in levels[1:]:
        at_baseline = _pairs(table.frame, plan, (level, levels[0]), others[0])
        for other_level in others[1:]:
            here = _pairs(table.frame, plan, (level, levels[0]), other_level)
            four = here.join(at_baseline, on=keys, how="inner", suffix="|0", nulls_equal=True, maintain_order="left")
            used += [_corner(four, plan, *corner) for corner in product((level, levels[0]), (other_level, others[0]))]
            names = dict(zip(_KEYS, map(level_text, (level, levels[0], other_level, others[0])), strict=True))
            groups = four.partition_by(plan.for_each, maintain_order=True) if for_each else [four]
            frames += [_judged(group, plan, names) for group in groups if group.height]
    if not frames:
        raise InputError(f"no four rows agree in everything but {by} and {other}, so there is nothing to compare")
    counts = pl.concat(used).unique().height, table.frame.height
    found = pl.concat(frames).with_columns(
        pl.lit(count, pl.Int64).alias(name) for name, count in zip(("rows_used", "rows_present"), counts, strict=True)
    )
    return found.sort([*for_each, pl.col("metric").cast(pl.Enum(table.metrics))], maintain_order=True)


def _corner(four: pl.DataFrame, plan: _InteractionPlan, level: Any, other_level: Any) -> pl.DataFrame:
    """One row of each quadruple, by what names it."""
    corner = pl.lit(level_text(level)).alias("|by"), pl.lit(level_text(other_level)).alias("|with")
    return four.select(*plan.keys, *corner)


def _pairs(frame: pl.DataFrame, plan: _InteractionPlan, levels: tuple[Any, Any], other_level: Any) -> pl.DataFrame:
    """Rows of a level beside those of the baseline (`|base`), at one level of the other axis."""
    here = frame.filter(pl.col(plan.other).eq_missing(other_level)).drop(plan.other)
    mine, base = (here.filter(pl.col(plan.by).eq_missing(level)).drop(plan.by) for level in levels)
    return mine.join(base, on=plan.keys, how="inner", suffix="|base", nulls_equal=True, maintain_order="left")


def _judged(four: pl.DataFrame, plan: _InteractionPlan, names: dict[str, str]) -> pl.DataFrame:
    """One combination of levels within one group: a row a metric."""
    columns = [column for metric in plan.metrics for column in _of_pairs(metric)]
    # group_by keeps no order, and a sum over seeds must not depend on one
    seeds = four.group_by(SEED).agg(columns).sort(SEED)
    found = {
        part: mean_intervals(seeds.select(f"{m}|{part}" for m in plan.metrics).to_numpy().astype(np.float64))
        for part in (*_EFFECTS, "wins")
    }
    records = []
    for k, metric in enumerate(plan.metrics):
        nulls = int(seeds[f"{metric}|nulls"].sum())
        by_wins = nulls > 0 and null_is_infinite(metric)
        record: dict[str, Any] = {name: four[name][0] for name in plan.for_each} | names | {"metric": metric}
        record |= {
            "pairs": int(seeds[f"{metric}|pairs"].sum()),
            "pairs_null": nulls,
            "seeds": int((seeds[f"{metric}|pairs"] > 0).sum()),
        }
        for part in _EFFECTS:
            ends = zip(("", "_low", "_high"), found[part], strict=True)
            record |= {f"{part}{end}": _plain(values[k]) for end, values in ends}
        judged = found["wins"] if by_wins else found["interaction"]
        record |= {"wins": _plain(found["wins"][0][k]), "verdict": _verdict(judged, found, by_wins, k)}
        records.append(record)
    schema: dict[str, Any] = {name: four.schema[name] for name in plan.for_each}
    return pl.DataFrame(records, schema=schema | SCHEMA)


def _of_pairs(metric: str) -> list[pl.Expr]:
    """Means over a seed's quadruples."""
    four = [pl.col(f"{metric}{suffix}") for suffix in ("", "|base", "|0", "|base|0")]
    known = pl.all_horizontal(column.is_not_null() for column in four)
    there, at_baseline = four[0] - four[1], four[2] - four[3]
    infinite = null_is_infinite(metric)
    ordered = [column.fill_null(np.inf) for column in four] if infinite else four
    wins = _sign(ordered[0], ordered[1]) - _sign(ordered[2], ordered[3])
    return [
        at_baseline.filter(known).mean().alias(f"{metric}|effect_at_baseline"),
        there.filter(known).mean().alias(f"{metric}|effect"),
        (there - at_baseline).mean().alias(f"{metric}|interaction"),
        wins.mean().alias(f"{metric}|wins"),
        (~known).sum().cast(pl.Int64).alias(f"{metric}|nulls"),
        (pl.len() if infinite else known.sum()).cast(pl.Int64).alias(f"{metric}|pairs"),
    ]


def _sign(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    """1 where a is more, -1 where it is less; infinite on both sides is a tie."""
    return (a > b).cast(pl.Float64) - (a < b).cast(pl.Float64)


Intervals = tuple[Float64Array, Float64Array, Float64Array]


def _verdict(judged: Intervals, found: dict[str, Intervals], by_wins: bool, k: int) -> str:
    side = _side(judged, k)
    if side is None:
        return ONE_SEED
    if side == 0:
        return NONE
    sides = [_side(found[part], k) for part in ("effect", "effect_at_baseline")]
    return REVERSES if not by_wins and sorted(sides, key=lambda s: s or 0) == [-1, 1] else DEPENDS


def _side(intervals: Intervals, k: int) -> int | None:
    """On which side of 0 an interval lies: 0 when it holds it, None when there is none."""
    _, low, high = (values[k] for values in intervals)
    if not (np.isfinite(low) and np.isfinite(high)):
        return None
    return int(low > 0) - int(high < 0)


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
