"""Livelock: as `fastsim.engines.vllm.livelock`; an empty step evicts nothing, so what repeats is told the same way."""

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import Stop
from fastsim.engines.vllm.arrivals import next_arrival_us
from fastsim.engines.vllm.codes import NO_LIMIT
from fastsim.engines.vllm.livelock import GOING_ON, NO_PROGRESS, REPEATED_STATE, steps_until_no_progress


@inlined
def find_livelock(s):
    """After a step or a jump: LIVELOCK, or GOING_ON."""
    was_quiet = s.st["quiet"]
    s.st["quiet"] = 0
    if not s.cfg["detect_livelock"] or s.st["unfinished"] == 0:
        return GOING_ON
    if s.cfg["timeout_us"] == NO_LIMIT and next_arrival_us(s) == NO_LIMIT:
        s.st["quiet"] = 1
    empty = s.st["prefill_tokens"] + s.st["decode_tokens"] + s.st["received_tokens"] == 0
    if (s.st["quiet"] and empty) or steps_until_no_progress(s) <= 0:
        return _judge(s, was_quiet and empty)
    s.st["last_cap_bound"] = s.st["cap_bound"]
    return GOING_ON


@helper
def _judge(s, may_repeat):
    """Whether the step was one like the last, or one too many without progress: LIVELOCK, or GOING_ON."""
    kind = 0
    if (
        s.st["quiet"]
        and may_repeat
        and s.st["preempted"] == 0
        and s.st["admitted"] == 0
        and s.st["released"] == 0
        and s.st["cap_bound"] == s.st["last_cap_bound"]
    ):
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
