"""The engine by itself: one run with what its steps decided, or many configurations over one workload."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastsim.engines.outputs import ITL_BINS, TOTALS_DTYPE, Gaps, RequestLog, Stop, new_request_log
from fastsim.engines.trtllm.inputs import I64, TrtllmWorkload
from fastsim.engines.trtllm.kernel import run, run_many
from fastsim.engines.trtllm.state import Record, new_scalars, new_state


@dataclass(frozen=True, slots=True)
class TrtllmResult:
    """What one run left: its log, `totals` (TOTALS_DTYPE), counts of gaps, and its steps (empty unless recorded)."""

    log: RequestLog
    totals: np.void
    itl_histogram: I64
    record: Record

    @property
    def stop(self) -> Stop:
        """Why the run ended."""
        return Stop(int(self.totals["stop"]))


def simulate_record(records: npt.NDArray[np.void], workload: TrtllmWorkload, *, record: bool = False) -> TrtllmResult:
    """Run the one configuration of `records` (CONFIG_DTYPE); with `record`, every step is stepped and kept."""
    records = records.copy()
    if record:
        records["fast_forward"] = 0
    rows = 1 << 12 if record else 0
    while True:
        totals = np.zeros(1, TOTALS_DTYPE)
        histogram = np.zeros(ITL_BINS, np.int64)
        scalars = new_scalars(workload.num_requests)
        state = new_state(workload, int(records["tokens_per_block"][0]), Gaps(histogram), rows=rows)
        run(records, scalars, state, totals)
        found = int(scalars["rows"][0])
        if not record or found <= rows:
            break
        rows = found
    kept = Record(*(values[:found] for values in state.record)) if record else state.record
    return TrtllmResult(state.log, totals[0], histogram, kept)


def run_records(
    records: npt.NDArray[np.void], workload: TrtllmWorkload
) -> tuple[RequestLog, npt.NDArray[np.void], npt.NDArray[np.int64]]:
    """Run many configurations on one workload in one call.

    Returns (log, totals, itl_histograms). With n requests and c configurations: the log's arrays have shape (c*n,),
    configuration k at [k*n, (k+1)*n); totals (c,) of TOTALS_DTYPE; itl_histograms int64 (c, ITL_BINS).
    """
    count = len(records)
    logs = new_request_log(count * workload.num_requests)
    totals = np.zeros(count, TOTALS_DTYPE)
    histograms = np.zeros((count, ITL_BINS), np.int64)
    size = int(records["tokens_per_block"].max(initial=1))
    state = new_state(workload, size, Gaps(np.zeros(ITL_BINS, np.int64)), new_request_log(0))
    run_many(records, new_scalars(workload.num_requests), state, logs, totals, histograms)
    return logs, totals, histograms
