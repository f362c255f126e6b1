"""One run of a record over one of the engine's workloads, with everything it leaves."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.engines.outputs import ITL_BINS, TOTALS_DTYPE, Gaps, RequestLog, Stop
from fastsim.engines.rlt.codes import OnLivelock
from fastsim.engines.rlt.inputs import RltWorkload
from fastsim.engines.rlt.kernel import run
from fastsim.engines.rlt.state import RLT_TOTALS_DTYPE, State, new_scalars, new_state
from fastsim.engines.rlt.tape import read_tape
from fastsim.errors import InputError


@dataclass(frozen=True, slots=True)
class RltResult:
    """What one run left. Requests are in submission order; `workload.source` leads back to the caller's list.

    `totals` is a record of TOTALS_DTYPE, `extra` one of RLT_TOTALS_DTYPE, `itl_histogram` int64 (ITL_BINS,) counts of
    gaps, `steps` the decisions step by step (empty unless recorded).
    """

    workload: RltWorkload
    log: RequestLog
    totals: np.void
    extra: np.void
    itl_histogram: npt.NDArray[np.int64]
    steps: list[dict[str, Any]]

    @property
    def stop(self) -> Stop:
        """Why the run ended."""
        return Stop(int(self.totals["stop"]))


def state_for(
    records: npt.NDArray[np.void], workload: RltWorkload, log: RequestLog | None = None, tape_rows: int = 0
) -> State:
    """Arrays large enough for every one of `records` (CONFIG_DTYPE) on the workload.

    Raises InputError when the workload's page keys are not those of a caching configuration's block size.
    """
    keys = np.diff(workload.key_start)
    cached = records[records["prefix_caching"] != 0]
    for block_size in np.unique(cached["block_size"]).tolist():
        if not np.array_equal(keys, (workload.prompt_tokens - 1) // block_size):
            raise InputError(
                f"engine.block_size = {block_size}: prefix_caching expects a workload with page keys of "
                "that block size, one for each full prompt page before the last token"
            )
    waves = records[records["wavefront"] != 0]
    chunk = int(waves["prefill_chunk_size"].min()) if len(waves) else 0
    return new_state(
        workload,
        num_tasks=int((-(-workload.prompt_tokens // chunk)).sum()) if chunk else 0,
        max_loops=int(records["max_loops"].max(initial=1)),
        num_pages=int((cached["num_blocks"] // cached["planes"]).max(initial=0)),
        log=log,
        tape_rows=tape_rows,
    )


def simulate_records(records: npt.NDArray[np.void], workload: RltWorkload, *, record: bool = False) -> RltResult:
    """Run the one configuration there is; with `record`, keep every decision of every step.

    Recording needs `on_livelock` = `step`: a skipped step leaves no decisions.
    """
    if record and records["on_livelock"][0] != OnLivelock.STEP:
        raise InputError('engine.rlt.on_livelock: recording steps expects "step"')
    totals = np.zeros(1, TOTALS_DTYPE)
    extras = np.zeros(1, RLT_TOTALS_DTYPE)
    histogram = np.zeros(ITL_BINS, np.int64)
    scalars = new_scalars(workload.num_requests)
    rows = 1 << 16 if record else 0
    while True:
        state = state_for(records, workload, tape_rows=rows)
        run(records, scalars, state, totals, extras, Gaps(histogram))
        needed = int(scalars["tape_rows"][0])
        if needed <= rows:
            break
        rows = needed
    steps = read_tape(state.tape.rows[:needed], workload.source) if record else []
    return RltResult(workload, state.log, totals[0], extras[0], histogram, steps)
