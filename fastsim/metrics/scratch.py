"""Memory that a row is made in: kept from row to row, and of no meaning between them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.engines.outputs import Status
from fastsim.metrics.columns import NUM_LATENCIES


class Scratch(NamedTuple):
    """Arrays of one thread, for runs of up to n requests.

    =========  =======  ==================  ==========================================================================
    array      dtype    shape               meaning
    =========  =======  ==================  ==========================================================================
    latencies  float64  (NUM_LATENCIES*n,)  us, of those who got there: a block of n a latency
    statuses   int64    (len(Status),)      requests by status
    alone_us   float64  (n,)                unloaded E2E of the offered
    times_us   float64  (n + 1,)            some requests' arrivals, in order
    requests   int64    (n + 1,)            whose they are
    suffix     float64  (n + 1,)            sums over them
    =========  =======  ==================  ==========================================================================
    """

    latencies: npt.NDArray[np.float64]
    statuses: npt.NDArray[np.int64]
    alone_us: npt.NDArray[np.float64]
    times_us: npt.NDArray[np.float64]
    requests: npt.NDArray[np.int64]
    suffix: npt.NDArray[np.float64]


def new_scratch(num_requests: int) -> Scratch:
    """Scratch for runs of so many requests."""
    return Scratch(
        latencies=np.zeros(NUM_LATENCIES * num_requests),
        statuses=np.zeros(len(Status), np.int64),
        alone_us=np.zeros(num_requests),
        times_us=np.zeros(num_requests + 1),
        requests=np.zeros(num_requests + 1, np.int64),
        suffix=np.zeros(num_requests + 1),
    )
