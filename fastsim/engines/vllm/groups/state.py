"""The state of one run: struct of arrays by request, by block table and by block.

Allocated once for a chunk of configurations and reset in place (see `fastsim.engines.vllm.state`, whose helpers for
queues, arrivals, caps and clients work on this state, too: fields of the same name mean the same).
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.engines.outputs import Gaps, RequestLog
from fastsim.engines.vllm.groups.codes import Groups
from fastsim.engines.vllm.scalars import SCALARS_DTYPE
from fastsim.engines.vllm.state import WorkloadArrays

Int8Array = npt.NDArray[np.int8]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

GROUPS_SCALARS_DTYPE = np.dtype(
    [
        *((name, SCALARS_DTYPE[name]) for name in SCALARS_DTYPE.names or ()),
        *(
            (name, np.int64)
            for name in (
                "call",  # number of this schedule() call
                "input_budget",
                "cursor",  # next request of the running loop
                "may_pad",  # the running loop scheduled nobody in the middle of a prefill
                "ran_any",  # it scheduled somebody
                "samplers",  # requests of this step that sample
                "hit_tokens",  # of the request looked at by the waiting loop; likewise the next
                "junction",
                "anonymous",  # free blocks without content: a stack
                "watched_block_taken",
                "rec_verified",
            )
        ),
    ]
)


class Requests(NamedTuple):
    """State by request, shape (num_requests,); tokens unless said otherwise.

    =====================  =======  ================================================================================
    array                  dtype    meaning
    =====================  =======  ================================================================================
    num_computed_tokens    int32    C; asynchronous: tokens in flight included
    num_tokens             int32    T = prompt + generated
    num_blocks             int32    blocks held in all groups
    max_computed_tokens    int32    highest C, for recomputed tokens
    max_num_tokens         int32    highest T, for livelock detection
    final_tokens           int32    T at which it finishes
    shared_tokens          int32    of its prompt, those other requests can have
    drafts                 int32    drafts waiting to be verified
    junction               int32    where, at its last lookup, some group remembered more than all of them; 0: nowhere
    scheduled              int32    in this step; likewise the next two
    scheduled_drafts       int32
    padded                 int8     bool: its drafts only fill up
    mid_prefill            int8     bool: the last step that ran it sampled nothing
    row                    int32    index of its block tables; -1 not running
    quiet_start            int32    below this C nothing can be evicted
    quiet_end              int32    up to this C no group needs a block or can hash one
    hash_at                int32    from this C on a block may be hashed
    placeholders           int32    asynchronous: tokens that batches in flight may sample
    inflight               int32    asynchronous: scheduled tokens not returned
    stale                  int32    asynchronous: of those, scheduled before it was preempted
    lane                   int32    as in `vllm.state`, always that of explicit requests
    verified_drafts        int32
    accepted_drafts        int32
    =====================  =======  ================================================================================

    The others are as in `fastsim.engines.vllm.state.Requests`.
    """

    num_computed_tokens: Int32Array
    num_tokens: Int32Array
    num_blocks: Int32Array
    max_computed_tokens: Int32Array
    max_num_tokens: Int32Array
    final_tokens: Int32Array
    shared_tokens: Int32Array
    drafts: Int32Array
    junction: Int32Array
    scheduled: Int32Array
    scheduled_drafts: Int32Array
    padded: Int8Array
    mid_prefill: Int8Array
    row: Int32Array
    quiet_start: Int32Array
    quiet_end: Int32Array
    hash_at: Int32Array
    placeholders: Int32Array
    inflight: Int32Array
    stale: Int32Array
    lane: Int32Array
    run_next: Int32Array
    run_prev: Int32Array
    admission_number: Int64Array
    queue_key: npt.NDArray[np.float64]
    in_heap: Int8Array
    heap_place: Int32Array
    waiting_since_us: Int64Array
    bypasses: Int32Array
    protected: Int8Array
    swapped_blocks: Int32Array
    verified_drafts: Int32Array
    accepted_drafts: Int32Array


class Queues(NamedTuple):
    """Lists over requests, as in `fastsim.engines.vllm.state.Queues`; `batch_*` are the batches in flight, half each.

    `batch_request`, `batch_tokens`, `batch_drafts`, `batch_padded`, `batch_samples`: shape (2 x num_requests,).

    The calendar of fast-forward: `day_head` (DAYS,) and `day_next` list who is due on a day, `due` those in running
    order; of a request, `next_day` when its tables change next (its C is that of this day), `base_day` and
    `base_computed` a day before it and its C then, `start_computed` its C on day 0.
    """

    heap: Int64Array
    arrivals: Int64Array
    arrival_heap: Int64Array
    scheduled: Int64Array
    deferred: Int64Array
    received: Int64Array
    held: Int64Array
    cap_window: Int64Array
    door_window: Int64Array
    batch_request: Int64Array
    batch_tokens: Int32Array
    batch_drafts: Int32Array
    batch_padded: Int8Array
    batch_samples: Int8Array
    day_head: Int32Array
    day_next: Int32Array
    due: Int32Array
    next_day: Int32Array
    base_day: Int32Array
    base_computed: Int32Array
    start_computed: Int32Array


class Tables(NamedTuple):
    """Block tables of running requests: a row each, in it one part for each group (`Groups.offset`).

    ============  =====  ====================  ==================================================================
    array         dtype  shape                 meaning
    ============  =====  ====================  ==================================================================
    entries       int32  (rows * row_width,)   block, or NONE; only with prefix caching
    length        int32  (rows * num_groups,)  entries in use
    gone          int32  (rows * num_groups,)  leading entries that are NONE for good
    live          int32  (rows * num_groups,)  entries that are blocks
    hashed        int32  (rows * num_groups,)  leading entries that were offered for hashing
    allocated     int8   (rows * num_groups,)  has taken blocks since its admission
    free_rows     int32  (rows,)               stack of unused rows
    hits          int32  (row_width,)          what the request looked at finds in the cache
    hit_length    int32  (num_groups,)
    hit_from      int32  (num_groups,)         entries before it are NONE
    class_from    int32  (num_groups,)         the same while classes are searched, at the place of their first group
    class_length  int32  (num_groups,)
    class_state   int8   (num_groups,)         1: searched before; 2: and its last block dropped
    checkpoint    int8   (num_groups,)         bool: this step's chunk writes a state before its end
    ============  =====  ====================  ==================================================================
    """

    entries: Int32Array
    length: Int32Array
    gone: Int32Array
    live: Int32Array
    hashed: Int32Array
    allocated: Int8Array
    free_rows: Int32Array
    hits: Int32Array
    hit_length: Int32Array
    hit_from: Int32Array
    class_from: Int32Array
    class_length: Int32Array
    class_state: Int8Array
    checkpoint: Int8Array


class BlockPool(NamedTuple):
    """The blocks of the shared pool and what they hold; only with prefix caching.

    Free blocks without content always stand before those with: they are a stack, the others a list, oldest first.

    ==================  =====  ==============================  ====================================================
    array               dtype  shape                           meaning
    ==================  =====  ==============================  ====================================================
    references          int32  (blocks,)                       holders
    next, prev          int32  (blocks,)                       neighbours in the list of free blocks with content
    key                 int32  (blocks,)                       its content, or NONE
    same_next           int32  (blocks,)                       next younger block of the same content
    same_prev           int32  (blocks,)                       next older
    watched             int8   (blocks,)                       bool: whether it is taken matters to fast-forward
    stack               int32  (blocks,)                       free blocks without content
    oldest, youngest    int32  (keys,)                         blocks of a content, or NONE
    hashed_in           int64  (keys,)                         number of the call that last hashed it
    own_key             int64  (num_requests * num_groups,)    key of a request's own block 0
    shared_key          int64  (prefix groups * num_groups,)   key of a shared prefix's block number shared_first
    shared_first        int32  (prefix groups * num_groups,)
    ==================  =====  ==============================  ====================================================
    """

    references: Int32Array
    next: Int32Array
    prev: Int32Array
    key: Int32Array
    same_next: Int32Array
    same_prev: Int32Array
    watched: Int8Array
    stack: Int32Array
    oldest: Int32Array
    youngest: Int32Array
    hashed_in: Int64Array
    own_key: Int64Array
    shared_key: Int64Array
    shared_first: Int32Array


class Record(NamedTuple):
    """The per-step record: as `fastsim.engines.vllm.recorder.Recorder`, and what groups and drafts add.

    `held` (capacity * num_groups): blocks by group after schedule(). `verified` (capacity, 3): request, drafts
    verified, accepted; `steps_verified` (capacity,): how many of these a step has.
    """

    steps: Any
    scheduled: Any
    preempted: Any
    finished: Any
    calls: Any
    events: Any
    held: Int32Array
    verified: Any
    steps_verified: Int32Array


class State(NamedTuple):
    """Everything a run reads and writes; every part is borrowed."""

    cfg: Any
    table: Any  # of step times: PARAMS_DTYPE
    st: Any
    tot: Any
    wl: WorkloadArrays
    req: Requests
    q: Queues
    grp: Groups
    tab: Tables
    pool: BlockPool
    log: RequestLog
    gaps: Gaps
    rec: Record
