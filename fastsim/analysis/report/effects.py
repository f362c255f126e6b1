"""What each axis changes: the paired differences of `fastsim compare`, for one axis after the other."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from fastsim.analysis.compare.paired import SEED, compare
from fastsim.analysis.cost import COST
from fastsim.analysis.report.phase import by_importance
from fastsim.analysis.report.question import MEETS
from fastsim.analysis.report.rows import ReportAxis, SweepReport
from fastsim.errors import InputError

MOST_AXES, MOST_LEVELS, MOST_METRICS = 12, 80, 5
MOST_ROWS = 150_000
"""Beyond so many rows a share of the combinations of the other axes is compared, whole pairs by a hash."""


@dataclass(frozen=True)
class AxisEffect:
    """What one axis changes: the table of `compare`, or why there is none. `notes` say what was left out."""

    axis: ReportAxis
    table: pl.DataFrame | None
    reason: str
    notes: tuple[str, ...]


def effects(sweep: SweepReport, metrics: tuple[str, ...]) -> tuple[list[AxisEffect], int]:
    """The effect of each axis, and how many axes there are.

    What can be set comes before what the load is, and what explains most of the first metric before the rest.
    """
    axes = sorted(by_importance(sweep, metrics[0]), key=lambda axis: axis.name in sweep.load_axes)
    return [_effect(sweep, axis, metrics) for axis in axes[:MOST_AXES]], len(axes)


def effect_metrics(sweep: SweepReport) -> tuple[str, ...]:
    """The metrics that are compared: the objectives first."""
    usual = ("request_throughput_req_per_s", "ttft_p99_ms", "tpot_served_mean_ms", "recomputed_share", "preemptions")
    wanted = [*(name for name, _ in sweep.objectives), *usual]
    known = [name for name in dict.fromkeys(wanted) if name in sweep.metrics and name not in (MEETS, COST)]
    return tuple(known[:MOST_METRICS])


def _effect(sweep: SweepReport, axis: ReportAxis, metrics: tuple[str, ...]) -> AxisEffect:
    notes = []
    rows = sweep.rows
    names = [other.name for other in sweep.axes]
    if len(axis.labels) > MOST_LEVELS:
        picks = np.linspace(0, len(axis.labels) - 1, MOST_LEVELS).astype(int)
        kept = axis.levels.gather(picks)
        rows = rows.filter(pl.col(axis.name).is_in(kept, nulls_equal=True))
        notes.append(f"{MOST_LEVELS} of its {len(axis.labels):,} values are compared, evenly from least to most.")
    others = [name for name in names if name != axis.name]
    every = -(-sweep.height * min(MOST_LEVELS, len(axis.labels)) // (MOST_ROWS * len(axis.labels)))
    if every > 1 and others:
        rows = rows.filter(pl.struct(others).hash(seed=0) % every == 0)
        notes.append(f"One in {every:,} combinations of the other axes is compared, chosen by a hash.")
    elif every > 1:
        seeds = sweep.seeds // every + 1
        rows = rows.filter(pl.col(SEED).rank("dense") <= seeds) if sweep.seeds > 1 else rows
        notes.append(f"The first {seeds:,} seeds are compared.")
    columns = [*names, *([SEED] if SEED in rows.collect_schema().names() else []), *metrics]
    try:
        return AxisEffect(axis, compare(rows.select(columns), axis.name, metrics), "", tuple(notes))
    except InputError as error:  # an axis of a zip has no pairs, a sample may have none: say so in the report
        return AxisEffect(axis, None, str(error), tuple(notes))
