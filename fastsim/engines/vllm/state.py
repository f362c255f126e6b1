"""The state of one run: struct of arrays by request, by block run, and one record of scalars.

Allocated once for a chunk of configurations and reset in place. Kernels receive the whole `State`; it is borrowed, so
handing it on costs nothing.

Where a running request is kept
-------------------------------
``running`` is vLLM's list in admission order, here a doubly linked list (`run_next`, `run_prev`) ordered by
`admission_number`. Besides, each running request stands in exactly one *lane*:

* the lane EXPLICIT (number ``block_size``): its counters are written out and every step visits it. Prefills stand
  here; with fast-forward off, everybody does.
* a *decode-clock* lane 0 .. block_size - 1: it decodes one token in every step and nothing is written for it. With D
  the clock, its computed tokens are ``num_computed_tokens + D`` (the array then holds the offset), its length is one
  more, and it needs a block in the steps in which D modulo block_size is its lane's number.

Asynchronous scheduling: a request enters the clock in the schedule() call that makes its computed tokens whole, before
the token they sample is there. At a call one batch is in flight and one token of everybody on the clock with it, so
that T = C; the call after its last decode takes it off the clock, and it finishes when that output has come.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

NONE = -1
"""End of a linked list, or no such index."""


class WorkloadArrays(NamedTuple):
    """The requests offered, read-only, each array of shape (num_requests,) unless said otherwise.

    ====================  =====  ======  ==========================================================================
    array                 dtype  unit    meaning
    ====================  =====  ======  ==========================================================================
    arrival_us            int64  us      when the request is offered; with clients at the earliest
    order                 int32  index   requests by (arrival_us, index); those that arrive by themselves
    prompt_tokens         int32  tokens
    output_tokens         int32  tokens  tokens it will generate
    max_tokens            int32  tokens  the limit its client declared
    priority              int32          smaller is more urgent
    prefix_group          int32  index   whose prefix its prompt starts with; -1 nobody's
    prefix_tokens         int32  tokens  how much of it
    think_us              int64  us      closed loop: its client's pause before it
    clients               int64          (1,) closed loop of so many clients; 0: open loop
    group_parent          int32  index   (num_groups,) prefix group whose prefix this one extends; -1 none
    group_start_tokens    int32  tokens  (num_groups,) where this group's own tokens start
    group_end_tokens      int32  tokens  (num_groups,) longest prefix any request takes from it
    ====================  =====  ======  ==========================================================================
    """

    arrival_us: Int64Array
    order: Int32Array
    prompt_tokens: Int32Array
    output_tokens: Int32Array
    max_tokens: Int32Array
    priority: Int32Array
    prefix_group: Int32Array
    prefix_tokens: Int32Array
    priority_order: Int32Array
    priority_rank: Int32Array
    victim_rank: Int32Array
    think_us: Int64Array
    clients: Int64Array
    group_parent: Int32Array
    group_start_tokens: Int32Array
    group_end_tokens: Int32Array


class Requests(NamedTuple):
    """State by request, shape (num_requests,).

    =====================  =======  ========  ====================================================================
    array                  dtype    unit      meaning
    =====================  =======  ========  ====================================================================
    num_computed_tokens    int32    tokens    C; on the clock: C - D
    num_tokens             int32    tokens    T = prompt + generated; stale while on the clock (there T = C + 1, or C)
    num_blocks             int32    blocks    held; stale while on the clock
    num_cached_blocks      int32    blocks    leading held blocks that carry a hash; stale while on the clock
    shared_blocks          int32    blocks    leading blocks whose content other requests can have
    life_start_tokens      int32    tokens    C when it was last admitted
    max_computed_tokens    int32    tokens    highest C at the end of a life, for recomputed tokens
    max_num_tokens         int32    tokens    highest T at the end of a life, for livelock detection
    final_tokens           int32    tokens    T at which it finishes
    scheduled              int32    tokens    in this step (explicit requests)
    mid_prefill            int8     bool      the last step that ran it left C < T
    lane                   int32    index     -1 not running
    lane_next, lane_prev   int32    index     neighbours in the lane, in admission order
    run_next, run_prev     int32    index     neighbours in `running`; of a waiting request: in the queue
    admission_number       int64              position in `running` is by this
    end_clock              int64    steps     value of D in whose step it completes
    clock_slot             int32    index     place in the dense clock arrays
    queue_key              float64            heap order: (queue_key, arrival, index)
    in_heap                int8     bool      waits in the heap, not in the list
    heap_place             int32    index     place in the waiting heap; -1 not in it
    waiting_since_us       int64    us        when it last entered the queue
    bypasses               int32    count     admissions that passed it
    protected              int8     bool      preempted `boost_after` times
    swapped_blocks         int32    blocks    in the host pool; 0 unless swapped out
    cached_runs            int32    node      first run of its own content in the free list
    held_runs              int32    node      first run of held own content whose age differs from this life's
    life                   int32              admissions so far: the age of the content it hashes
    holding_row            int32    index     row of `Blocks.held_copies` while it holds shared content
    run_tick               int64    tick      restart: first token of its latest run (see `gaps`)
    token_tick             int64    tick      restart: its latest token; stale while on the clock
    flights                int8     count     batches in flight with tokens of it; on the clock: with an entry of it
    stale                  int8     bool      it was preempted with tokens in flight
    =====================  =======  ========  ====================================================================
    """

    num_computed_tokens: Int32Array
    num_tokens: Int32Array
    num_blocks: Int32Array
    num_cached_blocks: Int32Array
    shared_blocks: Int32Array
    life_start_tokens: Int32Array
    max_computed_tokens: Int32Array
    max_num_tokens: Int32Array
    final_tokens: Int32Array
    scheduled: Int32Array
    mid_prefill: npt.NDArray[np.int8]
    lane: Int32Array
    lane_next: Int32Array
    lane_prev: Int32Array
    run_next: Int32Array
    run_prev: Int32Array
    admission_number: Int64Array
    end_clock: Int64Array
    clock_slot: Int32Array
    queue_key: FloatArray
    in_heap: npt.NDArray[np.int8]
    heap_place: Int32Array
    waiting_since_us: Int64Array
    bypasses: Int32Array
    protected: npt.NDArray[np.int8]
    swapped_blocks: Int32Array
    cached_runs: Int64Array
    held_runs: Int64Array
    life: Int32Array
    holding_row: Int32Array
    run_tick: Int64Array
    token_tick: Int64Array
    flights: npt.NDArray[np.int8]
    stale: npt.NDArray[np.int8]


class Queues(NamedTuple):
    """Lists over requests.

    =====================  =======  =========================  ===================================================
    array                  dtype    shape                      meaning
    =====================  =======  =========================  ===================================================
    lane_head, lane_tail   int32    (max block_size + 1,)      ends of each lane; EXPLICIT is number block_size
    lane_size              int32    (max block_size + 1,)
    clock_request          int32    (num_requests,)            who is on the clock, dense, in no order
    clock_end              int64    (num_requests,)            its end_clock
    clock_offset           int32    (num_requests,)            dense loop: its C - D; there all in admission order
    clock_rank             int32    (num_requests,)            dense loop: its victim_rank
    heap                   int32    (num_requests,)            waiting requests ordered by queue_key; dense: a stack
    arrivals               int32    (num_requests,)            servable requests that arrive by themselves, in order
    arrival_heap           int32    (num_requests,)            requests whose arrival became known during the run
    scheduled              int32    (num_requests,)            explicit requests scheduled in this step, in order
    finished               int32    (num_requests,)            requests that complete in this step
    flight_request         int64    (2 x num_requests,)        asynchronous: explicit entries of the batches in flight,
    flight_samples         int8     (2 x num_requests,)        a half each; whether it samples a token for the request
    deferred               int64    (num_requests,)            waiting requests set aside during a scan: by bypass, from
                                                               the front; with stale output in flight, from the back
    received               int64    (num_requests,)            requests let in, in order of arrival: for deadlines
    held                   int64    (num_requests,)            requests kept at the door (ring)
    cap_window             int64    (2 x window,)              feedback: non-empty steps that preempted, how many (ring)
    door_window            int64    (2 x window,)              backpressure: the same
    =====================  =======  =========================  ===================================================
    """

    lane_head: Int64Array
    lane_tail: Int64Array
    lane_size: Int32Array
    clock_request: Int64Array
    clock_end: Int64Array
    clock_offset: Int32Array
    clock_rank: Int32Array
    heap: Int64Array
    arrivals: Int64Array
    arrival_heap: Int64Array
    scheduled: Int64Array
    finished: Int64Array
    flight_request: Int64Array
    flight_samples: npt.NDArray[np.int8]
    deferred: Int64Array
    received: Int64Array
    held: Int64Array
    cap_window: Int64Array
    door_window: Int64Array


class Blocks(NamedTuple):
    """The block allocator by content (prefix caching on): runs of blocks instead of single ones.

    Physical block numbers decide nothing. What decides is the order of the free list and which content each of its
    blocks still carries, so the free list is a doubly linked list of *runs*: blocks without a hash, or consecutive
    blocks of one request's own content, or one block of shared content (a *copy*, which exists while held, too).

    =====================  =====  ====================  ================================================================
    array                  dtype  shape                 meaning
    =====================  =====  ====================  ================================================================
    next, prev             int32  (num_nodes,)          neighbours in the free list (`next` of an unused node: unused)
    length                 int32  (num_nodes,)          blocks in the run; a held copy: 0
    owner                  int32  (num_nodes,)          request whose content it is; ANONYMOUS; SHARED
    last                   int32  (num_nodes,)          own content: its highest block (evicted first); copy: its slot
    age                    int32  (num_nodes,)          own content: life that hashed it (the oldest is hit first)
    sibling                int32  (num_nodes,)          next run of the same request, next copy of the same slot
    references             int32  (num_nodes,)          holders of a copy
    first_copy, last_copy  int32  (num_slots,)          oldest and youngest copy of each shared block
    group_slot             int32  (num_groups,)         slot of the group's block number group_first_block
    group_first_block      int32  (num_groups,)
    held_copies            int32  (rows * row_blocks,)  copy held for each shared block, a row a holder
    free_rows              int32  (rows,)               stack of unused rows
    =====================  =====  ====================  ================================================================
    """

    next: Int64Array
    prev: Int64Array
    length: Int32Array
    owner: Int32Array
    last: Int32Array
    age: Int32Array
    sibling: Int64Array
    references: Int32Array
    first_copy: Int64Array
    last_copy: Int64Array
    group_slot: Int32Array
    group_first_block: Int32Array
    held_copies: Int64Array
    free_rows: Int32Array
