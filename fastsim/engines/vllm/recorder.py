"""The record of a run: what the scheduler decided in every step, and the tape of what else its kernel knew.

Written only when the configuration asks for it; a run without it carries arrays of length one and tests one flag where
something could be noted. A kernel cannot grow an array: when one is full the run stops with `LOG_FULL` and is repeated
with more room. `fastsim.engines.vllm.tape` reads it back.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim._jit import helper, inlined
from fastsim.engines.vllm.codes import PreemptionMode
from fastsim.engines.vllm.gaps import gap_log_has_room
from fastsim.engines.vllm.lanes import on_clock
from fastsim.engines.vllm.scalars import ScanEnd
from fastsim.engines.vllm.state import NONE

SAME = -1
"""Number of scheduled entries of a step whose list is that of the step before."""

STEP_COLUMNS = (
    "t_us",
    "scheduled",
    "preempted",
    "finished",
    "free_mid",
    "free_end",
    "running",
    "waiting",
    "start_us",
    "end_us",
)
"""Columns of `Recorder.steps`; scheduled, preempted, finished: how many entries the step has in the flat lists."""

CALL_COLUMNS = ("running", "reason", "request", "events", "admissions", "all_decode")
"""Columns of `Recorder.calls`: running requests, ScanEnd, for whom (NONE: nobody), how many events since the call
before; and whether the list is everybody running with one token each, after so many admissions of the run."""

EVENT_COLUMNS = 9
LIMITS = ("max_num_queued_reqs", "max_num_queued_tokens", "backpressure_threshold")
"""What turns a request away at the door, as events number it."""


class EventKind(IntEnum):
    """What a row of the tape says; its columns behind kind and request."""

    QUEUED = 0  # others ahead
    HELD = 1
    REJECTED = 2  # place in LIMITS, what it found
    ADMITTED = 3  # length, computed tokens, whether from the host
    PREEMPTED = 4  # evictor, blocks it lacked, computed, generated, kept tokens, blocks freed, blocks to the host
    REFUSED = 5  # ScanEnd, needed, available, watermark


class Recorder(NamedTuple):
    """Flat lists of decisions, filled up to the lengths in the scalars.

    ==========  =====  ==============  =================================================================
    array       dtype  shape           meaning
    ==========  =====  ==============  =================================================================
    steps       int64  (capacity, 10)  one row a schedule() call: `STEP_COLUMNS`
    scheduled   int32  (capacity, 2)   request and tokens, in the scheduler's order
    preempted   int32  (capacity,)     requests, in preemption order
    finished    int32  (capacity,)     requests, in scheduling order
    calls       int64  (capacity, 6)   one row a schedule() call: `CALL_COLUMNS`
    events      int64  (capacity, 9)   `EventKind`, request, and what belongs to the kind
    ==========  =====  ==============  =================================================================
    """

    steps: npt.NDArray[np.int64]
    scheduled: npt.NDArray[np.int32]
    preempted: npt.NDArray[np.int32]
    finished: npt.NDArray[np.int32]
    calls: npt.NDArray[np.int64]
    events: npt.NDArray[np.int64]


def new_recorder(capacity: int) -> Recorder:
    """Room for `capacity` steps, scheduled entries, preemptions, completions and events each."""
    return Recorder(
        np.zeros((capacity, len(STEP_COLUMNS)), np.int64),
        np.zeros((capacity, 2), np.int32),
        np.zeros(capacity, np.int32),
        np.zeros(capacity, np.int32),
        np.zeros((capacity, len(CALL_COLUMNS)), np.int64),
        np.zeros((capacity, EVENT_COLUMNS), np.int64),
    )


# --- Room -------------------------------------------------------------------------------------------------------------


@inlined
def logs_have_room(s, num_requests):
    """Whether whatever the next step may be fits in the record and in the log of gaps."""
    return (not s.cfg["record"] or _record_has_room(s, num_requests)) and gap_log_has_room(s, num_requests)


@helper
def _record_has_room(s, num_requests):
    """Whether any possible next step fits. Of preemptions and events, which have no simple bound, those until now did:
    what finds no room is counted, but not written.
    """
    return (
        s.st["rec_steps"] + s.st["in_flight"] < s.rec.steps.shape[0]
        and s.st["rec_scheduled"] + num_requests <= s.rec.scheduled.shape[0]
        and s.st["rec_preempted"] <= s.rec.preempted.shape[0]
        and s.st["rec_finished"] + num_requests <= s.rec.finished.shape[0]
        and s.st["rec_events"] <= s.rec.events.shape[0]
    )


# --- Steps ------------------------------------------------------------------------------------------------------------


@helper
def record_schedule(s, start_us, end_us):
    """After schedule(): the scheduled list in the order of the running list, free blocks, and how the scan ended."""
    row = s.st["rec_steps"] + s.st["in_flight"]
    s.rec.steps[row, 0] = s.st["now_us"]
    s.rec.steps[row, 2] = s.st["preempted"]
    s.rec.steps[row, 4] = s.st["free"]
    s.rec.steps[row, 8] = start_us
    s.rec.steps[row, 9] = end_us
    if _decodes_like_before(s, row):
        s.rec.steps[row, 1] = SAME
        s.rec.calls[row, 5] = 1
    else:
        _record_list(s, row)
    s.rec.calls[row, 4] = s.st["admissions"]
    record_call(s, row)


@helper
def record_call(s, row):
    """Who runs after the schedule() call of a row, the events since the one before, and how its scan ended."""
    s.rec.calls[row, 0] = s.st["running"]
    s.rec.calls[row, 3] = s.st["rec_events"] - s.st["rec_called"]
    s.st["rec_called"] = s.st["rec_events"]
    _record_scan(s, row)


@helper
def _decodes_like_before(s, row):
    """Whether the list is that of the call before: everybody decodes one token, and nobody has come or gone."""
    return (
        row > 0
        and s.st["scheduled"] == 0
        and s.st["clocked"] == s.st["running"]
        and s.rec.calls[row - 1, 5] == 1
        and s.rec.calls[row - 1, 0] == s.st["running"]
        and s.rec.calls[row - 1, 4] == s.st["admissions"]
    )


@helper
def _record_list(s, row):
    size = 0
    most = 0
    i = s.st["running_head"]
    while i != NONE:
        tokens = 1 if on_clock(s, i) else s.req.scheduled[i]
        if tokens > 0:
            entry = s.st["rec_scheduled"] + size
            s.rec.scheduled[entry, 0] = i
            s.rec.scheduled[entry, 1] = tokens
            size += 1
            most = max(most, tokens)
        i = s.req.run_next[i]
    s.st["rec_scheduled"] += size
    s.rec.steps[row, 1] = size
    s.rec.calls[row, 5] = size == s.st["running"] and most <= 1


@helper
def _record_scan(s, row):
    """Why the scan of the queue ended, and for whom."""
    reason = s.st["scan_end"]
    request = NONE
    if reason in (ScanEnd.BLOCKS, ScanEnd.CHUNKING, ScanEnd.DEFERRED, ScanEnd.POLICY_ADMIT):
        reason = s.st["refusal"]
        request = s.st["refused"]
    elif reason == ScanEnd.CAP:
        reason = cap_reason(s)
        request = s.st["refused"] if s.cfg["slot_preempt"] else NONE
    elif reason == ScanEnd.BYPASS_LIMIT:
        request = s.st["refused"]
    s.rec.calls[row, 1] = reason
    s.rec.calls[row, 2] = request


@helper
def record_update(s, free):
    """After update_from_output(): completions, free blocks, queue lengths. The row is complete."""
    row = s.st["rec_steps"]
    s.rec.steps[row, 3] = s.st["finished"]
    s.rec.steps[row, 5] = free
    s.rec.steps[row, 6] = s.st["running"]
    s.rec.steps[row, 7] = s.st["waiting"]
    s.st["rec_steps"] = row + 1


@helper
def record_repeated(s, t_us, free, start_us, end_us):
    """A schedule() call that fast-forward jumps over: the same list, only growth, and a scan that looked at nobody."""
    row = s.st["rec_steps"] + s.st["in_flight"]
    s.rec.steps[row, 0] = t_us
    s.rec.steps[row, 1] = SAME
    s.rec.steps[row, 2] = 0
    s.rec.steps[row, 4] = free
    s.rec.steps[row, 8] = start_us
    s.rec.steps[row, 9] = end_us
    for column in range(s.rec.calls.shape[1]):
        s.rec.calls[row, column] = s.rec.calls[row - 1, column]
    s.rec.calls[row, 3] = 0


# --- Events -----------------------------------------------------------------------------------------------------------


@helper
def note(s, kind, i, a, b, c, d):
    """One event of request `i`. One for which there is no room is only counted."""
    _write(s, kind, i, a, b, c, d)
    s.st["rec_events"] += 1


@helper
def _write(s, kind, i, a, b, c, d):
    k = s.st["rec_events"]
    if k < s.rec.events.shape[0]:
        s.rec.events[k, 0] = kind
        s.rec.events[k, 1] = i
        s.rec.events[k, 2] = a
        s.rec.events[k, 3] = b
        s.rec.events[k, 4] = c
        s.rec.events[k, 5] = d


@helper
def note_refusal(s, i, reason, needed, available, watermark):
    """Request `i` was looked at and not admitted."""
    note(s, EventKind.REFUSED, i, reason, needed, available, watermark)
    s.st["refusal"] = reason
    s.st["refused"] = i


@helper
def note_lack(s, i, for_step, for_all, free, watermark):
    """Request `i` lacks blocks: what it would have taken off the free list, and which of the tests decided.

    The watermark if it had the blocks but for that; the gate if it had those of this step; else the blocks.
    """
    needed = max(for_step, for_all)
    reason = ScanEnd.BLOCKS
    if needed <= free:
        reason = ScanEnd.WATERMARK
    elif for_step <= free:
        reason = ScanEnd.GATE
    note_refusal(s, i, reason, needed + watermark, free, watermark)


@helper
def cap_reason(s):
    """Which cap the number of running requests has reached: a policy's, or `running_cap`, where below the others."""
    if s.st["own_cap_binds"]:
        return ScanEnd.POLICY_CAP
    fixed = min(s.cfg["max_num_seqs"], s.cfg["max_num_active_seqs"])
    return ScanEnd.RUNNING_CAP if s.st["scan_cap"] < fixed else ScanEnd.CAP


@helper
def note_victim(s, i, evictor, lacked, computed, tokens):
    """Running request `i`, `tokens` long, is about to be preempted. `note_loss` completes the event."""
    _write(s, EventKind.PREEMPTED, i, evictor, lacked, computed, tokens - s.wl.prompt_tokens[i])
    s.st["victim_free"] = s.st["free"]


@helper
def note_loss(s, i):
    """Request `i` has been preempted: what it keeps, and where its blocks are."""
    p = s.st["rec_preempted"]
    if p < s.rec.preempted.shape[0]:
        s.rec.preempted[p] = i
    s.st["rec_preempted"] = p + 1
    k = s.st["rec_events"]
    if k < s.rec.events.shape[0]:
        lost = s.cfg["preemption_mode"] == PreemptionMode.RESTART
        s.rec.events[k, 6] = 0 if lost else s.rec.events[k, 5]
        s.rec.events[k, 7] = s.st["free"] - s.st["victim_free"]
        s.rec.events[k, 8] = s.req.swapped_blocks[i]
    s.st["rec_events"] = k + 1
