"""What each class of requests got, below the figures of a run."""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastsim.cli.tables import table

if TYPE_CHECKING:
    from fastsim.simulation import Result


def classes_text(result: "Result") -> str:
    """A table with one row a class: TTFT and E2E over all its requests, one that got none counting as infinite."""
    workload, log = result.workload, result.requests
    assert workload.request_class is not None
    rows = []
    for index, name in enumerate(workload.class_names):
        mine = workload.request_class == index
        served, done = mine & (log.first_token_us >= 0), mine & (log.finish_us >= 0)
        since = (result.config.latency.frontend_us or 0.0) - log.arrival_us
        cells: list[float | None] = []
        for times, there in ((log.first_token_us, served), (log.last_token_us, done)):
            all_ms = np.where(there, times + since, np.inf)[mine] / 1e3
            cells += [_quantile(np.sort(all_ms), q) for q in (0.5, 0.99)]
        rows.append([name, int(mine.sum()), int(done.sum()), *cells])
    head = ["class", "requests", "completed", "ttft_p50_ms", "ttft_p99_ms", "e2e_p50_ms", "e2e_p99_ms"]
    return table(head, rows)


def _quantile(sorted_ms: npt.NDArray[np.float64], q: float) -> float | None:
    """Linear interpolation, as in the metrics; None where it touches a request that did not get there."""
    if not len(sorted_ms):
        return None
    position = (len(sorted_ms) - 1) * q
    low = int(position)
    high = low + (position > low)
    if not np.isfinite(sorted_ms[high]):
        return None
    return float(sorted_ms[low] + (sorted_ms[high] - sorted_ms[low]) * (position - low))
