"""Runs of records over one of the engine's workloads, with everything they leave."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.engines.blis.aggregate import AGGREGATE_DTYPE
from fastsim.engines.blis.buffers import Sizes, new_blis_log, new_state
from fastsim.engines.blis.codes import MORE_RANGES, MORE_SEGMENTS, NO_LIMIT, NONE
from fastsim.engines.blis.inputs import BlisWorkload
from fastsim.engines.blis.kernel import run_many
from fastsim.engines.blis.scalars import SCALARS_DTYPE
from fastsim.engines.blis.state import BlisLog, State
from fastsim.engines.outputs import ITL_BINS, NEVER, TOTALS_DTYPE, RequestLog, Stop, new_request_log


@dataclass(frozen=True, slots=True)
class BlisBatch:
    """What runs of many configurations left: row k belongs to configuration k.

    ==============  ===============  =====================================================================
    field           shape            content
    ==============  ===============  =====================================================================
    log             (k x n,) or (n,)  RequestLog: times on the simulation clock; the last run's if not kept
    blis            the same         BlisLog: BLIS's own times
    totals          (k,)             TOTALS_DTYPE
    itl_histogram   (k, ITL_BINS)    int64: gaps between tokens on the clock, of completed lives
    aggregate       (k,)             AGGREGATE_DTYPE: BLIS's metrics object
    ==============  ===============  =====================================================================
    """

    log: RequestLog
    blis: BlisLog
    totals: npt.NDArray[Any]
    itl_histogram: npt.NDArray[np.int64]
    aggregate: npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class BlisResult:
    """What one run left; fields as in BlisBatch, of one configuration."""

    workload: BlisWorkload
    log: RequestLog
    blis: BlisLog
    totals: np.void
    itl_histogram: npt.NDArray[np.int64]
    aggregate: np.void

    @property
    def stop(self) -> Stop:
        """Why the run ended."""
        return Stop(int(self.totals["stop"]))


class BlisRunner:
    """Buffers for runs over one workload, kept from call to call and enlarged when a run needs more."""

    def __init__(self, workload: BlisWorkload, configs: npt.NDArray[Any]) -> None:
        self.workload = workload
        self.configs = configs
        self.sizes = Sizes()
        self.scalars = np.zeros(1, SCALARS_DTYPE)
        self.blank_scalars = np.zeros(1, SCALARS_DTYPE)
        self.blank_scalars[0]["next_end"] = NO_LIMIT
        self.blank_scalars[0]["range_free"] = NONE
        self.blank_totals = np.zeros(1, TOTALS_DTYPE)
        self.blank_totals[0]["livelock_step"] = NEVER
        self.blank_totals[0]["livelock_us"] = NEVER
        self.blank_totals[0]["last_completion_us"] = workload.arrival_us.min(initial=NO_LIMIT)
        self.blank_totals[0]["first_completion_us"] = NEVER
        self.state = self._new_state()

    def _new_state(self) -> State:
        return new_state(self.workload, self.configs, self.sizes, new_request_log(0), new_blis_log(0))

    def run(self, batch: BlisBatch) -> None:
        """Run every configuration into `batch`, which is modified in place."""
        done = 0
        while done < len(self.configs):
            done = run_many(
                self.configs,
                done,
                self.scalars,
                self.state,
                self.blank_scalars,
                self.blank_totals,
                batch.log,
                batch.blis,
                batch.totals,
                batch.itl_histogram,
                batch.aggregate,
            )
            if done < len(self.configs):
                self._enlarge(int(self.scalars[0]["status"]))

    def _enlarge(self, status: int) -> None:
        name = {MORE_SEGMENTS: "segments", MORE_RANGES: "ranges"}.get(status, "chains")
        self.sizes = self.sizes._replace(**{name: 4 * getattr(self.sizes, name)})
        self.state = self._new_state()


def new_batch(num_configs: int, num_requests: int, *, keep_logs: bool) -> BlisBatch:
    """Room for the outputs of `num_configs` runs; with `keep_logs` the logs of all of them, else those of the last."""
    entries = num_requests * (num_configs if keep_logs else 1)
    return BlisBatch(
        new_request_log(entries),
        new_blis_log(entries),
        np.zeros(num_configs, TOTALS_DTYPE),
        np.zeros((num_configs, ITL_BINS), np.int64),
        np.zeros(num_configs, AGGREGATE_DTYPE),
    )


def run_records(records: npt.NDArray[np.void], workload: BlisWorkload, *, keep_logs: bool = True) -> BlisBatch:
    """Run many configurations (CONFIG_DTYPE) over one workload in one call of the kernel."""
    batch = new_batch(len(records), len(workload.arrival_us), keep_logs=keep_logs)
    BlisRunner(workload, records).run(batch)
    return batch


def simulate_records(records: npt.NDArray[np.void], workload: BlisWorkload) -> BlisResult:
    """Run the one configuration there is."""
    batch = run_records(records, workload)
    return BlisResult(workload, batch.log, batch.blis, batch.totals[0], batch.itl_histogram[0], batch.aggregate[0])
