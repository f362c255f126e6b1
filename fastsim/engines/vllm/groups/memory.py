"""The arrays of a run: allocated for the largest configuration of a chunk, reused by all of them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.engines.arrays import checked
from fastsim.engines.outputs import ITL_BINS, TOTALS_DTYPE, Gaps, RequestLog, new_request_log
from fastsim.engines.vllm.groups.fast_forward import DAYS
from fastsim.engines.vllm.groups.layout import GroupRecords
from fastsim.engines.vllm.groups.state import GROUPS_SCALARS_DTYPE, BlockPool, Queues, Requests, Tables
from fastsim.engines.vllm.memory import zeros_of
from fastsim.engines.vllm.state import WorkloadArrays


class Memory(NamedTuple):
    """What Python keeps of a run's state from call to call; `scalars` and `totals` have shape (1,)."""

    scalars: npt.NDArray[np.void]
    totals: npt.NDArray[np.void]
    requests: Requests
    queues: Queues
    tables: Tables
    pool: BlockPool
    log: RequestLog
    gaps: Gaps


def place_tables(records: GroupRecords, workload: WorkloadArrays) -> None:
    """Say where each group's entries start in a request's row of tables, and how long the row is."""
    lengths = workload.prompt_tokens.astype(np.int64) + workload.output_tokens
    longest = int(lengths.max(initial=1))
    groups = records.groups
    for record in records.engine:
        # Asynchronous: a batch of drafts in flight and another behind it, then what the drafter writes ahead
        tokens = min(longest, int(record["max_model_len"])) + 2 * int(record["k"]) + int(record["lookahead"]) + 2
        width = 0
        for g in range(record["first_group"], record["first_group"] + record["num_groups"]):
            groups.offset[g] = width
            width += -(-tokens // int(groups.block_size[g])) + int(groups.spec_blocks[g]) + 3
        record["row_width"] = width


def new_memory(records: GroupRecords, workload: WorkloadArrays) -> Memory:
    """Arrays large enough for each of the configurations over this workload; `place_tables` came before.

    Raises
    ------
    InputError
        When tables or contents would not fit in memory.
    """
    engine = records.engine
    num_requests = len(workload.prompt_tokens)
    prefix_groups = len(workload.group_end_tokens)
    most_groups = int(engine["num_groups"].max())
    cached = engine["enable_prefix_caching"] != 0
    rows = min(num_requests, int(engine["max_num_seqs"].max())) + 1
    blocks = int(engine["num_gpu_blocks"][cached].max(initial=0))
    width = int(engine["row_width"].max())
    keys = max((_keys(records, int(c), workload) for c in np.flatnonzero(cached)), default=0)
    advice = "lower engine.max_num_seqs, or the number and lengths of the requests"
    checked(rows * width, f"block tables of {rows:,} running requests", advice)
    checked(keys, "the contents of blocks", advice)
    in_flight = 2 * num_requests
    sizes = {
        "day_head": DAYS,
        "cap_window": 2 * (int(engine["feedback_window"].max()) + 1),
        "door_window": 2 * (int(engine["backpressure_window"].max()) + 1),
    } | dict.fromkeys(("batch_request", "batch_tokens", "batch_drafts", "batch_padded", "batch_samples"), in_flight)
    tables = dict.fromkeys(("length", "gone", "live", "hashed", "allocated"), rows * most_groups)
    tables |= {"entries": rows * width if cached.any() else 0, "free_rows": rows, "hits": width}
    pool = {"own_key": num_requests * most_groups if cached.any() else 0}
    pool |= dict.fromkeys(("shared_key", "shared_first"), prefix_groups * most_groups)
    pool |= dict.fromkeys(("oldest", "youngest", "hashed_in"), keys)
    return Memory(
        scalars=np.zeros(1, GROUPS_SCALARS_DTYPE),
        totals=np.zeros(1, TOTALS_DTYPE),
        requests=zeros_of(Requests, {}, num_requests),
        queues=zeros_of(Queues, sizes, num_requests),
        tables=zeros_of(Tables, tables, most_groups),
        pool=zeros_of(BlockPool, pool, blocks),
        log=new_request_log(num_requests),
        gaps=Gaps(np.zeros(ITL_BINS, np.int64)),
    )


def _keys(records: GroupRecords, c: int, workload: WorkloadArrays) -> int:
    """Contents that blocks can have in configuration `c`: a request's own, and those of shared prefixes.

    A prefix group that nobody uses may end before it starts: it has none.
    """
    record = records.engine[c]
    lengths = workload.prompt_tokens.astype(np.int64) + workload.output_tokens
    lengths = np.minimum(lengths, int(record["max_model_len"]))
    starts, ends = workload.group_start_tokens.astype(np.int64), workload.group_end_tokens.astype(np.int64)
    keys = 0
    for g in range(record["first_group"], record["first_group"] + record["num_groups"]):
        b = int(records.groups.block_size[g])
        keys += int((-(-lengths // b)).sum()) + int(np.maximum(ends // b - starts // b + 2, 0).sum())
    return keys
