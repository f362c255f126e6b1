"""The engine by itself: one configuration with everything it did, or many over one workload."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.engines.outputs import ITL_BINS, TOTALS_DTYPE, Gaps, RequestLog, Stop, new_request_log
from fastsim.engines.sglang.codes import MORE_ROOM
from fastsim.engines.sglang.inputs import SglangWorkload
from fastsim.engines.sglang.kernel import run, run_many
from fastsim.engines.sglang.state import OWN_TOTALS_DTYPE, Record, Requests, State, new_scalars, new_state

ROOMY_NODES = 64


@dataclass(frozen=True, slots=True)
class SglangResult:
    """What one run left, by request.

    `totals` is a record of TOTALS_DTYPE, `own` one of OWN_TOTALS_DTYPE, `requests` the live state at the end,
    `itl_histogram` int64 (ITL_BINS,) counts of gaps, `record` the passes (empty unless recorded).
    """

    workload: SglangWorkload
    log: RequestLog
    requests: Requests
    totals: np.void
    own: np.void
    itl_histogram: npt.NDArray[np.int64]
    record: Record

    @property
    def stop(self) -> Stop:
        """Why the run ended."""
        return Stop(int(self.totals["stop"]))


def simulate_records(records: npt.NDArray[np.void], workload: SglangWorkload, *, record: bool = False) -> SglangResult:
    """Run one configuration, CONFIG_DTYPE of shape (1,); with `record`, keep every pass, and jump over none."""
    totals = np.zeros(1, TOTALS_DTYPE)
    own = np.zeros(1, OWN_TOTALS_DTYPE)
    histogram = np.zeros(ITL_BINS, np.int64)
    scalars = new_scalars(workload.num_requests)
    cfgs = records.copy()
    if record:
        cfgs["fast_forward"] = 0
    nodes = tree_nodes(cfgs, workload)
    rows = items = 1 << 14 if record else 0
    while True:
        state = new_state(
            workload,
            nodes=nodes,
            page_size=int(cfgs["page_size"][0]),
            gaps=Gaps(histogram),
            record_rows=rows,
            record_items=items,
        )
        if run(cfgs, scalars, state, totals, own) == MORE_ROOM:
            nodes *= 2
            continue
        needed_rows, needed_items = int(scalars["rows"][0]), int(scalars["items"][0])
        if needed_rows <= rows and needed_items <= items:
            break
        rows, items = max(rows, needed_rows), max(items, needed_items)
    kept = Record(state.record.rows[:needed_rows], state.record.ratio[:needed_rows], state.record.items[:needed_items])
    return SglangResult(workload, state.log, state.req, totals[0], own[0], histogram, kept)


def tree_nodes(records: npt.NDArray[np.void], workload: SglangWorkload) -> int:
    """Nodes that the radix tree is given at first: enough for nearly every run."""
    cached = records[records["disable_radix_cache"] == 0]
    if not len(cached):
        return 1
    pages = int((cached["pool"] // cached["page_size"]).max())
    return min(pages + 2, 8 * workload.num_requests + ROOMY_NODES)


def run_records(
    records: npt.NDArray[np.void], workload: SglangWorkload, logs: RequestLog | None = None
) -> tuple[RequestLog, npt.NDArray[np.void], npt.NDArray[np.void], npt.NDArray[np.int64]]:
    """Run many configurations (records of CONFIG_DTYPE) on one workload in one call; nothing is recorded.

    Returns (log, totals, own totals, itl_histograms). With n requests and c configurations: the log's arrays have shape
    (c*n,), configuration k at [k*n, (k+1)*n); totals (c,) of TOTALS_DTYPE; own totals (c,) of OWN_TOTALS_DTYPE;
    itl_histograms int64 (c, ITL_BINS).
    """
    count = len(records)
    n = workload.num_requests
    logs = new_request_log(count * n) if logs is None else logs
    totals = np.zeros(count, TOTALS_DTYPE)
    own = np.zeros(count, OWN_TOTALS_DTYPE)
    histograms = np.zeros((count, ITL_BINS), np.int64)
    nodes = tree_nodes(records, workload)
    done = 0
    while done < count:
        state = _room(records, workload, nodes)
        rest = slice(done, count)
        columns: dict[str, Any] = {name: values[done * n :] for name, values in logs._asdict().items()}
        scalars = new_scalars(n)
        done += run_many(
            records[rest], scalars, state, RequestLog(**columns), totals[rest], own[rest], histograms[rest]
        )
        nodes *= 2
    return logs, totals, own, histograms


def _room(records: npt.NDArray[np.void], workload: SglangWorkload, nodes: int) -> State:
    return new_state(
        workload,
        nodes=nodes,
        page_size=int(records["page_size"].max()),
        gaps=Gaps(np.zeros(ITL_BINS, np.int64)),
        log=new_request_log(0),
    )
