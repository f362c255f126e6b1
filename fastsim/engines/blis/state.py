"""The state of one run: struct of arrays by request, by block, and one record of scalars.

Allocated once for many configurations and reset in place. Two ideas carry it:

The decode clock
    A request that decodes is given one token in every step, so nothing is written for it: with D the clock (the number
    of steps so far), its progress is ``progress + D``, where the array holds the offset; it ends in the step after
    which D is its ``end_clock``; and it needs a new block in the steps in which D modulo block_size is its ``lane``. In
    the rare step that passes it over, offset, end and lane move by one.

Blocks with and without identity
    Which physical block holds what has no consequence. What has is the order of *contents* in the free list, and of
    those only prompt blocks are ever looked up. So a full prompt block has a label and a key; all other blocks are
    counted, and stand in the free list as runs. With a CPU tier every block has a label, since the tier keeps decode
    blocks too.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.engines.blis.inputs import BlisWorkload
from fastsim.engines.heap import Heap
from fastsim.engines.outputs import RequestLog

Int64Array = npt.NDArray[np.int64]


class Requests(NamedTuple):
    """State by request, shape (num_requests,).

    ================  =====  ======  =============================================================================
    array             dtype  unit    meaning
    ================  =====  ======  =============================================================================
    progress          int64  tokens  computed; of a decoding request: minus the clock
    computed          int64  tokens  what progress becomes with this step (prefill)
    num_new_tokens    int64  tokens  given in this step (prefill)
    start_tokens      int64  tokens  progress at admission: its prefix hit
    highest_tokens    int64  tokens  most progress of any earlier life
    lane              int64          -1: does not decode
    end_clock         int64  steps   clock after its last step
    prompt_blocks     int64  blocks  full blocks of its prompt
    shared_blocks     int64  blocks  those that lie inside the shared prefix as a whole
    key_start         int64  index   key of its first block, if it were its own
    table_start       int64  index   its part of `Blocks.table`
    table_len         int64  blocks  labelled blocks it holds
    plain_start       int64  tokens  where its blocks without label start
    gap_start         int64  index   segment in which its present stretch of decoding began
    ranges            int64  node    earlier stretches of this life
    stall_us          int64  us      passed over for so long just before the present stretch
    decode_start_us   int64  us      `decoded_us` when it began to decode, moved by the steps that passed it over
    waiting_since_us  int64  us
    ================  =====  ======  =============================================================================
    """

    progress: Int64Array
    computed: Int64Array
    num_new_tokens: Int64Array
    start_tokens: Int64Array
    highest_tokens: Int64Array
    lane: Int64Array
    end_clock: Int64Array
    prompt_blocks: Int64Array
    shared_blocks: Int64Array
    key_start: Int64Array
    table_start: Int64Array
    table_len: Int64Array
    plain_start: Int64Array
    gap_start: Int64Array
    ranges: Int64Array
    stall_us: Int64Array
    decode_start_us: Int64Array
    waiting_since_us: Int64Array


class Blocks(NamedTuple):
    """The GPU block cache.

    The free list is `ring[ring_head:ring_tail]`, head first: l + 1 is the block with label l, -n a run of n blocks
    without label, 0 an entry whose block was claimed.

    ==============  =====  =================  ====================================================================
    array           dtype  shape              meaning
    ==============  =====  =================  ====================================================================
    references      int64  (labels,)          tables that hold the block
    key             int64  (labels,)          -1: none
    slot            int64  (labels,)          its entry in `ring` while it is free
    filled          int64  (labels,)          tokens in it (CPU tier)
    position        int64  (labels,)          of its first token (CPU tier)
    spare           int64  (labels,)          stack of labels given back
    ring            int64  (ring,)
    table           int64  (all tables,)      labels by request
    label           int64  (keys,)            block registered for a key; -1 none
    group_key       int64  (groups,)          first key of a shared prefix
    cached          int64  (longest table,)   result of a look-up
    ==============  =====  =================  ====================================================================
    """

    references: Int64Array
    key: Int64Array
    slot: Int64Array
    filled: Int64Array
    position: Int64Array
    spare: Int64Array
    ring: Int64Array
    table: Int64Array
    label: Int64Array
    group_key: Int64Array
    cached: Int64Array


class Tier(NamedTuple):
    """The CPU tier: an LRU list of keys, and numbers for the keys of irregular chains.

    ==============  =====  ===========  ==========================================================================
    array           dtype  shape        meaning
    ==============  =====  ===========  ==========================================================================
    node_key        int64  (nodes,)     key kept in a node of the LRU list
    node_prev       int64  (nodes,)     towards the least recently used
    node_next       int64  (nodes,)
    key_node        int64  (keys,)      node of a key; -1 not in the tier
    chain_slot      int64  (hash,)      open addressing: number of an irregular key, or -1
    chain_previous  int64  (chains,)    key of the block before it
    chain_owner     int64  (chains,)    whose tokens: a request, or num_requests + a group
    chain_position  int64  (chains,)    position of its first token
    ==============  =====  ===========  ==========================================================================
    """

    node_key: Int64Array
    node_prev: Int64Array
    node_next: Int64Array
    key_node: Int64Array
    chain_slot: Int64Array
    chain_previous: Int64Array
    chain_owner: Int64Array
    chain_position: Int64Array


GAP_DIGIT_BITS = 12
GAP_COUNTS = 1 << GAP_DIGIT_BITS
"""The selection of a percentile looks at so many bits of a gap at a time."""


class StepGaps(NamedTuple):
    """Step times, and who decoded through them; see `gaps`.

    ==============  =====  =============  ========================================================================
    array           dtype  shape          meaning
    ==============  =====  =============  ========================================================================
    step_us         int64  (segments,)    time of each step of the segment
    steps           int64  (segments,)    how many
    weight          int64  (segments,)    first: change in the number of requests; in the end: gaps of this length
    range_start     int64  (ranges,)      first segment of a stretch of decoding
    range_end       int64  (ranges,)      one past its last
    range_next      int64  (ranges,)
    range_stall_us  int64  (ranges,)      passed over for so long before it
    counts          int64  (GAP_COUNTS,)  scratch of the selection
    ==============  =====  =============  ========================================================================
    """

    step_us: Int64Array
    steps: Int64Array
    weight: Int64Array
    range_start: Int64Array
    range_end: Int64Array
    range_next: Int64Array
    range_stall_us: Int64Array
    counts: Int64Array


class BlisLog(NamedTuple):
    """What BLIS reports of a request, shape (num_requests,), int64 each.

    ===================  =====  ==================================================================================
    array                unit   meaning
    ===================  =====  ==================================================================================
    ttft_us              us     from arrival to the end of the latest prefill, plus alpha2; 0: never prefilled
    e2e_us               us     ttft_us + itl_sum_us; 0: not completed. Less than the time on the clock when steps
                                passed the request over, more by alpha2 a token
    scheduling_delay_us  us     from arrival to its latest admission; -1: never admitted
    itl_sum_us           us     sum of the times of the steps that gave it a token, plus alpha2 each; 0: not completed
    itl_count            count  how many
    ===================  =====  ==================================================================================
    """

    ttft_us: Int64Array
    e2e_us: Int64Array
    scheduling_delay_us: Int64Array
    itl_sum_us: Int64Array
    itl_count: Int64Array


class Lists(NamedTuple):
    """Lists that are not by request.

    =========  =====  ===============  ==============================================
    array      dtype  shape            meaning
    =========  =====  ===============  ==============================================
    running    int64  (num_requests,)  running requests in the order of their admission
    lane_size  int64  (block_size,)    decoding requests by lane
    values     int64  (num_requests,)  scratch of the aggregates
    =========  =====  ===============  ==============================================
    """

    running: Int64Array
    lane_size: Int64Array
    values: Int64Array


class State(NamedTuple):
    """Everything a run reads and writes, except the configuration and the scalars.

    Kernels receive it with every part borrowed, so handing it on costs nothing.
    """

    wl: BlisWorkload
    req: Requests
    blocks: Blocks
    tier: Tier
    gaps: StepGaps
    queueing: Heap  # arrived, not yet in the queue
    waiting: Heap
    deadlines: Heap
    lists: Lists
    log: RequestLog
    blis: BlisLog
