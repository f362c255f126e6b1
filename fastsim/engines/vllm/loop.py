"""The loop around the scheduler: arrivals, idle time, steps, the clock (synchronous scheduling)."""

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import Stop
from fastsim.engines.vllm.arrivals import next_arrival_us, next_deadline_us, open_door
from fastsim.engines.vllm.codes import NO_LIMIT
from fastsim.engines.vllm.fast_forward import jump, may_jump
from fastsim.engines.vllm.latency import scheduled_step_us, step_us, tokens_us
from fastsim.engines.vllm.livelock import (
    GOING_ON,
    find_livelock,
    find_livelock_after_jump,
    steps_until_no_progress,
    watch_progress,
)
from fastsim.engines.vllm.pauses import see, unless_more_comes
from fastsim.engines.vllm.recorder import logs_have_room, record_schedule, record_update
from fastsim.engines.vllm.reset import reset, settle
from fastsim.engines.vllm.running_cap import after_steps
from fastsim.engines.vllm.scalars import ScanEnd
from fastsim.engines.vllm.schedule import schedule_step
from fastsim.engines.vllm.update import update_from_output

LOG_FULL = -2


@helper
def run(s):
    """One run from the first arrival to its end. Returns 0, or LOG_FULL: repeat with more room."""
    reset(s)
    stop = advance(s)
    if stop == LOG_FULL:
        return LOG_FULL
    settle(s, stop)
    return 0


@helper
def advance(s):
    """Do all steps that start before `until_us`. Returns why the run ended, GOING_ON, or LOG_FULL."""
    stop = GOING_ON
    while stop == GOING_ON and s.st["now_us"] < s.st["until_us"]:
        if not logs_have_room(s, s.wl.prompt_tokens.shape[0]):
            return LOG_FULL
        open_door(s)
        stop = before_step(s)
        if stop == GOING_ON and s.st["unfinished"] > 0:
            see(s, s.st["running"])
            step(s)
            stop = find_livelock(s)
            if stop == GOING_ON and may_jump(s):
                jump(s)
                stop = find_livelock_after_jump(s)
            elif stop == GOING_ON and may_jump_empty(s):
                jump_empty(s, step_us(s.cfg, tokens_us(s, 0, 0), 0, 0, 0.0, 0))
                stop = find_livelock_after_jump(s)
    return unless_more_comes(s, stop)


@inlined
def before_step(s):
    """Stop, or (idle) advance the clock to the next arrival, or go on."""
    if s.st["unfinished"] == 0:
        arrival_us = next_arrival_us(s)
        if arrival_us == NO_LIMIT:
            return Stop.DRAINED
        s.st["now_us"] = arrival_us
        return Stop.HORIZON if arrival_us >= s.cfg["horizon_us"] else GOING_ON
    if s.st["now_us"] >= s.cfg["horizon_us"]:
        return Stop.HORIZON
    if s.tot["steps"] == s.cfg["max_steps"]:
        return Stop.MAX_STEPS
    return GOING_ON


@inlined
def step(s):
    """schedule(), the time it takes, update_from_output()."""
    schedule_step(s)
    duration = scheduled_step_us(s)
    end_us = s.st["now_us"] + duration
    if s.cfg["record"]:
        record_schedule(s, s.st["now_us"], end_us)
    tokens = count_scheduled_step(s, duration)
    s.tot["steps"] += 1
    clocked = s.st["clocked"]
    update_from_output(s, end_us)
    s.st["now_us"] = end_us
    watch_progress(s, clocked)
    if tokens > 0:
        after_steps(s, 1, s.st["preempted"])
    if s.cfg["record"]:
        record_update(s, s.st["free"])


@helper
def count_scheduled_step(s, duration):
    """Count what schedule() has just decided, which will take `duration`. Returns the tokens of the step."""
    prefill = s.st["prefill_tokens"]
    decode = s.st["decode_tokens"]
    held = s.st["usable"] - s.st["free"]
    running = s.st["running"]
    s.tot["prefill_tokens"] += prefill
    s.tot["decode_tokens"] += decode
    s.tot["kv_block_us"] += held * duration
    s.tot["kv_peak_blocks"] = max(s.tot["kv_peak_blocks"], held)
    s.tot["running_us"] += running * duration
    s.tot["running_peak"] = max(s.tot["running_peak"], running)
    s.tot["waiting_peak"] = max(s.tot["waiting_peak"], s.st["waiting"])
    s.tot["batch_tokens_peak"] = max(s.tot["batch_tokens_peak"], prefill + decode)
    if prefill + decode == 0:
        s.tot["empty_steps"] += 1
    else:
        s.st["executed"] += 1
        s.tot["busy_us"] += duration
    if s.st["prefill_ran"]:
        s.st["last_prefill"] = s.st["executed"]
    return prefill + decode


@inlined
def may_jump_empty(s):
    """Whether the step just done ran nobody because the head of the queue cannot be admitted even alone."""
    return (
        s.cfg["fast_forward"]
        and not s.cfg["record"]
        and not (s.cfg["detect_livelock"] and s.st["quiet"])  # one more such step is a livelock
        and s.st["running"] == 0
        and s.st["waiting"] > 0
        and not s.cfg["policy_queue_changes"]  # another may be the head in the next step
        and s.st["preempted"] + s.st["admitted"] == 0
        and s.st["prefill_tokens"] + s.st["decode_tokens"] == 0
        and s.st["scan_end"] != ScanEnd.SKIPPED
    )


@helper
def jump_empty(s, duration):
    """Nobody runs and the head of the queue cannot: empty steps, one every `duration`, until somebody arrives."""
    stop_us = min(s.cfg["horizon_us"], next_arrival_us(s))
    if s.cfg["timeout_us"] != NO_LIMIT:
        stop_us = min(stop_us, next_deadline_us(s))
    steps = s.cfg["max_steps"] - s.tot["steps"] - s.st["in_flight"]
    if duration > 0 and stop_us != NO_LIMIT:
        steps = min(steps, (stop_us - s.st["now_us"] + duration - 1) // duration)
    elif duration == 0 and stop_us <= s.st["now_us"]:
        steps = 0
    if duration > 0 and s.st["until_us"] != NO_LIMIT:
        steps = min(steps, (s.st["until_us"] - s.st["now_us"]) // duration)
    if s.cfg["detect_livelock"]:
        steps = min(steps, steps_until_no_progress(s) - s.st["in_flight"])
    if steps <= 0:
        return
    s.st["now_us"] += duration * steps
    s.tot["steps"] += steps
    s.tot["empty_steps"] += steps
