"""The rows that comparisons work on: axes, seeds and metrics, checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import polars as pl

from fastsim.analysis.compare.metrics import is_comparable
from fastsim.analysis.cost import COST, THROUGHPUT, Price
from fastsim.errors import InputError
from fastsim.metrics.columns import DID_NOT_RUN
from fastsim.metrics.names import column_or_error, split_class
from fastsim.sweeps.store.scan import scan

SEED = "workload.seed"
Rows = pl.DataFrame | pl.LazyFrame | str | Path


@dataclass(frozen=True)
class SweepRows:
    """Rows of a sweep: `axes` (all but the seed), the seed (0 where none is swept) and `metrics`, as float64."""

    frame: pl.DataFrame
    axes: list[str]
    metrics: list[str]


def read_rows(rows: Rows, metrics: Sequence[str], price: Price | None = None) -> SweepRows:
    """Axes, seed and metrics of a sweep's folder or rows; rows that did not run are left out: they say nothing.

    Raises
    ------
    InputError
        When a metric is not there or cannot be compared, or two rows are the same configuration.
    """
    frame = scan(rows) if isinstance(rows, str | Path) else rows.lazy()
    names = frame.collect_schema().names()
    wanted = list(dict.fromkeys(metrics))
    for name in wanted:
        _check_metric(name, names, price)
    columns = [price.expression() if name == COST and price else pl.col(name).cast(pl.Float64) for name in wanted]
    if "status" in names:
        frame = frame.filter(~pl.col("status").cast(pl.String).is_in(DID_NOT_RUN))
    keys = [name for name in names if "." in name]
    workload = [name for name in names if name == "workload_id"]
    table = frame.select(*keys, *columns, *workload).collect()
    if SEED not in keys:
        table = table.with_columns(pl.lit(0).alias(SEED))
    axes = [name for name in keys if name != SEED]
    if workload:
        table = _without_repeats(table, axes, wanted).drop(*workload)
    if table.select(*axes, SEED).is_duplicated().any():
        raise InputError("two rows are the same configuration, but the rows of one sweep were expected")
    return SweepRows(table, axes, wanted)


def _without_repeats(table: pl.DataFrame, axes: list[str], metrics: list[str]) -> pl.DataFrame:
    """The first seed alone where seeds change nothing, as with a trace: repeats are no evidence."""
    one = pl.struct("workload_id", *metrics).n_unique() == 1
    same = table.group_by(axes or pl.lit(0)).agg(one.alias("same"))["same"].all()
    return table.filter(pl.col(SEED) == pl.col(SEED).min()) if same else table


def _check_metric(name: str, names: list[str], price: Price | None) -> None:
    if name == COST:
        if price is None:
            raise InputError(f"metric {COST} without a price, but --gpu-hour-price was expected with it")
        name = THROUGHPUT
    column = column_or_error(name, names) if split_class(name)[1] else column_or_error(name)
    if not is_comparable(column):
        raise InputError(f"metric {name} is a label ({', '.join(column.labels)}), but a number was expected")
    if name not in names:
        raise InputError(f"metric {name} is not a column of these rows")


def check_axes(table: SweepRows, by: Sequence[str], for_each: Sequence[str]) -> None:
    """Each must be an axis, none the seed, and none in both places."""
    for name in (*by, *for_each):
        if name == SEED:
            raise InputError(f"{SEED} is what intervals are taken over, but another axis was expected")
        if name not in table.axes:
            near = get_close_matches(name, table.axes, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InputError(f"{name} is not an axis of these rows (their axes: {_listed(table)}){hint}")
    names = [*by, *for_each]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{twice} is compared, but another axis was expected in a second place")


def _listed(table: SweepRows) -> str:
    return ", ".join(table.axes) or "none"


def levels_of(table: SweepRows, by: str, baseline: Any) -> list[Any]:
    """The values of the axis in the order of the rows, the baseline first.

    Raises
    ------
    InputError
        When there is one value only, or the baseline is none of them.
    """
    levels = table.frame[by].unique(maintain_order=True).to_list()
    if len(levels) < 2:
        raise InputError(f"{by} has one value, but at least two were expected to compare")
    if baseline is None:
        return levels
    found = [level for level in levels if level == baseline or level_text(level) == level_text(baseline)]
    if not found:
        raise InputError(f"baseline {baseline} is not a value of {by}: {', '.join(map(level_text, levels))}")
    return [found[0], *(level for level in levels if level is not found[0])]


def level_text(value: Any) -> str:
    """A value of an axis as text: `0.05`, `true`, `none`."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
