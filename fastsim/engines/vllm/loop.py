"""The loop around the scheduler: arrivals, idle time, steps, the clock (synchronous scheduling)."""

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import Stop
from fastsim.engines.vllm.arrivals import NEVER_ARRIVES, next_arrival_us
from fastsim.engines.vllm.door import next_deadline_us, open_door
from fastsim.engines.vllm.fast_forward import jump, may_jump
from fastsim.engines.vllm.latency import step_us
from fastsim.engines.vllm.livelock import (
    GOING_ON,
    find_livelock,
    find_livelock_after_jump,
    steps_until_hopeless,
    watch_progress,
)
from fastsim.engines.vllm.recorder import logs_have_room, record_schedule, record_update
from fastsim.engines.vllm.reset import reset, settle
from fastsim.engines.vllm.running_cap import after_steps
from fastsim.engines.vllm.scan import ScanEnd
from fastsim.engines.vllm.schedule import schedule_step
from fastsim.engines.vllm.update import update_from_output

DRAINED = int(Stop.DRAINED)
HORIZON = int(Stop.HORIZON)
MAX_STEPS = int(Stop.MAX_STEPS)
SKIPPED = int(ScanEnd.SKIPPED)
LOG_FULL = -2


@helper
def run(cfg, st, tot, flat, wl, req, q, blk, log, itl, rec):
    """One run from the first arrival to its end. Returns 0, or LOG_FULL: repeat with more room."""
    reset(cfg, st, tot, flat, wl, req, q, blk, log, itl)
    stop = GOING_ON
    while stop == GOING_ON:
        if not logs_have_room(cfg, st, rec, itl, wl.prompt_tokens.shape[0]):
            return LOG_FULL
        open_door(cfg, st, tot, wl, req, q, blk, log)
        stop = before_step(cfg, st, tot, q, log)
        if stop == GOING_ON and st["unfinished"] > 0:
            step(cfg, st, tot, wl, req, q, blk, log, itl, rec)
            stop = find_livelock(cfg, st, tot, wl, req, q, blk, log)
            if stop == GOING_ON and may_jump(cfg, st):
                jump(cfg, st, tot, wl, req, q, blk, log, itl, rec)
                stop = find_livelock_after_jump(cfg, st, tot, wl, req, q, blk, log)
            elif stop == GOING_ON and may_jump_empty(cfg, st):
                jump_empty(cfg, st, tot, q, log, step_us(cfg, 0, 0, 0, 0))
                stop = find_livelock_after_jump(cfg, st, tot, wl, req, q, blk, log)
    settle(cfg, st, tot, wl, req, q, log, itl, stop)
    return 0


@inlined
def before_step(cfg, st, tot, q, log):
    """Stop, or (idle) advance the clock to the next arrival, or go on."""
    if st["unfinished"] == 0:
        arrival_us = next_arrival_us(st, q, log)
        if arrival_us == NEVER_ARRIVES:
            return DRAINED
        st["now_us"] = arrival_us
        return HORIZON if arrival_us >= cfg["horizon_us"] else GOING_ON
    if st["now_us"] >= cfg["horizon_us"]:
        return HORIZON
    if tot["steps"] == cfg["max_steps"]:
        return MAX_STEPS
    return GOING_ON


@inlined
def step(cfg, st, tot, wl, req, q, blk, log, itl, rec):
    """schedule(), the time it takes, update_from_output()."""
    schedule_step(cfg, st, tot, wl, req, q, blk, log, rec)
    duration = step_us(cfg, st["prefill_tokens"], st["decode_tokens"], st["context_tokens"], st["moved_blocks"])
    end_us = st["now_us"] + duration
    if cfg["record"]:
        record_schedule(cfg, st, req, rec, st["now_us"], end_us)
    tokens = count_scheduled_step(st, tot, duration)
    tot["steps"] += 1
    clocked = st["clocked"]
    update_from_output(cfg, st, tot, wl, req, q, blk, log, itl, rec, end_us)
    st["now_us"] = end_us
    watch_progress(cfg, st, tot, req, q, clocked)
    if tokens > 0:
        after_steps(cfg, st, tot, q, 1, st["preempted"])
    if cfg["record"]:
        record_update(st, rec, st["free"])


@helper
def count_scheduled_step(st, tot, duration):
    """Count what schedule() has just decided, which will take `duration`. Returns the tokens of the step."""
    prefill = st["prefill_tokens"]
    decode = st["decode_tokens"]
    held = st["usable"] - st["free"]
    running = st["running"]
    tot["prefill_tokens"] += prefill
    tot["decode_tokens"] += decode
    tot["kv_block_us"] += held * duration
    tot["kv_peak_blocks"] = max(tot["kv_peak_blocks"], held)
    tot["running_us"] += running * duration
    tot["running_peak"] = max(tot["running_peak"], running)
    tot["waiting_peak"] = max(tot["waiting_peak"], st["waiting"])
    tot["batch_tokens_peak"] = max(tot["batch_tokens_peak"], prefill + decode)
    if prefill + decode == 0:
        tot["empty_steps"] += 1
    else:
        st["executed"] += 1
        tot["busy_us"] += duration
    if st["prefill_ran"]:
        st["last_prefill"] = st["executed"]
    return prefill + decode


@inlined
def may_jump_empty(cfg, st):
    """Whether the step just done ran nobody because the head of the queue cannot be admitted even alone."""
    return (
        cfg["fast_forward"]
        and not cfg["record"]
        and not (cfg["detect_livelock"] and st["quiet"])  # one more such step is a livelock
        and st["running"] == 0
        and st["waiting"] > 0
        and st["preempted"] + st["admitted"] == 0
        and st["prefill_tokens"] + st["decode_tokens"] == 0
        and st["scan_end"] != SKIPPED
    )


@helper
def jump_empty(cfg, st, tot, q, log, duration):
    """Nobody runs and the head of the queue cannot: empty steps, one every `duration`, until somebody arrives."""
    stop_us = min(cfg["horizon_us"], next_arrival_us(st, q, log))
    if cfg["timeout_us"] != NEVER_ARRIVES:
        stop_us = min(stop_us, next_deadline_us(cfg, st, q, log))
    steps = cfg["max_steps"] - tot["steps"] - st["in_flight"]
    if duration > 0 and stop_us != NEVER_ARRIVES:
        steps = min(steps, (stop_us - st["now_us"] + duration - 1) // duration)
    elif duration == 0 and stop_us <= st["now_us"]:
        steps = 0
    if cfg["detect_livelock"]:
        steps = min(steps, steps_until_hopeless(cfg, st, tot) - st["in_flight"])
    if steps <= 0:
        return
    st["now_us"] += duration * steps
    tot["steps"] += steps
    tot["empty_steps"] += steps
