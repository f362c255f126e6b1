"""The arrays a run works on, allocated once for the largest of many runs and reset in place by each.

All are int64: requests are few, and one integer type keeps every helper at one signature.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.engines.arrays import checked, zeros
from fastsim.engines.outputs import RequestLog, new_request_log
from fastsim.engines.rlt.codes import NUM_STAGES
from fastsim.engines.rlt.inputs import I64, RltWorkload


class RequestState(NamedTuple):
    """Live state of the requests, each of shape (n,).

    =================  ======  =======================================================================
    array              unit    meaning
    =================  ======  =======================================================================
    stage              Stage
    saved_stage        Stage   stage a swapped-out request returns to; NONE: no snapshot
    held_pages         pages
    saved_pages        pages   pages of the snapshot
    prefilled          tokens  prompt tokens whose KV is complete
    outputs            tokens  output tokens so far
    loops_done         loops   of the output in the making
    bypasses           count   admission_bypasses: only ever incremented
    waiting_since_us   us      start of the current stay in the waiting queue
    active_slot                place in the list of active requests
    selected                   1: in the batch being formed
    =================  ======  =======================================================================
    """

    stage: I64
    saved_stage: I64
    held_pages: I64
    saved_pages: I64
    prefilled: I64
    outputs: I64
    loops_done: I64
    bypasses: I64
    waiting_since_us: I64
    active_slot: I64
    selected: I64


class Links(NamedTuple):
    """FIFOs as doubly linked lists over the same elements: head, tail, size (q,); next, prev (elements,)."""

    head: I64
    tail: I64
    size: I64
    next: I64
    prev: I64


class Lists(NamedTuple):
    """Plain lists, their lengths in scalars of `SCALARS_DTYPE`.

    ==================  ==================  ==========================================================
    array               shape               meaning
    ==================  ==================  ==========================================================
    waiting             (2n+2,)             the waiting queue, from `wait_head` to `wait_tail`
    deferred            (n,)                requests passed over by the scan under way
    active              (n,)                active requests, in no order
    seen                (3n + tasks + 10,)  state after the last empty step (see livelock)
    anchor              (3n + tasks + 10,)  state after an empty step before that
    anchor_preemptions  (n,)                of each request, at the anchor
    ==================  ==================  ==========================================================
    """

    waiting: I64
    deferred: I64
    active: I64
    seen: I64
    anchor: I64
    anchor_preemptions: I64


class StepItems(NamedTuple):
    """Items of a step in selection order, (max(n, tasks),): request, first token, tokens, depth, element it was."""

    request: I64
    start: I64
    tokens: I64
    depth: I64
    element: I64


class Wave(NamedTuple):
    """Wavefront prefill. A task is one range of a prompt on its way through the depths: task_base[i] + range number.

    In the PREFILL queue task number t is element n + t.

    ==============  ==========  =====================================================================
    array           shape       meaning
    ==============  ==========  =====================================================================
    task_base       (n,)        task of the request's first range
    request         (tasks,)
    start           (tasks,)    first token of the range
    depth           (tasks,)    loop it is to run next
    written         (n*loops,)  prompt tokens whose KV is there, by request and depth
    saved_head      (n,)        first of the elements a swapped-out request took along, chained by `next`
    ==============  ==========  =====================================================================
    """

    task_base: I64
    request: I64
    start: I64
    depth: I64
    written: I64
    saved_head: I64


class Pages(NamedTuple):
    """Pages with an identity: the shareable prompt pages under prefix caching. All others are merely counted.

    ============  ========  ====================================================================
    array         shape     meaning
    ============  ========  ====================================================================
    holders       (pages,)  requests that hold it
    key           (pages,)  key it is cached under; NONE
    unused        (pages,)  stack of free identities
    page_of_key   (keys,)   page cached under the key; NONE
    owned         (k,)      page of each request's shareable prompt page, laid out as page_keys
    ============  ========  ====================================================================
    """

    holders: I64
    key: I64
    unused: I64
    page_of_key: I64
    owned: I64


class NoteTape(NamedTuple):
    """What the recorder writes: `rows` (rows, 5), a `Note` and its operands each. No rows: off."""

    rows: I64


class State(NamedTuple):
    """Everything a run works on, apart from the configuration, the scalars and the totals.

    `stages` has a FIFO for each of the four stages, over requests and (PREFILL under wavefront) tasks; `lru` has one,
    the cached pages, oldest first.
    """

    wl: RltWorkload
    req: RequestState
    lists: Lists
    stages: Links
    batch: StepItems
    wave: Wave
    pages: Pages
    lru: Links
    log: RequestLog
    tape: NoteTape


SCALARS_DTYPE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "num_requests",
            "now_us",
            "next_arrival",  # index of the next request to arrive
            "unfinished",  # submitted and not finished
            "phase",  # Phase
            "prefills_since_recurrent",
            "live_pages",  # held by a request or kept by the prefix cache
            "idle_cached_pages",  # kept by the prefix cache alone
            "cached_pages",
            "unused_pages",  # height of the stack Pages.unused
            "wait_head",
            "wait_tail",
            "wait_sorted",  # leading part of the waiting queue that is in order
            "num_active",
            "batch_size",
            "batch_tokens",
            "tape_rows",  # rows noted; more than the tape has means it was too short
            # of the step under way:
            "admissions",
            "restores",
            "blocked",
            "deferred",
            "slot_preemptions",
            "grow_preemptions",
            "failed_growths",
            "ineffective_preemptions",
            "moved_out_blocks",
            "moved_in_blocks",
            "seen_step",  # number of the empty step whose state `seen` holds
            "seen_length",
            # the anchor of the livelock watch: time and totals when it was dropped, steps it is good for
            "anchor_distance",
            "anchor_us",
            "anchor_steps",
            "anchor_preemptions",
            "anchor_swapped_out",
            "anchor_swapped_in",
            "anchor_ineffective",
            "anchor_kv",
            "anchor_running",
            "anchor_resumptions",
            "anchor_slot",
            "anchor_grow",
            "anchor_failed",
            "anchor_blocked",
            "anchor_deferred",
        )
    ]
)

RLT_TOTALS_DTYPE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "resumptions",  # snapshots restored
            "slot_preemptions",
            "grow_preemptions",
            "failed_growths",  # no page even after a preemption
            "blocked",  # swapped-out requests that did not fit, summed over scans
            "deferred",  # fresh requests that did not fit, summed over scans
            "admissions",
            "prefill_steps",
            "prelude_steps",
            "recurrent_steps",
            "coda_steps",
            "snapshots_end",
            "free_end_blocks",
            "max_bypasses",
            "skipped_steps",  # repetitions of empty steps that were counted, not run
            "livelock_period",  # steps of the cycle; 0: no livelock
        )
    ]
)
"""Totals that only this engine has, beside TOTALS_DTYPE. Counts; blocks as named."""


def _zeros(count: int) -> I64:
    return zeros(max(count, 1), np.int64)


def _links(queues: int, elements: int) -> Links:
    return Links(_zeros(queues), _zeros(queues), _zeros(queues), _zeros(elements), _zeros(elements))


def new_state(
    workload: RltWorkload,
    *,
    num_tasks: int = 0,
    max_loops: int = 1,
    num_pages: int = 0,
    log: RequestLog | None = None,
    tape_rows: int = 0,
) -> State:
    """Arrays for runs of `workload`: at most `num_tasks` wavefront ranges, `max_loops`, `num_pages` cacheable pages."""
    n = workload.num_requests
    checked(num_tasks, "the ranges of all prompts", "raise engine.rlt.prefill_chunk_size")
    # A page with an identity is one of a prompt's that somebody holds, or that the cache keeps
    num_pages = min(num_pages, len(workload.page_keys) + workload.num_keys)
    return State(
        wl=workload,
        req=RequestState(*(_zeros(n) for _ in RequestState._fields)),
        lists=Lists(
            waiting=_zeros(2 * n + 2),
            deferred=_zeros(n),
            active=_zeros(n),
            seen=_zeros(3 * n + num_tasks + 10),
            anchor=_zeros(3 * n + num_tasks + 10),
            anchor_preemptions=_zeros(n),
        ),
        stages=_links(NUM_STAGES, n + num_tasks),
        batch=StepItems(*(_zeros(max(n, num_tasks)) for _ in StepItems._fields)),
        wave=Wave(
            task_base=_zeros(n),
            request=_zeros(num_tasks),
            start=_zeros(num_tasks),
            depth=_zeros(num_tasks),
            written=_zeros(n * max_loops if num_tasks else 0),
            saved_head=_zeros(n),
        ),
        pages=Pages(
            holders=_zeros(num_pages),
            key=_zeros(num_pages),
            unused=_zeros(num_pages),
            page_of_key=_zeros(workload.num_keys),
            owned=_zeros(len(workload.page_keys)),
        ),
        lru=_links(1, num_pages),
        log=log if log is not None else new_request_log(n),
        tape=NoteTape(np.zeros((tape_rows, 5), np.int64)),
    )


def new_scalars(num_requests: int) -> npt.NDArray[Any]:
    """The record of scalars a run works on, as an array of one."""
    scalars = np.zeros(1, SCALARS_DTYPE)
    scalars["num_requests"] = num_requests
    return scalars
