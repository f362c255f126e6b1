"""What runs in one memory leave, kept before the next run overwrites it."""

import numpy as np
import numpy.typing as npt

from fastsim.engines.contract import Batch
from fastsim.engines.outputs import ITL_BINS, TOTALS_DTYPE, RequestLog, new_request_log
from fastsim.workload import Workload


class LogsOfRuns:
    """Logs, totals and histograms of gaps of `count` runs over a workload."""

    def __init__(self, workload: Workload, count: int) -> None:
        self._workload = workload
        self._logs = new_request_log(count * workload.num_requests)
        self._totals = np.zeros(count, TOTALS_DTYPE)
        self._histogram = np.zeros((count, ITL_BINS), np.int64)

    def keep(self, k: int, log: RequestLog, totals: np.void, histogram: npt.NDArray[np.int64]) -> None:
        """Keep what run `k` left."""
        n = self._workload.num_requests
        for name, theirs in log._asdict().items():
            getattr(self._logs, name)[k * n : (k + 1) * n] = theirs
        self._totals[k] = totals
        self._histogram[k] = histogram

    def batch(self, kernel_ns: int) -> Batch:
        """All of them."""
        return Batch(
            np.arange(len(self._totals)),
            self._workload.prompt_tokens,
            self._workload.output_tokens,
            self._logs,
            self._totals,
            self._histogram,
            kernel_ns,
        )
