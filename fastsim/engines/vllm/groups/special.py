"""Configurations with groups or drafts behind the contract. The kernels are imported when the first of them runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastsim.engines.contract import Batch, Records, Rows, Run, class_summary, new_class_columns, plain_rows
from fastsim.engines.vllm.groups.layout import GroupRecords, group_records
from fastsim.engines.vllm.groups.layouts import layouts_of
from fastsim.engines.vllm.logs import LogsOfRuns
from fastsim.metrics.columns import NULL
from fastsim.metrics.params import ClassBounds
from fastsim.workload import Workload

if TYPE_CHECKING:
    from fastsim.engines.vllm.groups.rows import Left
    from fastsim.metrics.by_class import ClassSummary

_DERIVED = ("kv_capacity_req_per_s", "offered_kv_load", "offered_token_load", "offered_load")
"""What metrics derive from blocks a token and a token a step."""


@dataclass(frozen=True, kw_only=True)
class SpecialRun(Run):
    """What one run left; `by_request` are the drafts verified and accepted of each request."""

    by_request: Mapping[str, npt.NDArray[np.int32]]


def _records(records: Records) -> GroupRecords:
    return group_records(records, layouts_of(records["layout"]))


def compile_special_kernels() -> None:
    """Compile the kernels for groups and drafts, or load them from the cache; nothing if done before."""
    from fastsim.engines.vllm.groups.rows import compile_kernels

    compile_kernels()


def special_rows(
    workload: Workload, records: Records, params: Records, bounds: ClassBounds | None, fast_forward: bool
) -> Rows:
    """Rows of configurations with groups or drafts."""
    from fastsim.engines.vllm.groups.rows import compile_kernels, run_rows

    compile_kernels()
    mine = _records(records)
    classes, take_apart = None, None
    if bounds is not None:
        classes = new_class_columns(len(records), workload)
        summary = class_summary(workload, workload.prompt_tokens, workload.output_tokens)
        take_apart = partial(_take_apart, summary, params, bounds, classes)
    floats, ints, totals = run_rows(mine, params, workload, fast_forward=fast_forward, after_each=take_apart)
    fill_own_columns(mine, floats, ints, totals)
    return plain_rows(floats, ints, classes)


def _take_apart(
    summary: "ClassSummary",
    params: Records,
    bounds: ClassBounds,
    classes: npt.NDArray[np.float64],
    place: slice,
    run: "Left",
) -> None:
    """Fill the columns that classes have in one row, from the run's log, totals and row."""
    log, totals, _, floats, ints = run
    classes[place] = summary.columns(log, totals, params[place], bounds.at(place), floats, ints)


def special_run(
    workload: Workload,
    records: Records,
    params: Records,
    bounds: ClassBounds | None,
    fast_forward: bool,
    record_steps: bool,
    repeat: int,
) -> Run:
    """Run the one configuration there is."""
    from fastsim.engines.vllm.groups.rows import run_recorded

    mine = _records(records)
    run = run_recorded(mine, params, workload, fast_forward=fast_forward, record_steps=record_steps, repeat=repeat)
    fill_own_columns(mine, run.floats, run.ints, run.memory.totals)
    by_request = {
        "verified_drafts": run.memory.requests.verified_drafts,
        "accepted_drafts": run.memory.requests.accepted_drafts,
    }
    classes = None
    if bounds is not None:
        summary = class_summary(workload, workload.prompt_tokens, workload.output_tokens)
        classes = summary.columns(run.memory.log, run.memory.totals, params, bounds, run.floats, run.ints)
    rows = plain_rows(run.floats, run.ints, classes)
    steps = None if run.tape is None else run.tape.steps
    return SpecialRun(
        run.memory.log, run.memory.totals, rows, run.kernel_ms, steps=steps, tape=run.tape, by_request=by_request
    )


def fill_own_columns(records: GroupRecords, floats: Records, ints: Records, totals: Records) -> None:
    """The columns of speculation; null what metrics derive from one full-attention group and a token a step."""
    for name in _DERIVED:
        floats[name] = np.nan
    ints["kv_safe_num_seqs"] = NULL
    drafting = records.engine["k"] > 0
    drafts, accepted = totals["drafts"].astype(np.float64), totals["accepted"].astype(np.float64)
    k = np.maximum(records.engine["k"], 1)
    busy = totals["steps"] - totals["empty_steps"]
    delivered = ints["output_tokens"]
    for name, values, of in (
        ("draft_tokens", drafts, None),
        ("accepted_tokens", accepted, None),
        ("draft_acceptance_rate", accepted, drafts),
        ("mean_acceptance_length", accepted + drafts / k, drafts / k),
        ("output_tokens_per_step", delivered, busy),
    ):
        shares = values if of is None else _ratio(values, of)
        floats[name] = np.where(drafting, shares, np.nan)


def fill_special_columns(records: Records, floats: Records, ints: Records, totals: Records) -> None:
    """The same from records of configurations."""
    fill_own_columns(_records(records), floats, ints, totals)


def special_batches(workload: Workload, records: Records, params: Records, fast_forward: bool) -> list[Batch]:
    """What runs of configurations with groups or drafts leave."""
    from fastsim.engines.vllm.groups.rows import compile_kernels, run_rows

    compile_kernels()
    logs = LogsOfRuns(workload, len(records))

    def keep(place: slice, run: "Left") -> None:
        logs.keep(place.start, run[0], run[1][0], run[2])

    start_ns = perf_counter_ns()
    run_rows(_records(records), params, workload, fast_forward=fast_forward, after_each=keep)
    return [logs.batch(perf_counter_ns() - start_ns)]


def _ratio(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    shares: npt.NDArray[np.float64] = np.divide(a, b, out=np.full(len(a), np.nan), where=b > 0)
    return shares


def merged(mine: npt.NDArray[np.bool_], rows: Rows, others: Rows) -> Rows:
    """Rows in their order: `rows` where `mine`, else `others`."""
    floats = np.empty((len(mine), rows.floats.shape[1]))
    ints = np.empty((len(mine), rows.ints.shape[1]), np.int64)
    floats[mine], floats[~mine] = rows.floats, others.floats
    ints[mine], ints[~mine] = rows.ints, others.ints
    return Rows(floats, ints)
