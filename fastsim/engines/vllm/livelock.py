"""Livelock: a run that would never end is ended, and says so.

(a) Two consecutive steps leave the same state while nobody is to arrive and no client will give up.
(b) For `livelock_steps` steps no request has passed its own highest number of generated tokens.
"""

import numpy as np

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import Stop
from fastsim.engines.vllm.arrivals import NEVER_ARRIVES, next_arrival_us
from fastsim.engines.vllm.codes import NO_LIMIT, PreemptionMode
from fastsim.engines.vllm.lanes import computed_tokens, delivered_on_clock, on_clock
from fastsim.engines.vllm.state import NONE

LIVELOCK = int(Stop.LIVELOCK)
RESTART = int(PreemptionMode.RESTART)
NO_TIMEOUT = int(NO_LIMIT)
LEAST_STEPS = 10_000
REPEATED_STATE = 1
NO_PROGRESS = 2
GOING_ON = -1


@inlined
def patience(cfg, st):
    """Steps without progress that end the run: given, or four times the tokens of the unfinished requests."""
    if cfg["livelock_steps"] > 0:
        return cfg["livelock_steps"]
    return max(LEAST_STEPS, 4 * st["alive_tokens"])


@inlined
def steps_until_hopeless(cfg, st, tot):
    """Coming steps without progress that would end the run."""
    return patience(cfg, st) - (tot["steps"] - st["progress_step"])


@inlined
def watch_progress(cfg, st, tot, req, q, clocked):
    """After steps in which `clocked` requests decoded on the clock: in all modes but restart each of them progressed.

    Under restart a request decodes again what it had: then the clock is searched, and only when patience is at its end.
    """
    if clocked == 0:
        return
    if cfg["preemption_mode"] != RESTART:
        st["progress_step"] = tot["steps"]
    elif steps_until_hopeless(cfg, st, tot) <= 0:
        for slot in range(st["clocked"]):
            i = q.clock_request[slot]
            if delivered_on_clock(st, req, i) > req.max_num_tokens[i]:
                st["progress_step"] = tot["steps"]


@inlined
def find_livelock(cfg, st, tot, wl, req, q, blk, log):
    """After a step or a jump: LIVELOCK, or GOING_ON."""
    was_quiet = st["quiet"]
    st["quiet"] = 0
    if not cfg["detect_livelock"] or st["unfinished"] == 0:
        return GOING_ON
    if cfg["timeout_us"] == NO_TIMEOUT and next_arrival_us(st, q, log) == NEVER_ARRIVES:
        st["quiet"] = 1
    empty = st["prefill_tokens"] + st["decode_tokens"] + st["received_tokens"] == 0
    if (st["quiet"] and (empty or cfg["slot_preempt"])) or steps_until_hopeless(cfg, st, tot) <= 0:
        return _judge(cfg, st, tot, wl, req, blk, was_quiet and empty)
    st["last_cap_bound"] = st["cap_bound"]
    return GOING_ON


@helper
def find_livelock_after_jump(cfg, st, tot, wl, req, q, blk, log):
    """The same where a call is rare enough not to be compiled in."""
    return find_livelock(cfg, st, tot, wl, req, q, blk, log)


@helper
def _judge(cfg, st, tot, wl, req, blk, may_repeat):
    """Whether the step was one like the last, or one too many without progress: LIVELOCK, or GOING_ON."""
    kind = 0
    if st["quiet"]:
        if cfg["slot_preempt"] and not cfg["slot_preempt_preflight"]:
            before = st["state_hash"]
            st["state_hash"] = _state_hash(cfg, st, wl, req, blk)
            same = st["state_hash"] == before
        else:
            same = (
                st["preempted"] == 0
                and st["admitted"] == 0
                and st["released"] == 0
                and st["cap_bound"] == st["last_cap_bound"]
            )
        if may_repeat and same:
            kind = REPEATED_STATE
    st["last_cap_bound"] = st["cap_bound"]
    if kind == 0 and steps_until_hopeless(cfg, st, tot) <= 0:
        kind = NO_PROGRESS
    if kind == 0:
        return GOING_ON
    tot["livelock_kind"] = kind
    tot["livelock_step"] = tot["steps"] - 1
    tot["livelock_us"] = st["now_us"]
    return LIVELOCK


@helper
def _mix(hashed, value):
    """One more value into a hash (multiply and rotate, int64 wrapping)."""
    hashed = (np.int64(hashed) ^ np.int64(value)) * np.int64(6364136223846793005)
    return hashed ^ (hashed >> 29)


@helper
def _state_hash(cfg, st, wl, req, blk):
    """Order, C and G of running, C, G, host blocks and bypasses of waiting, free order, cap, windows.

    Only where an admission and its preemption can happen in one step (slot preemption before any test) can an empty
    step with events leave the state it found, and only there is it hashed.
    """
    hashed = _mix(st["free"], st["host_blocks"])
    i = st["running_head"]
    while i != NONE:
        hashed = _mix(hashed, i)
        hashed = _mix(hashed, computed_tokens(cfg, st, req, i))
        if not on_clock(cfg, req, i):
            hashed = _mix(hashed, req.num_tokens[i] * 2 + req.mid_prefill[i])
        i = req.run_next[i]
    # The order of the waiting is fixed by their keys, so a sum does
    waiting = 0
    for i in range(wl.prompt_tokens.shape[0]):
        if req.heap_place[i] != NONE:
            one = _mix(_mix(i + 1, req.num_tokens[i]), req.bypasses[i] + (np.int64(req.swapped_blocks[i]) << 20))
            waiting += _mix(one, req.num_computed_tokens[i])
    hashed = _mix(hashed, waiting)
    hashed = _mix(hashed, st["cap"] + (st["cap_preemptions"] << 20) + (st["hot_steps"] << 40))
    hashed = _mix(hashed, st["watched"] - st["calm_start"])
    hashed = _mix(hashed, st["cap_bound"] + 2 * (st["executed"] - st["last_prefill"]))
    if cfg["enable_prefix_caching"]:
        node = st["free_head"]
        while node != NONE:
            hashed = _mix(hashed, blk.length[node])
            hashed = _mix(hashed, blk.owner[node] * 1048576 + blk.last[node] if blk.owner[node] != -1 else 0)
            node = blk.next[node]
    return hashed
