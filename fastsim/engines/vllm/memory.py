"""The state of a run, and its arrays: allocated for the largest configuration of a chunk, reused by all of them."""

from functools import cache
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import numpy.typing as npt

from fastsim.engines.arrays import checked, zeros
from fastsim.engines.outputs import TOTALS_DTYPE, RequestLog, new_request_log
from fastsim.engines.vllm.codes import PreemptionMode
from fastsim.engines.vllm.gaps import GapLog, new_gap_log
from fastsim.engines.vllm.recorder import Recorder
from fastsim.engines.vllm.scalars import SCALARS_DTYPE
from fastsim.engines.vllm.state import Blocks, Queues, Requests, WorkloadArrays
from fastsim.workload import Workload

GAP_CAPACITY = 16_384
"""Segments and runs the log of gaps first has room for under `preemption_mode = "restart"`."""


class State(NamedTuple):
    """Everything a run reads and writes: what kernels hand to each other.

    Every part is borrowed (see `fastsim._jit`), so handing it on costs nothing.
    """

    cfg: Any  # CONFIG_DTYPE, read-only
    table: Any  # of step times: PARAMS_DTYPE
    st: Any  # SCALARS_DTYPE
    tot: Any  # TOTALS_DTYPE
    wl: WorkloadArrays
    req: Requests
    q: Queues
    blk: Blocks
    log: RequestLog
    gaps: GapLog
    rec: Recorder


class Memory(NamedTuple):
    """What Python keeps of it from call to call; `scalars` and `totals` have shape (1,)."""

    scalars: npt.NDArray[np.void]
    totals: npt.NDArray[np.void]
    requests: Requests
    queues: Queues
    blocks: Blocks
    log: RequestLog
    gaps: GapLog


def zeros_of(fields: type[Any], sizes: dict[str, int], default: int) -> Any:
    """A NamedTuple of zeroed arrays, dtypes from its annotations."""
    dtypes = _dtypes(fields)  # type: ignore[arg-type]
    return fields(**{name: zeros(sizes.get(name, default), dtypes[name]) for name in fields._fields})


@cache
def _dtypes(fields: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(fields)
    return {name: hints[name].__args__[1].__args__[0] for name in fields._fields}


def workload_arrays(offered: Workload) -> WorkloadArrays:
    """The workload as kernels read it."""
    order = np.lexsort((offered.arrival_us, offered.priority))
    keys = np.stack((offered.priority[order], offered.arrival_us[order]))
    starts = np.ones(len(order), bool)
    starts[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    rank, victim_rank = np.empty((2, len(order)), np.int32)
    rank[order] = np.arange(len(order))
    victim_rank[order] = np.cumsum(starts)
    return WorkloadArrays(
        arrival_us=offered.arrival_us,
        order=offered.arrival_order(),
        prompt_tokens=offered.prompt_tokens,
        output_tokens=offered.output_tokens,
        max_tokens=offered.max_tokens,
        priority=offered.priority,
        priority_order=order.astype(np.int32),
        priority_rank=rank,
        victim_rank=victim_rank,
        prefix_group=offered.prefix_group,
        prefix_tokens=offered.prefix_tokens,
        think_us=offered.think_us,
        clients=np.array([offered.concurrency], np.int64),
        # Copies, so that they are all writable: an array type that differs in this alone compiles the kernels again
        group_parent=np.array(offered.group_parent, np.int32),
        group_start_tokens=np.array(offered.group_start_tokens, np.int32),
        group_end_tokens=np.array(offered.group_end_tokens, np.int32),
    )


def with_larger_gap_log(memory: Memory) -> Memory:
    """The same arrays with room for four times as many gaps."""
    return memory._replace(gaps=new_gap_log(4 * len(memory.gaps.segment_tick)))


def new_memory(records: npt.NDArray[np.void], workload: WorkloadArrays) -> Memory:
    """Arrays large enough for each of the configurations over this workload.

    Raises
    ------
    InputError
        When there is no memory for them, or the blocks that requests share are more than is supported.
    """
    num_requests = len(workload.prompt_tokens)
    cached = records[records["enable_prefix_caching"] != 0]
    ends = workload.group_end_tokens.astype(np.int64)
    starts = workload.group_start_tokens.astype(np.int64)
    slots = rows = row_blocks = nodes = 0
    for block_size in np.unique(cached["block_size"]):
        slots = max(slots, int(np.maximum(ends // block_size - starts // block_size, 0).sum()))
        row_blocks = max(row_blocks, int(ends.max(initial=0) // block_size))
    if len(cached):
        # Every block is in at most one run, and a run has at least one block
        nodes = int(cached["num_gpu_blocks"].max()) + 4
        rows = min(num_requests, int(cached["max_num_seqs"].max())) + 1
    if row_blocks == 0:
        rows = 0
    held_copies = checked(
        rows * row_blocks,
        f"the shared prefixes of up to {row_blocks:,} blocks of {rows:,} running requests",
        "lower engine.max_num_seqs",
    )
    checked(slots, "the blocks of all shared prefixes", "raise engine.block_size, or share fewer tokens")
    lanes = int(records["block_size"].max()) + 1
    queue_sizes = {"lane_head": lanes, "lane_tail": lanes, "lane_size": lanes}
    queue_sizes["cap_window"] = 2 * (int(records["feedback_window"].max()) + 1)
    flight = 2 * num_requests if records["asynchronous"].any() else 0
    queue_sizes |= {"flight_request": flight, "flight_samples": flight}
    queue_sizes["door_window"] = 2 * (int(records["backpressure_window"].max()) + 1)
    groups = len(ends)
    block_sizes = {"first_copy": slots, "last_copy": slots, "group_slot": groups, "group_first_block": groups}
    block_sizes |= {"held_copies": held_copies, "free_rows": rows}
    restarts = (records["preemption_mode"] == PreemptionMode.RESTART).any()
    gap_capacity = GAP_CAPACITY + 2 * num_requests if restarts else 1
    scalars = np.zeros(1, SCALARS_DTYPE)
    totals = np.zeros(1, TOTALS_DTYPE)
    return Memory(
        scalars=scalars,
        totals=totals,
        requests=zeros_of(Requests, {}, num_requests),
        queues=zeros_of(Queues, queue_sizes, num_requests),
        blocks=zeros_of(Blocks, block_sizes, nodes),
        log=new_request_log(num_requests),
        gaps=new_gap_log(gap_capacity),
    )
