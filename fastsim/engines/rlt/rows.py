"""A chunk of configurations over one of fastsim's workloads, a few runs at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.engines.outputs import ITL_BINS, TOTALS_DTYPE, RequestLog, new_request_log
from fastsim.engines.rlt.codes import OnLivelock
from fastsim.engines.rlt.inputs import RltWorkload, group_page_keys, open_loop
from fastsim.engines.rlt.kernel import run_many
from fastsim.engines.rlt.state import RLT_TOTALS_DTYPE, State, new_scalars, new_state
from fastsim.workload import Workload

MAX_LOG_ENTRIES = 2**17
"""Requests times runs whose logs are kept at once: 11 MB."""


@dataclass(frozen=True)
class RltBatch:
    """What runs left: `log` run by run, in submission order; `totals`, `extras`, `itl_histogram` a row a run."""

    log: RequestLog
    totals: npt.NDArray[np.void]
    extras: npt.NDArray[np.void]
    itl_histogram: npt.NDArray[np.int64]


class RltRuns(NamedTuple):
    """Some runs: their places in the chunk, the engine's workload, what they left, nanoseconds of the kernel call."""

    places: npt.NDArray[np.intp]
    workload: RltWorkload
    batch: RltBatch
    kernel_ns: int


def run_batches(workload: Workload, records: npt.NDArray[np.void], fast_forward: bool) -> Iterator[RltRuns]:
    """Run every configuration of `records` (CONFIG_DTYPE). Without `fast_forward` no cycle of a livelock is skipped."""
    if not fast_forward:
        records = records.copy()
        records["on_livelock"][records["on_livelock"] == OnLivelock.SKIP] = OnLivelock.STEP
    plain = open_loop(workload)
    per_batch = max(1, MAX_LOG_ENTRIES // max(workload.num_requests, 1))
    shared_pages = np.where(records["prefix_caching"] != 0, records["block_size"], 0)
    for block_size in np.unique(shared_pages):
        offered = _with_page_keys(plain, workload, int(block_size)) if block_size else plain
        alike = np.flatnonzero(shared_pages == block_size)
        state = _state(records[alike], offered)
        for first in range(0, len(alike), per_batch):
            places = alike[first : first + per_batch]
            batch = RltBatch(
                new_request_log(len(places) * workload.num_requests),
                np.zeros(len(places), TOTALS_DTYPE),
                np.zeros(len(places), RLT_TOTALS_DTYPE),
                np.zeros((len(places), ITL_BINS), np.int64),
            )
            scalars = new_scalars(workload.num_requests)
            start_ns = perf_counter_ns()
            run_many(records[places], scalars, state, batch.log, batch.totals, batch.extras, batch.itl_histogram)
            yield RltRuns(places, offered, batch, perf_counter_ns() - start_ns)


def _with_page_keys(plain: RltWorkload, workload: Workload, block_size: int) -> RltWorkload:
    order = plain.source
    start, keys = group_page_keys(
        workload.prompt_tokens[order], workload.prefix_group[order], workload.prefix_tokens[order], block_size
    )
    return plain._replace(key_start=start, page_keys=keys)


def _state(records: npt.NDArray[np.void], workload: RltWorkload) -> State:
    """Arrays large enough for every one of `records` over `workload`."""
    waves = records[records["wavefront"] != 0]
    chunk = int(waves["prefill_chunk_size"].min()) if len(waves) else 0
    cached = records[records["prefix_caching"] != 0]
    return new_state(
        workload,
        num_tasks=int((-(-workload.prompt_tokens // chunk)).sum()) if chunk else 0,
        max_loops=int(records["max_loops"].max(initial=1)),
        num_pages=int((cached["num_blocks"] // cached["planes"]).max(initial=0)),
        log=new_request_log(0),
    )


def own_totals(batch: RltBatch) -> dict[str, Any]:
    """Counters that only this engine has, of the only run of a batch: their names behind `rlt_`."""
    return {f"rlt_{name}": int(batch.extras[name][0]) for name in batch.extras.dtype.names or ()}


def by_request(log: RequestLog, workload: Workload) -> RequestLog:
    """The log of a run by the requests' own indices instead of submission order."""
    order = workload.arrival_order()
    columns: dict[str, Any] = {}
    for name, values in log._asdict().items():
        columns[name] = np.empty_like(values)
        columns[name][order] = values
    return RequestLog(**columns)
