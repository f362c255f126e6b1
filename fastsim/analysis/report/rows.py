"""A sweep's rows by setting: a setting is a combination of all axes but the seed, its figures are means over seeds.

One pass over the parts, by a streaming query that reads only the columns that are shown; everything but the paired
comparison and the spread over seeds is worked out from the table of settings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from fastsim.analysis.compare.metrics import better, null_is_infinite
from fastsim.analysis.compare.paired import SEED, level_text
from fastsim.analysis.cost import COST, Price
from fastsim.analysis.numbers import column_label, short_key
from fastsim.analysis.report.question import MEETS, Question
from fastsim.metrics import by_name
from fastsim.metrics.columns import DID_NOT_RUN, VERDICTS
from fastsim.sweeps.store.scan import scan

ERROR = "error"
OUTCOMES = (*reversed(VERDICTS), ERROR)
"""Verdicts from the best to the worst, then failed rows."""

USUAL = (
    "request_throughput_req_per_s",
    "output_throughput_tok_per_s",
    "goodput_req_per_s",
    "ttft_p50_ms",
    "ttft_p99_ms",
    "ttft_served_p99_ms",
    "tpot_p99_ms",
    "tpot_served_p99_ms",
    "tpot_served_mean_ms",
    "e2e_p50_ms",
    "completed",
    "preemptions",
    "recomputed_share",
    "kv_use_mean",
)
"""Result columns that a report shows, besides those of the question."""

PER_USER = "tok_per_s_per_user"
"""What one user sees: 1000 / mean TPOT, of the requests that were served."""

DEFAULT_OBJECTIVE = ("goodput_req_per_s", True)


@dataclass(frozen=True)
class ReportAxis:
    """An axis with its values in order: numbers ascending, words as the spec has them."""

    name: str
    levels: pl.Series

    @property
    def is_number(self) -> bool:
        """Whether its values are numbers."""
        return self.levels.dtype.is_numeric()

    @cached_property
    def labels(self) -> list[str]:
        """Its values as text, all different."""
        values = self.levels.to_list()
        texts = [level_text(value) for value in values]
        return texts if len(set(texts)) == len(texts) else [repr(value) for value in values]

    @property
    def short(self) -> str:
        """Its name in short."""
        return short_key(self.name)


@dataclass(frozen=True)
class SweepReport:
    """What a report knows of a sweep.

    `settings` has one row a setting: every axis, `config_id` (of its first row), `rows`, `n|OUTCOME` (rows by verdict),
    `outcome` (the most frequent, the worse of two as frequent), and for each metric its mean and `METRIC|null`, how
    many rows that ran have no value. The mean of a percentile that is infinite in one row is infinite: null.
    `load_axes` are those that change the requests, not only how they are served.
    """

    folder: Path
    rows: pl.LazyFrame
    axes: tuple[ReportAxis, ...]
    seeds: int
    metrics: tuple[str, ...]
    settings: pl.DataFrame
    question: Question
    load_axes: tuple[str, ...] = ()

    @property
    def height(self) -> int:
        """How many rows there are."""
        return int(self.settings["rows"].sum())

    @cached_property
    def outcomes(self) -> dict[str, int]:
        """Rows by verdict, the best verdict first; those that no row has are left out."""
        counts = {name: int(self.settings[f"n|{name}"].sum()) for name in OUTCOMES}
        return {name: count for name, count in counts.items() if count}

    @property
    def objectives(self) -> tuple[tuple[str, bool], ...]:
        """What is best: the question's, or the goodput."""
        return self.question.objectives or (DEFAULT_OBJECTIVE,)

    @cached_property
    def ranked(self) -> pl.DataFrame:
        """Settings, the best first: those that meet the conditions, by the objectives; null is worst."""
        keys = [pl.col(MEETS)] if MEETS in self.metrics else []
        keys += [pl.col(name) for name, _ in self.objectives if name in self.metrics]
        descending = [True] * (MEETS in self.metrics)
        descending += [most for name, most in self.objectives if name in self.metrics]
        order = [*keys, pl.col("config_id")]
        return self.settings.sort(order, descending=[*descending, False], nulls_last=True)

    def label(self, metric: str) -> str:
        """A metric in words with its unit."""
        if metric == MEETS:
            return f"share of rows with {self.question.condition_text}"
        own = {COST: "cost per million output tokens", PER_USER: "tokens/s per user"}
        return own.get(metric) or column_label(metric)

    def more_is_better(self, metric: str) -> bool:
        """Which way of a metric is better, by the question where it says so."""
        wanted = dict(self.objectives)
        return wanted[metric] if metric in wanted else metric in (MEETS, PER_USER) or better(metric) > 0


def read_sweep(
    folder: Path, question: Question, gpu_hour_price: float | None = None, rows: pl.LazyFrame | None = None
) -> SweepReport:
    """Read a sweep's folder.

    Parameters
    ----------
    folder
        The folder of the sweep.
    question
        What was asked.
    gpu_hour_price
        What all GPUs of one simulated server cost an hour; adds the metric `COST`.
    rows
        The rows, where they have been looked through already.
    """
    rows = scan(folder) if rows is None else rows
    names = rows.collect_schema().names()
    axis_names = [name for name in names if "." in name and name != SEED]
    wanted = [name for name, _ in question.objectives] + [*question.columns, *USUAL]
    metrics = [name for name in dict.fromkeys(wanted) if name in names and by_name()[name].kind != "code"]
    failed = pl.col("status").cast(pl.String).is_in(DID_NOT_RUN)
    outcome = (
        pl.when(failed | pl.col("verdict").is_null()).then(pl.lit(ERROR)).otherwise(pl.col("verdict").cast(pl.String))
    )
    if question.condition is not None and question.limits:  # what misses the limits is never green
        outcome = (
            pl.when(outcome.is_in(("ok", "drained")) & ~question.condition)
            .then(pl.lit("misses_slo"))
            .otherwise(outcome)
        )
    rows = rows.with_columns(outcome.alias("outcome"))
    if question.condition is not None:
        metrics.insert(0, MEETS)
        rows = rows.with_columns(question.condition.cast(pl.Float64).alias(MEETS))
    settings = _settings(rows, axis_names, metrics, failed)
    if gpu_hour_price is not None:
        cost = Price(gpu_hour_price).expression()
        settings = settings.with_columns(cost, pl.lit(0, pl.Int64).alias(f"{COST}|null"))
        metrics.append(COST)
    if "tpot_served_mean_ms" in metrics:
        per_user = 1000 / pl.when(pl.col("tpot_served_mean_ms") > 0).then(pl.col("tpot_served_mean_ms"))
        settings = settings.with_columns(per_user.alias(PER_USER), pl.lit(0, pl.Int64).alias(f"{PER_USER}|null"))
        metrics.append(PER_USER)
    axes = tuple(ReportAxis(name, settings[name].unique().sort(nulls_last=True)) for name in axis_names)
    seeds = int(rows.select(pl.col(SEED).n_unique()).collect().item()) if SEED in names else 1
    return SweepReport(folder, rows, axes, seeds, tuple(metrics), settings, question, _load_axes(rows, axes))


def _load_axes(rows: pl.LazyFrame, axes: Sequence[ReportAxis]) -> tuple[str, ...]:
    """The axes whose value follows from the workload's content, and those of workload keys."""
    varied = [axis.name for axis in axes if len(axis.labels) > 1]
    if not varied:
        return ()
    known = rows.filter(pl.col("workload_id").is_not_null()).group_by("workload_id")
    most = known.agg(pl.col(varied).n_unique()).select(pl.col(varied).max()).collect(engine="streaming")
    found = most.row(0, named=True)
    return tuple(name for name in varied if name.startswith("workload.") or found[name] == 1)


def _settings(rows: pl.LazyFrame, axes: Sequence[str], metrics: Sequence[str], failed: pl.Expr) -> pl.DataFrame:
    figures: list[pl.Expr] = []
    for name in metrics:
        nulls = (pl.col(name).is_null() & ~failed).sum().cast(pl.Int64)
        mean = pl.col(name).cast(pl.Float64).mean()
        figures += [(pl.when(nulls == 0).then(mean) if null_is_infinite(name) else mean).alias(name)]
        figures += [nulls.alias(f"{name}|null")]
    counts = [(pl.col("outcome") == name).sum().cast(pl.Int64).alias(f"n|{name}") for name in OUTCOMES]
    first = [pl.col("config_id").min(), pl.len().cast(pl.Int64).alias("rows")]
    grouped = rows.with_columns(pl.lit(0).alias("all")).group_by([*axes, "all"]).agg(*first, *counts, *figures)
    settings = grouped.drop("all").collect(engine="streaming").sort("config_id")
    return settings.with_columns(dominant(settings).alias("outcome"))


def dominant(counts: pl.DataFrame) -> pl.Series:
    """The most frequent outcome by the columns `n|OUTCOME`; of two as frequent the worse."""
    most = counts.select(pl.max_horizontal(f"n|{name}" for name in OUTCOMES)).to_series()
    found: Any = pl.lit(OUTCOMES[0])
    for name in OUTCOMES[1:]:
        found = pl.when(pl.col(f"n|{name}") == most).then(pl.lit(name)).otherwise(found)
    return counts.select(found.alias("outcome")).to_series()
