"""What the engine is given: requests, and how many clients send them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.workload.workload import Workload

I64 = npt.NDArray[np.int64]


class TrtllmWorkload(NamedTuple):
    """Requests by index, read only; all int64. n requests.

    ==============  =====  =======  ==============================================================================
    array           shape  unit     meaning
    ==============  =====  =======  ==============================================================================
    arrival_us      (n,)   us       in a closed loop only that of the first `clients` requests counts
    prompt_tokens   (n,)   tokens   at least 1
    output_tokens   (n,)   tokens   at least 1
    max_new_tokens  (n,)   tokens   most it may generate, as declared
    order           (k,)   index    requests that arrive by themselves, by (arrival, index)
    clients         (1,)   count    of a closed loop; 0: an open loop
    ==============  =====  =======  ==============================================================================
    """

    arrival_us: I64
    prompt_tokens: I64
    output_tokens: I64
    max_new_tokens: I64
    order: I64
    clients: I64

    @property
    def num_requests(self) -> int:
        """Number of requests."""
        return len(self.arrival_us)


def build_workload(
    arrival_us: npt.ArrayLike,
    prompt_tokens: npt.ArrayLike,
    output_tokens: npt.ArrayLike,
    max_new_tokens: npt.ArrayLike,
    clients: int = 0,
) -> TrtllmWorkload:
    """The engine's arrays from columns of one length."""
    arrival, prompt, output, declared = (
        np.array(column, np.int64, ndmin=1) for column in (arrival_us, prompt_tokens, output_tokens, max_new_tokens)
    )
    own = min(clients, len(arrival)) if clients else len(arrival)
    order = np.argsort(arrival[:own], kind="stable").astype(np.int64)
    return TrtllmWorkload(arrival, prompt, output, declared, order, np.array([clients], np.int64))


def from_workload(workload: Workload) -> TrtllmWorkload:
    """The engine's view of one of fastsim's workloads. A request that declares no limit declares its output."""
    declared = np.where(workload.max_tokens > 0, workload.max_tokens, workload.output_tokens)
    return build_workload(
        workload.arrival_us, workload.prompt_tokens, workload.output_tokens, declared, workload.concurrency
    )
