"""The loop around the scheduler with two batches in flight (asynchronous scheduling, vLLM 0.33.0's default).

After vLLM's `EngineCore.step_with_batch_queue`: a batch is scheduled before the output of the one before it, "the
flight", is known. What a request is while a token of it is in flight stands in `flight`.
"""

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import Stop
from fastsim.engines.vllm.arrivals import NEVER_ARRIVES, next_arrival_us
from fastsim.engines.vllm.door import open_door
from fastsim.engines.vllm.fast_forward import jump, may_jump
from fastsim.engines.vllm.flight import hand_over, receive_output, send_batch
from fastsim.engines.vllm.lanes import take_ended_off_clock
from fastsim.engines.vllm.latency import step_us
from fastsim.engines.vllm.livelock import GOING_ON, find_livelock, find_livelock_after_jump, watch_progress
from fastsim.engines.vllm.loop import LOG_FULL, count_scheduled_step, jump_empty, may_jump_empty
from fastsim.engines.vllm.recorder import logs_have_room, record_schedule, record_update
from fastsim.engines.vllm.reset import reset, settle
from fastsim.engines.vllm.running_cap import after_steps
from fastsim.engines.vllm.schedule import schedule_step

DRAINED = int(Stop.DRAINED)
HORIZON = int(Stop.HORIZON)
MAX_STEPS = int(Stop.MAX_STEPS)
NOTHING = -1
SLEEP_US = 1000
"""The engine core sleeps this long after a pass that submitted nothing while it still has requests."""


@helper
def run_async(cfg, st, tot, flat, wl, req, q, blk, log, itl, rec):
    """One run from the first arrival to its end. Returns 0, or LOG_FULL: repeat with more room."""
    reset(cfg, st, tot, flat, wl, req, q, blk, log, itl)
    stop = GOING_ON
    while stop == GOING_ON:
        if not logs_have_room(cfg, st, rec, itl, wl.prompt_tokens.shape[0]):
            return LOG_FULL
        stop = await_work(st, q, log)
        if stop == GOING_ON:
            open_door(cfg, st, tot, wl, req, q, blk, log)
            stop = make_pass(cfg, st, tot, wl, req, q, blk, log, itl, rec)
        if stop == GOING_ON and flight_repeats(st) and may_jump(cfg, st):
            jump(cfg, st, tot, wl, req, q, blk, log, itl, rec)
            stop = find_livelock_after_jump(cfg, st, tot, wl, req, q, blk, log)
        elif stop == GOING_ON and flight_repeats(st) and may_jump_empty(cfg, st):
            jump_empty(cfg, st, tot, q, log, SLEEP_US)
            st["flight_end_us"] = st["now_us"] - SLEEP_US
    if st["in_flight"] > 0:
        take_ended_off_clock(cfg, st, req, q, log)
        receive(cfg, st, tot, wl, req, q, blk, log, itl, rec)
    settle(cfg, st, tot, wl, req, q, log, itl, stop)
    return 0


@inlined
def has_work(st):
    """Whether the engine core calls schedule(): also once after somebody finished, so that workers hear of it."""
    return st["unfinished"] > 0 or st["somebody_finished"]


@inlined
def flight_repeats(st):
    """Whether the flight holds what coming batches will: only decodes on the clock; or nothing, like the one before.

    And nobody has finished since the last call, so that the next one finds what that one found.
    """
    if st["in_flight"] == 0 or st["flight_size"] > 0 or st["finished"] > 0 or st["somebody_finished"]:
        return False
    return st["flight_tokens"] > 0 or st["received_tokens"] == 0


@inlined
def await_work(st, q, log):
    """Idle: advance the clock to the next arrival, or stop when there is none."""
    if has_work(st) or st["in_flight"] > 0 or st["held"] > 0:
        return GOING_ON
    arrival_us = next_arrival_us(st, q, log)
    if arrival_us == NEVER_ARRIVES:
        return DRAINED
    st["now_us"] = max(st["now_us"], arrival_us)
    return GOING_ON


@inlined
def make_pass(cfg, st, tot, wl, req, q, blk, log, itl, rec):
    """Submit a batch if there is work; receive the output of the oldest unless the queue has room for another."""
    stop = GOING_ON
    st["received_tokens"] = NOTHING
    tokens = 0
    waits_for_more = False
    if has_work(st):
        if st["now_us"] >= cfg["horizon_us"]:
            return HORIZON
        if tot["steps"] + st["in_flight"] == cfg["max_steps"]:
            return MAX_STEPS
        tokens = submit(cfg, st, tot, wl, req, q, blk, log, rec)
        if st["in_flight"] == 1:
            hand_over(st, q, tokens)
            waits_for_more = tokens > 0 or st["unfinished"] > 0
    if st["in_flight"] > 0 and not waits_for_more:
        receive(cfg, st, tot, wl, req, q, blk, log, itl, rec)
        stop = find_livelock(cfg, st, tot, wl, req, q, blk, log)
        if st["finished"] > 0:
            st["somebody_finished"] = 1
        if st["in_flight"] > 0:
            hand_over(st, q, tokens)
    if tokens == 0 and has_work(st):
        st["now_us"] += SLEEP_US
    return stop


@inlined
def submit(cfg, st, tot, wl, req, q, blk, log, rec):
    """Schedule a batch and queue it behind what the GPU still does. Returns its tokens; an empty one takes no time."""
    st["somebody_finished"] = 0
    schedule_step(cfg, st, tot, wl, req, q, blk, log, rec)
    start_us = max(st["now_us"], st["gpu_us"])
    end_us = start_us
    if st["prefill_tokens"] + st["decode_tokens"] > 0:
        end_us += step_us(cfg, st["prefill_tokens"], st["decode_tokens"], st["context_tokens"], st["moved_blocks"])
        st["gpu_us"] = end_us
    st["submitted_end_us"] = end_us
    if cfg["record"]:
        record_schedule(cfg, st, req, rec, start_us, end_us)
    tokens = count_scheduled_step(st, tot, end_us - start_us)
    send_batch(cfg, st, req, q)
    st["in_flight"] += 1
    return tokens


@helper
def receive(cfg, st, tot, wl, req, q, blk, log, itl, rec):
    """The output of the flight is there: tokens, completions, and what watches steps."""
    st["in_flight"] -= 1
    st["now_us"] = max(st["now_us"], st["flight_end_us"])
    st["received_tokens"] = st["flight_tokens"]
    tot["steps"] += 1
    receive_output(cfg, st, tot, wl, req, q, blk, log, itl, rec)
    watch_progress(cfg, st, tot, req, q, st["flight_clocked"])
    if st["flight_tokens"] > 0:
        after_steps(cfg, st, tot, q, 1, st["flight_preempted"])
    if cfg["record"]:
        record_update(st, rec, st["free"])
