"""Swap preemption: a victim keeps everything on the host and gives all its pages back; a restore copies it in again."""

from fastsim._jit import helper
from fastsim.engines.outputs import note_admission_wait
from fastsim.engines.rlt.codes import (
    NONE,
    NOTE_NOGROW,
    NOTE_PREEMPT_GROW,
    NOTHING,
    PREFILL,
    WAITING,
)
from fastsim.engines.rlt.pages import claim_pages, pages_for, release_pages, required_blocks
from fastsim.engines.rlt.queues import add_active, append_waiting, push, remove, remove_active
from fastsim.engines.rlt.tape import note
from fastsim.engines.rlt.wavefront import return_tasks, take_tasks

ANY_PRIORITY = -(1 << 40)
"""Below every priority value."""


@helper
def position(s, i):
    """Token position a decode step of request `i` works on."""
    return s.wl.prompt_tokens[i] + s.req.outputs[i] - 1


@helper
def choose_victim(cfg, st, s, requester, above_priority):
    """Active request with the largest priority value, then the largest footprint, then submitted first; or NONE.

    Never the requester, nor a request of the batch being formed, nor one whose priority is not above `above_priority`.
    """
    best = NONE
    best_priority = 0
    best_blocks = 0
    for k in range(st["num_active"]):
        i = s.lists.active[k]
        p = s.wl.priority[i]
        if i == requester or s.req.selected[i] or p <= above_priority:
            continue
        if best != NONE and p < best_priority:
            continue
        blocks = required_blocks(cfg, position(s, i) + 1)
        if best == NONE or p > best_priority or blocks > best_blocks or (blocks == best_blocks and i < best):
            best = i
            best_priority = p
            best_blocks = blocks
    return best


@helper
def preempt(cfg, st, s, i):
    """Swap request `i` out. It goes to the tail of the waiting queue."""
    req = s.req
    stage = req.stage[i]
    if stage == PREFILL and cfg["wavefront"]:
        take_tasks(s, i)
    else:
        remove(s.stages, stage, i)
    req.saved_stage[i] = stage
    req.saved_pages[i] = req.held_pages[i]
    st["moved_out_blocks"] += req.held_pages[i] * cfg["planes"]
    release_pages(cfg, st, s, i)
    remove_active(st, req, s.lists, i)
    req.stage[i] = WAITING
    req.waiting_since_us[i] = st["now_us"]
    s.log.num_preemptions[i] += 1
    append_waiting(st, s.lists, i)


@helper
def restore(cfg, st, s, i):
    """Swap request `i` in if exactly its saved pages are there; no budget, growth or watermark is looked at."""
    req = s.req
    if not claim_pages(cfg, st, s, i, req.saved_pages[i]):
        return False
    stage = req.saved_stage[i]
    req.saved_stage[i] = NONE
    req.stage[i] = stage
    if stage == PREFILL and cfg["wavefront"]:
        return_tasks(s, i)
    else:
        push(s.stages, stage, i)
    st["moved_in_blocks"] += req.held_pages[i] * cfg["planes"]
    end_wait(st, s, i)
    return True


@helper
def end_wait(st, s, i):
    """Request `i` leaves the waiting queue: it is active from now on."""
    add_active(st, s.req, s.lists, i)
    note_admission_wait(s.log, i, s.req.waiting_since_us[i], st["now_us"])
    if s.log.first_scheduled_us[i] < 0:
        s.log.first_scheduled_us[i] = st["now_us"]


@helper
def grow(cfg, st, s, i, tokens):
    """Pages for the positions of request `i` below `tokens`; at most one other request is swapped out for them.

    The requester's own priority does not matter: a low-priority request may evict a high-priority one.
    """
    missing = pages_for(cfg, tokens) - s.req.held_pages[i]
    if missing <= 0:
        return True
    for attempt in range(2):
        if claim_pages(cfg, st, s, i, missing):
            return True
        if attempt == 1 or not cfg["enable_preemption"]:
            break
        victim = choose_victim(cfg, st, s, i, ANY_PRIORITY)
        if victim == NONE:
            break
        note(st, s.tape, NOTE_PREEMPT_GROW, i, victim, NOTHING, NOTHING)
        preempt(cfg, st, s, victim)
        st["grow_preemptions"] += 1
    note(st, s.tape, NOTE_NOGROW, i, NOTHING, NOTHING, NOTHING)
    st["failed_growths"] += 1
    return False
