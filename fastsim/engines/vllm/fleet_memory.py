"""Memory of a fleet, and its run: what is kept by request once, everything else once a replica."""

from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim._jit import lay_out
from fastsim.engines.arrays import checked
from fastsim.engines.contract import FleetBatch, FleetSession, Records
from fastsim.engines.outputs import TOTALS_DTYPE, RequestLog
from fastsim.engines.vllm.fleet import run_fleet
from fastsim.engines.vllm.gaps import GapLog
from fastsim.engines.vllm.memory import Memory, new_memory, workload_arrays
from fastsim.engines.vllm.recorder import new_recorder
from fastsim.engines.vllm.router import ROUTER_DTYPE, Known, new_known
from fastsim.engines.vllm.scalars import SCALARS_DTYPE
from fastsim.engines.vllm.state import Blocks, Queues, Requests
from fastsim.workload import Workload

Int64Array = npt.NDArray[np.int64]


class SlabLayout(NamedTuple):
    """Where the replicas' parts of the slabs stand (`fastsim._jit.slabs`)."""

    queues: Int64Array
    blocks: Int64Array
    gaps: Int64Array


class FleetMemory(NamedTuple):
    """Scalars and totals: shape (replicas,), `router`: (1,); queues, blocks and gaps are slabs, the rest is shared."""

    scalars: npt.NDArray[np.void]
    totals: npt.NDArray[np.void]
    requests: Requests
    queues: Queues
    blocks: Blocks
    layout: SlabLayout
    router: npt.NDArray[np.void]
    known: Known
    log: RequestLog
    gaps: GapLog


def new_fleet_memory(single: Memory, replicas: int) -> FleetMemory:
    """Memory for so many replicas, each as large as that of one engine.

    Raises
    ------
    InputError
        When there is none for them.
    """
    sizes = [array.nbytes for array in (*single.queues, *single.blocks)]
    checked(replicas * sum(sizes), f"the queues and blocks of {replicas} replicas", "lower fleet.replicas")
    queues, blocks, gaps = (_slab(each, replicas) for each in (single.queues, single.blocks, single.gaps))
    return FleetMemory(
        scalars=np.zeros(replicas, SCALARS_DTYPE),
        totals=np.zeros(replicas, TOTALS_DTYPE),
        requests=single.requests,
        queues=queues,
        blocks=blocks,
        layout=SlabLayout(*(lay_out(slab, replicas) for slab in (queues, blocks, gaps))),
        router=np.zeros(1, ROUTER_DTYPE),
        known=new_known(replicas),
        log=single.log,
        gaps=gaps,
    )


def _slab(single: Any, replicas: int) -> Any:
    """The same arrays, so many times as long."""
    return type(single)(*(np.zeros(replicas * len(array), array.dtype) for array in single))


class VllmFleetSession(FleetSession):
    """One workload and the memory of fleets over it."""

    def __init__(self, workload: Workload, largest: Records, replicas: int) -> None:
        self._arrays = workload_arrays(workload)
        self._memory = new_fleet_memory(new_memory(largest, self._arrays), replicas)
        self._recorder = new_recorder(1)
        self._of_request = np.zeros(workload.num_requests, np.int64)

    def run(
        self,
        records: Records,
        params: Records,
        fleet: Records,
        draws: npt.NDArray[np.float64],
        *,
        fast_forward: bool,
    ) -> FleetBatch:
        """Run one fleet; the dense loop leaves what it does not know to the general one."""
        memory, of_request = self._memory, self._of_request
        engine = records.copy()
        engine["fast_forward"] = fast_forward
        uniform = np.ascontiguousarray(draws).reshape(-1)
        start_ns = perf_counter_ns()
        if run_fleet(engine, params, fleet, memory, self._arrays, self._recorder, uniform, of_request):
            engine["dense"] = 0
            done = run_fleet(engine, params, fleet, memory, self._arrays, self._recorder, uniform, of_request)
            assert done == 0
        kernel_ns = perf_counter_ns() - start_ns
        histogram = memory.gaps.histogram.reshape(len(memory.totals), -1)
        return FleetBatch(of_request, memory.log, memory.totals, histogram, kernel_ns)
