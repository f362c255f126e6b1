"""The settings that no other one beats in two metrics at once, and how sure that is over seeds."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from fastsim.analysis.compare.bootstrap import Float64Array, resample_counts
from fastsim.analysis.compare.metrics import better, null_is_infinite
from fastsim.analysis.compare.rows import SEED, Rows, SweepRows, check_axes, read_rows
from fastsim.analysis.cost import Price
from fastsim.errors import InputError
from fastsim.sweeps.store.scan import scan

RESAMPLES = 500
ROWS = "n|rows"
_AIM = re.compile(r"\s*(?:(least|most)\s+)?(\S+)\s*")


@dataclass(frozen=True)
class Aim:
    """A metric and which way it is better."""

    metric: str
    most: bool

    def __str__(self) -> str:
        return f"{'most' if self.most else 'least'} {self.metric}"


def read_aims(texts: Sequence[str]) -> list[Aim]:
    """Two aims: metrics, each with `least` or `most` before it where it has no better side of its own.

    Raises
    ------
    InputError
        When they are not two different metrics, or one has no better side and none is said.
    """
    if len(texts) != 2:
        raise InputError(f"--pareto {','.join(texts)}, but two metrics were expected, as M1,M2")
    aims = []
    for text in texts:
        match = _AIM.fullmatch(text)
        if match is None:
            raise InputError(f"--pareto {text!r}, but METRIC, least METRIC or most METRIC was expected")
        word, metric = match.groups()
        way = better(metric) if word is None else 1 if word == "most" else -1
        if way == 0:
            raise InputError(f"--pareto {metric} has no better side, but 'least {metric}' or 'most {metric}' does")
        aims.append(Aim(metric, way > 0))
    if aims[0].metric == aims[1].metric:
        raise InputError(f"--pareto names {aims[0].metric} twice, but two metrics were expected")
    return aims


def pareto(
    rows: Rows,
    aims: Sequence[Aim],
    by: Sequence[str] = (),
    for_each: Sequence[str] = (),
    price: Price | None = None,
) -> pl.DataFrame:
    """Settings with the means of two metrics over seeds, and which of them are on the Pareto front.

    A setting is on the front when none is at least as good in both metrics and better in one.

    Parameters
    ----------
    rows
        A sweep's folder, or its rows.
    aims
        Two, from `read_aims`.
    by
        The axes that make a setting; each is judged by the mean over all others. By default all but `for_each`.
    for_each
        Axes with a front for each of their values.
    price
        What a GPU hour costs, for the metric `cost_per_million_output_tokens`.

    Returns
    -------
    pl.DataFrame
        A row a setting, the front first, from the best of the first metric on:

        =================== ======= ===================================================================================
        axes                        of `for_each`, then the setting's
        two metrics         Float64 means, each seed counting alike; infinite where a percentile is null in some row
        on_front            Boolean
        front_share         Float64 share of 500 resamples of the seeds in which it is on the front: the same seeds for
                                    all settings, so that what they share cancels; null with one seed
        rows_used, ..._present Int64 of the whole table: rows of these settings, of those that there are
        =================== ======= ===================================================================================

        Settings that lack a seed which others have, or a value that is not a percentile, are left out.

    Raises
    ------
    InputError
        When an axis or a metric is not there, or no setting is left.
    """
    table = read_rows(rows, [aim.metric for aim in aims], price)
    check_axes(table, by, for_each)
    axes = list(by) or [name for name in table.axes if name not in for_each]
    if not axes:
        raise InputError("these rows have no axis but the seed and for_each, but one was expected to choose from")
    settings = _per_seed(table, axes, list(for_each))
    groups = settings.partition_by(list(for_each), maintain_order=True) if for_each else [settings]
    used, present = int(settings[ROWS].sum()), table.frame.height
    counts = pl.lit(used, pl.Int64).alias("rows_used"), pl.lit(present, pl.Int64).alias("rows_present")
    return pl.concat([_judged(group, aims) for group in groups]).drop(ROWS).with_columns(counts)


def mixed_loads(rows: Rows, for_each: Sequence[str] = ()) -> list[str]:
    """The axes of traffic, `workload.*`, that have several values in the rows and none of their own front."""
    frame = scan(rows) if isinstance(rows, str | Path) else rows.lazy()
    names = [
        name
        for name in frame.collect_schema().names()
        if name.startswith("workload.") and name not in (SEED, *for_each)
    ]
    counts = frame.select(pl.col(name).n_unique() for name in names).collect()
    return [name for name in names if counts[name].item() > 1]


def _per_seed(table: SweepRows, axes: list[str], for_each: list[str]) -> pl.DataFrame:
    """One row a setting; each metric a list with the mean of each seed, in the order of the seeds."""
    values = [
        (pl.col(name).fill_null(np.inf) if null_is_infinite(name) else pl.col(name)).alias(name)
        for name in table.metrics
    ]
    keys = [*for_each, *axes]
    seeds = table.frame.group_by([*keys, SEED], maintain_order=True).agg(
        *(value.mean() for value in values),
        pl.any_horizontal(value.is_null().any() for value in values).alias("missing"),
        pl.len().cast(pl.Int64).alias(ROWS),
    )
    lists = (
        seeds.sort(SEED, maintain_order=True)
        .group_by(keys, maintain_order=True)
        .agg(*table.metrics, pl.col("missing").any(), pl.col(ROWS).sum())
    )
    order = seeds.select(keys).unique(maintain_order=True)
    settings = order.join(lists, on=keys, nulls_equal=True, maintain_order="left")
    whole = pl.col(table.metrics[0]).list.len() == table.frame[SEED].n_unique()
    kept = settings.filter(whole & ~pl.col("missing")).drop("missing")
    if kept.is_empty():
        raise InputError(f"no setting has {' and '.join(table.metrics)} for every seed, but one was expected")
    return kept


def _judged(settings: pl.DataFrame, aims: Sequence[Aim]) -> pl.DataFrame:
    """Means, front and shares of one group."""
    values = [np.array(settings[aim.metric].to_list(), np.float64) for aim in aims]  # (settings, seeds)
    seeds = values[0].shape[1]
    on_front = front(*(_cost(value.mean(axis=1), aim) for value, aim in zip(values, aims, strict=True)))
    share = _front_share(values, aims) if seeds > 1 else [None] * settings.height
    out = settings.with_columns(
        *(pl.col(aim.metric).list.mean() for aim in aims),
        pl.Series("on_front", on_front),
        pl.Series("front_share", share, pl.Float64),
    )
    first = aims[0]
    return out.sort(["on_front", first.metric], descending=[True, first.most], maintain_order=True)


def _front_share(values: list[Float64Array], aims: Sequence[Aim]) -> Float64Array:
    """In what share of resamples of the seeds each setting is on the front."""
    counts = resample_counts(values[0].shape[1], RESAMPLES)
    weights = counts / counts.sum(axis=1, keepdims=True)
    hits = np.zeros(len(values[0]))
    for weight in weights:
        drawn = weight > 0  # infinity times no draw is no number
        costs = [_cost(v[:, drawn] @ weight[drawn], aim) for v, aim in zip(values, aims, strict=True)]
        hits += front(*costs)
    return hits / RESAMPLES


def _cost(values: Float64Array, aim: Aim) -> Float64Array:
    return -values if aim.most else values


def front(first: Float64Array, second: Float64Array) -> npt.NDArray[np.bool_]:
    """Which points no other one dominates, less being better; bool, shape as the points'. Equal points are all in."""
    order = np.lexsort((second, first))
    a, b = first[order], second[order]
    least_before = np.minimum.accumulate(np.concatenate([[np.inf], b[:-1]]))
    starts = np.concatenate([[True], a[1:] != a[:-1]])
    start = np.maximum.accumulate(np.where(starts, np.arange(len(a)), 0))
    # Of points that share the first coordinate only those with the least second one can be in
    inside = (b == b[start]) & ((b < least_before[start]) | (start == 0))
    out = np.zeros(len(a), np.bool_)
    out[order] = inside
    return out
