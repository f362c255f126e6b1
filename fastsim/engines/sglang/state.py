"""The arrays a run works on, allocated once for the largest of many runs and reset in place by each."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.engines.heap import Heap, new_heap
from fastsim.engines.outputs import Gaps, RequestLog, new_request_log
from fastsim.engines.sglang.inputs import I64, SglangWorkload


class Requests(NamedTuple):
    """Live state of the requests, each int64 of shape (n,).

    ===============  ======  =============================================================================
    array            unit    meaning
    ===============  ======  =============================================================================
    status           Status
    limit            tokens  max_new_tokens, clipped on arrival
    target           tokens  generated tokens at which it ends
    stop_position    tokens  position of its stop token; -1: it ends without one
    generated        tokens
    prefix           tokens  computed so far, as the scheduler sees them
    kv               tokens  with a KV slot
    protected        tokens  its first ones, that belong to the radix tree
    node             node    where its lock on the tree ends; -1: no lock
    chunk_end        tokens  end of a chunk that is not yet given to the tree; -1: none
    has_row                  1: it holds a request slot
    tokens_at_match  tokens  its tokens when admission last tried it; 0: never
    stamp                    running number of its entry into the queue
    lives            count   how often it went back into the queue
    token_batch              number of the latest batch that gives it a token; -1: none since its last life began
    computed_peak    tokens  most tokens that it ever had computed
    prefilled        tokens
    retractions      count
    preemptions      count
    waiting_since_us us      start of its present or latest stay in the queue
    sort_key                 of the sort under way
    ===============  ======  =============================================================================
    """

    status: I64
    limit: I64
    target: I64
    stop_position: I64
    generated: I64
    prefix: I64
    kv: I64
    protected: I64
    node: I64
    chunk_end: I64
    has_row: I64
    tokens_at_match: I64
    stamp: I64
    lives: I64
    token_batch: I64
    computed_peak: I64
    prefilled: I64
    retractions: I64
    preemptions: I64
    waiting_since_us: I64
    sort_key: I64


class Lists(NamedTuple):
    """Plain lists; their lengths are scalars of `SCALARS_DTYPE`.

    ==========  ========  ============================================================================
    array       shape     meaning
    ==========  ========  ============================================================================
    waiting     (2n+2,)   the queue, from `wait_head` to `wait_tail`
    running     (n,)      requests that decode, in order
    scratch     (n,)      of a sort or a selection under way
    retracted   (n,)      in the pass under way, in order
    preempted   (n,)      in the pass under way
    kept_group  (g+1,)    lpm: number of the round in which `kept` was written
    kept        (g+1,)    lpm: longest shared prefix of a group among the requests kept in that round
    end_held    (n+1,)    exact test: tokens that each request ahead holds
    lanes       (p,)      fast-forward: running requests by the fill of their last page
    ==========  ========  ============================================================================
    """

    waiting: I64
    running: I64
    scratch: I64
    retracted: I64
    preempted: I64
    kept_group: I64
    kept: I64
    end_held: I64
    lanes: I64


class Ends(NamedTuple):
    """Exact test: `left`, float64, shape (n+1,): tokens until each request ends, beside `Lists.end_held`."""

    left: npt.NDArray[np.float64]


class Batches(NamedTuple):
    """The batch that was run last and the one before it, in two slots; lists of slot b start at b*n.

    ==============  =======  ==================================================================================
    array           shape    meaning
    ==============  =======  ==================================================================================
    extend          (2n,)    requests that are prefilled, in order
    extend_tokens   (2n,)
    extend_start    (2n,)    tokens that were there
    extend_ends     (2n,)    1: the prompt ends with it, the request gets a token
    extend_lives    (2n,)    of the request when the batch was built
    decode          (2n,)    requests that decode, in order
    decode_lives    (2n,)
    num_extends     (2,)
    num_decodes     (2,)
    chunked         (2,)     request in the middle of its prompt when it was built; -1: none
    number          (2,)     running number of the batch
    start_us        (2,)
    end_us          (2,)
    row             (2,)     its row in the record
    held_pages      (2,)     held while it runs
    seats           (2,)
    ==============  =======  ==================================================================================
    """

    extend: I64
    extend_tokens: I64
    extend_start: I64
    extend_ends: I64
    extend_lives: I64
    decode: I64
    decode_lives: I64
    num_extends: I64
    num_decodes: I64
    chunked: I64
    number: I64
    start_us: I64
    end_us: I64
    row: I64
    held_pages: I64
    seats: I64


class Tree(NamedTuple):
    """The radix tree: a node stands for tokens `start` to `end` of what request `source` holds. Node 0 is the root.

    Arrays of shape (nodes,), but `bucket`: (buckets,), a power of two.

    ========  ==================================================================
    array     meaning
    ========  ==================================================================
    source    request whose tokens these are
    start     first position
    end       position after the last
    parent    node
    key       which tokens its first page holds (see `tree.page_key`)
    children  count
    locks     requests that hold it or something below it
    used      time of last use
    next      next node in the same bucket, or next unused node
    bucket    first node of each bucket of the table (parent, key) -> node
    ========  ==================================================================
    """

    source: I64
    start: I64
    end: I64
    parent: I64
    key: I64
    children: I64
    locks: I64
    used: I64
    next: I64
    bucket: I64


class Record(NamedTuple):
    """What is written down of every pass: `rows` (r, len(ROW_COLUMNS)), `ratio` float64 (r,), `items` the lists."""

    rows: npt.NDArray[np.int64]
    ratio: npt.NDArray[np.float64]
    items: I64


class State(NamedTuple):
    """Everything a run works on, apart from the configuration, the scalars and the totals."""

    wl: SglangWorkload
    req: Requests
    lists: Lists
    ends: Ends
    batches: Batches
    tree: Tree
    leaves: Heap  # unlocked leaves by time of last use
    log: RequestLog
    gaps: Gaps
    record: Record


SCALARS_DTYPE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "num_requests",
            "now_us",
            "next_arrival",  # place in `order` of the next request to arrive
            "unfinished",  # arrived and not finished
            "wait_head",
            "wait_tail",
            "wait_sorted",  # leading part of the queue that is in order
            "num_running",
            "num_retracted",
            "num_preempted",
            "aborted",  # request aborted in the pass under way
            "full",  # batch_is_full
            "last",  # slot of the batch of the pass before; -1: none
            "flight",  # overlap: slot of the batch whose output is not yet processed; -1: none
            "chunked",  # request in the middle of its prompt; -1: none
            "batch",  # slot of the batch under construction
            "num_batches",
            "stamps",
            "waiting_peak",
            "finished",  # requests that the last output ended
            "refreshes",  # passes that count towards the refresh
            "passes_since_prefill",
            "put_off",  # the pass was not allowed to prefill
            "rows_free",  # request slots
            "free",  # tokens of pages that nobody owns
            "evictable",  # tokens in unlocked nodes
            "locked",  # tokens in locked nodes
            "num_nodes",  # of the tree, ever used
            "unused_node",
            "uses",  # counter of the tree's clock
            "hit",  # of the last match
            "hit_node",
            "rounds",  # of lpm sorts
            # budgets of the prefill pass under way
            "input_left",
            "chunk_left",
            "taken",
            "continued",  # 1: a chunked request went first
            "new_chunked",
            "num_ends",  # entries of the exact test; -1: not yet asked
            "more_room",  # 1: an array was too short
            "plain_turns",  # latest turns in a row in which everybody decoded and nothing else happened
            "rows",
            "items",
        )
    ]
    + [
        ("ratio", np.float64),  # new_token_ratio
        ("reserved", np.float64),
    ]
)

OWN_TOTALS_DTYPE = np.dtype([(name, np.int64) for name in ("retractions", "preemptions", "aborted")])
"""Totals that only this engine has, beside TOTALS_DTYPE."""

ROW_COLUMNS = (
    "t_us",
    "kind",
    "first_item",
    "num_extends",
    "num_decodes",
    "num_retracted",
    "num_preempted",
    "aborted",
    "first_finished",
    "num_finished",
    "free_scheduled",
    "free",
    "evictable",
    "locked",
    "rows_used",
    "waiting",
    "full",
    "start_us",
    "end_us",
    "processed",
)


def _zeros(count: int) -> I64:
    return np.zeros(max(count, 1), np.int64)


def new_state(
    workload: SglangWorkload,
    *,
    nodes: int = 1,
    page_size: int = 1,
    gaps: Gaps,
    log: RequestLog | None = None,
    record_rows: int = 0,
    record_items: int = 0,
) -> State:
    """Arrays for runs of `workload` with at most `nodes` nodes of the tree and pages of at most `page_size` tokens."""
    n = workload.num_requests
    sizes = {"extend": 2 * n, "decode": 2 * n}
    groups = len(workload.group_parent)
    buckets = 1 << max(nodes - 1, 1).bit_length()
    return State(
        wl=workload,
        req=Requests(*(_zeros(n) for _ in Requests._fields)),
        lists=Lists(
            waiting=_zeros(2 * n + 2),
            running=_zeros(n),
            scratch=_zeros(n),
            retracted=_zeros(n),
            preempted=_zeros(n),
            kept_group=_zeros(groups),
            kept=_zeros(groups),
            end_held=_zeros(n + 1),
            lanes=_zeros(page_size),
        ),
        ends=Ends(np.zeros(n + 1)),
        batches=Batches(*(_zeros(sizes.get(name.split("_")[0], 2)) for name in Batches._fields)),
        tree=Tree(*(_zeros(buckets if name == "bucket" else nodes) for name in Tree._fields)),
        leaves=new_heap(max(nodes, 1)),
        log=log if log is not None else new_request_log(n),
        gaps=gaps,
        record=Record(np.zeros((record_rows, len(ROW_COLUMNS)), np.int64), np.zeros(record_rows), _zeros(record_items)),
    )


def new_scalars(num_requests: int) -> npt.NDArray[np.void]:
    """The record of scalars a run works on, as an array of one."""
    scalars = np.zeros(1, SCALARS_DTYPE)
    scalars["num_requests"] = num_requests
    return scalars
