"""Livelock: a run that would never end is ended, and says so.

(a) Two consecutive steps leave the same state while nobody is to arrive and no client will give up.
(b) For `livelock_steps` steps no request has passed its own highest number of generated tokens.
"""

import numpy as np

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import Stop
from fastsim.engines.vllm.arrivals import next_arrival_us
from fastsim.engines.vllm.codes import NO_LIMIT, PreemptionMode
from fastsim.engines.vllm.lanes import computed_tokens, delivered_on_clock, on_clock
from fastsim.engines.vllm.state import NONE

LEAST_STEPS = 10_000
REPEATED_STATE = 1
NO_PROGRESS = 2
GOING_ON = -1


@inlined
def patience(s):
    """Steps without progress that end the run: given, or four times the tokens of the unfinished requests."""
    if s.cfg["livelock_steps"] > 0:
        return s.cfg["livelock_steps"]
    return max(LEAST_STEPS, 4 * s.st["alive_tokens"])


@inlined
def steps_until_no_progress(s):
    """Coming steps without progress that would end the run."""
    return patience(s) - (s.tot["steps"] - s.st["progress_step"])


@inlined
def watch_progress(s, clocked):
    """After steps in which `clocked` requests decoded on the clock: in all modes but restart each of them progressed.

    Under restart a request decodes again what it had: then the clock is searched, and only when patience is at its end.
    """
    if clocked == 0:
        return
    if s.cfg["preemption_mode"] != PreemptionMode.RESTART:
        s.st["progress_step"] = s.tot["steps"]
    elif steps_until_no_progress(s) <= 0:
        for slot in range(s.st["clocked"]):
            i = s.q.clock_request[slot]
            if delivered_on_clock(s, i) > s.req.max_num_tokens[i]:
                s.st["progress_step"] = s.tot["steps"]


@inlined
def find_livelock(s):
    """After a step or a jump: LIVELOCK, or GOING_ON."""
    was_quiet = s.st["quiet"]
    s.st["quiet"] = 0
    if not s.cfg["detect_livelock"] or s.st["unfinished"] == 0:
        return GOING_ON
    if s.cfg["timeout_us"] == NO_LIMIT and next_arrival_us(s) == NO_LIMIT and s.st["until_us"] == NO_LIMIT:
        s.st["quiet"] = 1
    empty = s.st["prefill_tokens"] + s.st["decode_tokens"] + s.st["received_tokens"] == 0
    if (s.st["quiet"] and (empty or s.cfg["slot_preempt"])) or steps_until_no_progress(s) <= 0:
        return _judge(s, was_quiet and empty)
    s.st["last_cap_bound"] = s.st["cap_bound"]
    return GOING_ON


@helper
def find_livelock_after_jump(s):
    """The same where a call is rare enough not to be compiled in."""
    return find_livelock(s)


@helper
def _judge(s, may_repeat):
    """Whether the step was one like the last, or one too many without progress: LIVELOCK, or GOING_ON."""
    kind = 0
    if s.st["quiet"]:
        if s.cfg["slot_preempt"] and not s.cfg["slot_preempt_preflight"]:
            before = s.st["state_hash"]
            s.st["state_hash"] = _state_hash(s)
            same = s.st["state_hash"] == before
        else:
            same = (
                s.st["preempted"] == 0
                and s.st["admitted"] == 0
                and s.st["released"] == 0
                and s.st["cap_bound"] == s.st["last_cap_bound"]
            )
        if may_repeat and same:
            kind = REPEATED_STATE
    s.st["last_cap_bound"] = s.st["cap_bound"]
    if kind == 0 and steps_until_no_progress(s) <= 0:
        kind = NO_PROGRESS
    if kind == 0:
        return GOING_ON
    s.tot["livelock_kind"] = kind
    s.tot["livelock_step"] = s.tot["steps"] - 1
    s.tot["livelock_us"] = s.st["now_us"]
    return Stop.LIVELOCK


@helper
def _mix(hashed, value):
    """One more value into a hash (multiply and rotate, int64 wrapping)."""
    hashed = (np.int64(hashed) ^ np.int64(value)) * np.int64(6364136223846793005)
    return hashed ^ (hashed >> 29)


@helper
def _state_hash(s):
    """Order, C and G of running, C, G, host blocks and bypasses of waiting, free order, cap, windows.

    Only where an admission and its preemption can happen in one step (slot preemption before any test) can an empty
    step with events leave the state it found, and only there is it hashed.
    """
    hashed = _mix(s.st["free"], s.st["host_blocks"])
    i = s.st["running_head"]
    while i != NONE:
        hashed = _mix(hashed, i)
        hashed = _mix(hashed, computed_tokens(s, i))
        if not on_clock(s, i):
            hashed = _mix(hashed, s.req.num_tokens[i] * 2 + s.req.mid_prefill[i])
        i = s.req.run_next[i]
    # The order of the waiting is fixed by their keys, so a sum does
    waiting = 0
    for i in range(s.wl.prompt_tokens.shape[0]):
        if s.req.heap_place[i] != NONE:
            one = _mix(_mix(i + 1, s.req.num_tokens[i]), s.req.bypasses[i] + (np.int64(s.req.swapped_blocks[i]) << 20))
            waiting += _mix(one, s.req.num_computed_tokens[i])
    hashed = _mix(hashed, waiting)
    hashed = _mix(hashed, s.st["cap"] + (s.st["cap_preemptions"] << 20) + (s.st["hot_steps"] << 40))
    hashed = _mix(hashed, s.st["watched"] - s.st["calm_start"])
    hashed = _mix(hashed, s.st["cap_bound"] + 2 * (s.st["executed"] - s.st["last_prefill"]))
    if s.cfg["enable_prefix_caching"]:
        node = s.st["free_head"]
        while node != NONE:
            hashed = _mix(hashed, s.blk.length[node])
            hashed = _mix(hashed, s.blk.owner[node] * 1048576 + s.blk.last[node] if s.blk.owner[node] != -1 else 0)
            node = s.blk.next[node]
    return hashed
