"""The engine loop: submit, schedule, execute, update; one call runs one configuration or many."""

from fastsim._jit import borrow, entry, helper
from fastsim.engines.outputs import Gaps, Stop, log_of_run
from fastsim.engines.rlt.admission import admit, capacity
from fastsim.engines.rlt.codes import (
    NONE,
    NOTE_ARRIVAL,
    NOTHING,
    PENDING,
    PHASE_FILL,
    UNSERVABLE,
    WAITING,
)
from fastsim.engines.rlt.livelock import watch_livelock
from fastsim.engines.rlt.pages import required_blocks, reset_pages
from fastsim.engines.rlt.queues import append_waiting, clear
from fastsim.engines.rlt.schedule import decode_stage, form_batch, stage_after_admission
from fastsim.engines.rlt.state import State
from fastsim.engines.rlt.tape import note, note_step
from fastsim.engines.rlt.totals import account_step, finish_totals, reset_totals
from fastsim.engines.rlt.update import step_time_us, update_from_output
from fastsim.engines.rlt.wavefront import reset_wave

DRAINED = int(Stop.DRAINED)
HORIZON = int(Stop.HORIZON)
MAX_STEPS = int(Stop.MAX_STEPS)
LIVELOCK = int(Stop.LIVELOCK)
"""How a run ended: see `Stop`."""


@helper
def reset_run(cfg, st, s):
    """Forget everything a run before this one left in the arrays."""
    for i in range(st["num_requests"]):
        s.req.stage[i] = PENDING
        s.req.saved_stage[i] = NONE
        s.req.held_pages[i] = 0
        s.req.saved_pages[i] = 0
        s.req.prefilled[i] = 0
        s.req.outputs[i] = 0
        s.req.loops_done[i] = 0
        s.req.bypasses[i] = 0
        s.req.waiting_since_us[i] = 0
        s.req.selected[i] = 0
    clear(s.stages)
    if cfg["wavefront"]:
        reset_wave(cfg, st, s)
    st["now_us"] = 0
    st["next_arrival"] = 0
    st["unfinished"] = 0
    st["phase"] = PHASE_FILL
    st["prefills_since_recurrent"] = 0
    st["wait_head"] = 0
    st["wait_tail"] = 0
    st["wait_sorted"] = 0
    st["num_active"] = 0
    st["tape_rows"] = 0
    st["seen_step"] = NONE - 1
    reset_pages(cfg, st, s)


@helper
def start_step(st):
    """Counters of the step under way."""
    st["batch_size"] = 0
    st["batch_tokens"] = 0
    st["admissions"] = 0
    st["restores"] = 0
    st["blocked"] = 0
    st["deferred"] = 0
    st["slot_preemptions"] = 0
    st["grow_preemptions"] = 0
    st["failed_growths"] = 0
    st["ineffective_preemptions"] = 0
    st["moved_out_blocks"] = 0
    st["moved_in_blocks"] = 0


@helper
def submit_arrivals(cfg, st, s, totals):
    """Requests that have arrived join the waiting queue; one that could never fit is refused."""
    while st["next_arrival"] < st["num_requests"] and s.wl.arrival_us[st["next_arrival"]] <= st["now_us"]:
        i = st["next_arrival"]
        st["next_arrival"] += 1
        note(st, s.tape, NOTE_ARRIVAL, i, NOTHING, NOTHING, NOTHING)
        if required_blocks(cfg, capacity(s, i)) > cfg["num_blocks"]:
            s.req.stage[i] = UNSERVABLE
            totals["unservable"] += 1
            continue
        s.req.stage[i] = WAITING
        s.req.waiting_since_us[i] = st["now_us"]
        append_waiting(st, s.lists, i)
        st["unfinished"] += 1


@helper
def run_is_over(cfg, st, s, totals):
    """Why the run ends before the next step, as a `Stop`; NONE: it goes on, if idle at the next arrival."""
    if st["unfinished"] == 0:
        if st["next_arrival"] == st["num_requests"]:
            return DRAINED
        st["now_us"] = max(st["now_us"], s.wl.arrival_us[st["next_arrival"]])
    if st["now_us"] >= cfg["horizon_us"]:
        return HORIZON
    return MAX_STEPS if totals["steps"] >= cfg["max_steps"] else NONE


@entry
def run(cfgs, sts, state, totals, extras, itl):
    """Run configuration `cfgs[0]` on the first `sts[0]["num_requests"]` requests of the workload.

    Fills `log`, `tape`, `totals[0]`, `extras[0]` and `itl`. Returns the `Stop`.
    """
    s = State(  # a tuple of pointers: handed on for nothing
        borrow(state.wl),
        borrow(state.req),
        borrow(state.lists),
        borrow(state.stages),
        borrow(state.batch),
        borrow(state.wave),
        borrow(state.pages),
        borrow(state.lru),
        borrow(state.log),
        borrow(state.tape),
    )
    itl = borrow(itl)
    cfg = cfgs[0]
    st = sts[0]
    total = totals[0]
    extra = extras[0]
    reset_run(cfg, st, s)
    reset_totals(cfg, st, s, total, extra, itl)
    stop = run_is_over(cfg, st, s, total)
    while stop == NONE:
        submit_arrivals(cfg, st, s, total)
        if st["unfinished"] > 0:
            start_step(st)
            stage = decode_stage(cfg, st, s.stages)
            if stage == NONE:
                admit(cfg, st, s)
                stage = stage_after_admission(cfg, st, s.stages)
            if stage != NONE:
                form_batch(cfg, st, s, stage)
            if st["batch_size"] == 0:  # an empty step: no other stage is tried
                stage = NONE
            step_us = step_time_us(cfg, st, stage)
            account_step(cfg, st, total, extra, stage, step_us)
            update_from_output(cfg, st, s, total, itl, stage, st["now_us"] + step_us)
            note_step(cfg, st, s, stage)
            st["now_us"] += step_us
            if stage == NONE and watch_livelock(cfg, st, s, total, extra):
                stop = LIVELOCK
                break
        stop = run_is_over(cfg, st, s, total)
    total["stop"] = stop
    finish_totals(cfg, st, s, total, extra)
    return stop


@entry
def run_many(cfgs, sts, state, logs, totals, extras, itl_histograms):
    """Run every configuration of `cfgs` on the same workload: one row of each output a configuration.

    `logs` holds the logs of all runs one after another, or one run's room, which each run then overwrites.
    """
    n = state.wl.arrival_us.shape[0]
    for k in range(cfgs.shape[0]):
        at = k * n if logs.arrival_us.shape[0] >= (k + 1) * n else 0
        log = log_of_run(logs, at, n)
        each = State(
            state.wl,
            state.req,
            state.lists,
            state.stages,
            state.batch,
            state.wave,
            state.pages,
            state.lru,
            log,
            state.tape,
        )
        sts[0]["num_requests"] = n
        run(cfgs[k : k + 1], sts, each, totals[k : k + 1], extras[k : k + 1], Gaps(itl_histograms[k]))
