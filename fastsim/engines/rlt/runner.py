"""The engine from Python: one configuration with everything it did, or many over one workload."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.engines.outputs import ITL_BINS, TOTALS_DTYPE, Gaps, RequestLog, Stop, new_request_log
from fastsim.engines.rlt.config import RltConfig
from fastsim.engines.rlt.inputs import RltWorkload
from fastsim.engines.rlt.kernel import run, run_many
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
    configs: Sequence[RltConfig], workload: RltWorkload, log: RequestLog | None = None, tape_rows: int = 0
) -> State:
    """Arrays large enough for every configuration on the workload.

    Raises InputError when the workload's page keys are not those of a caching configuration's block size.
    """
    keys = np.diff(workload.key_start)
    tasks = pages = 0
    for config in configs:
        if config.wavefront:
            ranges = -(-workload.prompt_tokens.astype(np.int64) // config.prefill_chunk_size)
            tasks = max(tasks, int(ranges.sum()))
        if config.prefix_caching:
            pages = max(pages, config.num_blocks // config.planes)
            if not np.array_equal(keys, (workload.prompt_tokens - 1) // config.block_size):
                raise InputError(
                    f"engine.block_size = {config.block_size}: prefix_caching expects a workload with page keys of "
                    "that block size, one for each full prompt page before the last token"
                )
    loops = max((config.max_loops for config in configs), default=1)
    return new_state(workload, num_tasks=tasks, max_loops=loops, num_pages=pages, log=log, tape_rows=tape_rows)


def simulate_rlt(config: RltConfig, workload: RltWorkload, *, record: bool = False) -> RltResult:
    """Run one configuration; with `record`, keep every decision of every step.

    Recording needs `on_livelock` = `step`: a skipped step leaves no decisions.
    """
    if record and config.on_livelock != "step":
        raise InputError(f"engine.on_livelock = {config.on_livelock!r}: recording steps expects 'step'")
    totals = np.zeros(1, TOTALS_DTYPE)
    extras = np.zeros(1, RLT_TOTALS_DTYPE)
    histogram = np.zeros(ITL_BINS, np.int64)
    scalars = new_scalars(workload.num_requests)
    cfgs = config.to_record()
    rows = 1 << 16 if record else 0
    while True:
        state = state_for([config], workload, tape_rows=rows)
        run(cfgs, scalars, state, totals, extras, Gaps(histogram))
        needed = int(scalars["tape_rows"][0])
        if needed <= rows:
            break
        rows = needed
    steps = read_tape(state.tape.rows[:needed], workload.source) if record else []
    return RltResult(workload, state.log, totals[0], extras[0], histogram, steps)


def run_configs(
    configs: Sequence[RltConfig], workload: RltWorkload
) -> tuple[RequestLog, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Run many configurations on one workload in one call; nothing is recorded.

    Returns (log, totals, extras, itl_histograms). With n requests and c configurations: the log's arrays have shape
    (c*n,), configuration k at [k*n, (k+1)*n); totals (c,) of TOTALS_DTYPE; extras (c,) of RLT_TOTALS_DTYPE;
    itl_histograms int64 (c, ITL_BINS).
    """
    count = len(configs)
    logs = new_request_log(count * workload.num_requests)
    totals = np.zeros(count, TOTALS_DTYPE)
    extras = np.zeros(count, RLT_TOTALS_DTYPE)
    histograms = np.zeros((count, ITL_BINS), np.int64)
    if count:
        cfgs = np.concatenate([config.to_record() for config in configs])
        state = state_for(configs, workload)
        run_many(cfgs, new_scalars(workload.num_requests), state, logs, totals, extras, histograms)
    return logs, totals, extras, histograms
