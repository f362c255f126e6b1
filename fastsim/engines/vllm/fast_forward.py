"""Jump over the steps in which the running set only decodes.

After a step that performed its waiting scan and admitted, finished and preempted nobody, with everybody on the clock,
the next steps differ in nothing but growth until something changes. `steps_until_change` holds every stop; `jump`
does the steps at once. Asynchronous: so many schedule() calls, and so many outputs, which are those of the batch in
flight and of all new ones but the last.
"""

from fastsim._jit import helper, inlined
from fastsim.engines.vllm.arrivals import NEVER_ARRIVES, next_arrival_us
from fastsim.engines.vllm.codes import NO_LIMIT, PreemptionMode, QueueOrder, RunningCap
from fastsim.engines.vllm.door import let_arrivals_in, next_deadline_us
from fastsim.engines.vllm.free_list import take_blocks
from fastsim.engines.vllm.gaps import tick, ticks_in_room
from fastsim.engines.vllm.lanes import advance_clock
from fastsim.engines.vllm.latency import step_us
from fastsim.engines.vllm.livelock import steps_until_hopeless, watch_progress
from fastsim.engines.vllm.recorder import record_repeated, record_update
from fastsim.engines.vllm.running_cap import (
    after_steps,
    note_cap_bound,
    steps_until_cap_changes,
    steps_until_door_opens,
)
from fastsim.engines.vllm.scan import ScanEnd

FEEDBACK = int(RunningCap.FEEDBACK)
RESTART = int(PreemptionMode.RESTART)
NO_LIMIT_INT = int(NO_LIMIT)
FCFS = int(QueueOrder.FCFS)
EMPTY = int(ScanEnd.EMPTY)
CAP = int(ScanEnd.CAP)
BUDGET = int(ScanEnd.BUDGET)
BLOCKS = int(ScanEnd.BLOCKS)
SKIPPED = int(ScanEnd.SKIPPED)


@inlined
def may_jump(cfg, st):
    """Whether the coming steps only decode, and scan the queue as vainly as the one just done.

    A last prefill chunk in that step leaves more budget to the next one: then only a scan that failed for another
    reason is sure to fail again. A candidate that weighs a slot's victim may pass a later test: what the victim grows
    by is counted as free, and the cached blocks that it takes no longer count as hits to be saved.
    """
    if (
        not cfg["fast_forward"]
        or st["running"] == 0
        or st["clocked"] < st["running"]
        or st["preempted"] > 0
        or st["admitted"] > 0
        or st["finished"] > 0
        or st["cap"] != st["scan_cap"]
        or st["running"] > min(cfg["max_num_scheduled_tokens"], cfg["max_num_batched_tokens"])
    ):
        return False
    scan_end = st["scan_end"]
    weighs_victims = cfg["slot_preempt"] and cfg["enable_prefix_caching"] and st["waiting"] > 0
    if weighs_victims and (scan_end != CAP or cfg["bypass"]):
        return False
    if st["scheduled"] > 0:
        return not cfg["record"] and scan_end in (EMPTY, CAP, BLOCKS)
    return scan_end != SKIPPED


@inlined
def steps_until_change(cfg, st, tot, q):
    """How many coming steps are certain to change nothing but lengths, time left out."""
    in_flight = st["in_flight"]  # who ends is known one call later
    steps = min(st["clock_next_end"] - st["clock"] + in_flight, cfg["max_steps"] - tot["steps"] - in_flight)
    if cfg["running_cap"] == FEEDBACK:
        steps = min(steps, steps_until_cap_changes(cfg, st))
    if st["held"] > 0:
        steps = min(steps, steps_until_door_opens(cfg, st, q))
    if cfg["detect_livelock"] and cfg["preemption_mode"] == RESTART:
        steps = min(steps, steps_until_hopeless(cfg, st, tot))
    if cfg["prefill_schedule_interval"] > 1:
        steps = min(steps, st["last_prefill"] + cfg["prefill_schedule_interval"] - st["executed"] - 1)
    return min(steps, _steps_until_short(cfg, st, q, steps))


@inlined
def _steps_until_short(cfg, st, q, most):
    """Coming steps that the free blocks cover, at most `most`. A whole turn of the lanes takes a block a request."""
    block_size = cfg["block_size"]
    turns = st["free"] // st["clocked"]
    if turns * block_size >= most:
        return most
    left = st["free"] - turns * st["clocked"]
    steps = turns * block_size
    lane = st["due_lane"]
    while steps < most:
        left -= q.lane_size[lane]
        if left < 0:
            break
        steps += 1
        lane += 1
        if lane == block_size:
            lane = 0
    return steps


@inlined
def arrival_stop_us(cfg, st, q, log):
    """The next arrival that could change a decision: none while the scan cannot come to it."""
    scan_end = st["scan_end"]
    if (
        cfg["record"]
        or cfg["prefill_schedule_interval"] > 1
        or cfg["slot_preempt"]
        or cfg["timeout_us"] != NO_LIMIT_INT
        or cfg["backpressure_threshold"] > 0.0
        or min(cfg["max_num_queued_reqs"], cfg["max_num_queued_tokens"]) != NO_LIMIT_INT
    ):
        return next_arrival_us(st, q, log)
    if scan_end in (CAP, BUDGET):
        return NEVER_ARRIVES
    if scan_end != EMPTY and cfg["queue_order"] == FCFS and not cfg["bypass"]:
        adaptive = cfg["long_prefill_token_threshold_adaptive"] and not cfg["scheduler_reserve_full_isl"]
        if not adaptive:
            return NEVER_ARRIVES
    return next_arrival_us(st, q, log)


@inlined
def _lane_sum(q, block_size, first, count):
    """Blocks that `count` < block_size steps from lane `first` take, and the sum over those steps of blocks taken."""
    taken = 0
    area = 0
    lane = first
    for _ in range(count):
        taken += q.lane_size[lane]
        area += taken
        lane += 1
        if lane == block_size:
            lane = 0
    return taken, area


@inlined
def jump(cfg, st, tot, wl, req, q, blk, log, itl, rec):
    """Do all steps up to the next change, if there are any."""
    steps = steps_until_change(cfg, st, tot, q)
    if steps <= 0:
        return
    stop_us = min(cfg["horizon_us"], arrival_stop_us(cfg, st, q, log))
    if cfg["timeout_us"] != NO_LIMIT_INT:
        stop_us = min(stop_us, next_deadline_us(cfg, st, q, log))
    st["preempted"] = 0
    if cfg["b3_us_per_context_token"] != 0.0 or cfg["record"]:
        done, last_call_us = _jump_by_time(cfg, st, tot, req, q, blk, itl, rec, steps, stop_us)
    else:
        done, last_call_us = _jump_at_once(cfg, st, tot, req, q, blk, itl, steps, stop_us)
    if done == 0:
        return
    # Those who came during the jump could not be admitted, but they did wait
    let_arrivals_in(cfg, st, tot, wl, req, q, log, last_call_us)
    note_cap_bound(st)
    tot["waiting_peak"] = max(tot["waiting_peak"], st["waiting"])
    watch_progress(cfg, st, tot, req, q, st["clocked"])
    after_steps(cfg, st, tot, q, done, 0)


@inlined
def _jump_at_once(cfg, st, tot, req, q, blk, itl, steps, stop_us):
    """Steps of equal duration: closed form. Returns how many, and when the last schedule() call was."""
    decoders = st["clocked"]
    duration = step_us(cfg, 0, decoders, 0, 0)
    if stop_us <= st["now_us"]:
        return 0, 0
    # Outputs return every `duration` from here on; the first call is made now, the others each when one has returned
    returned_us = st["flight_end_us"] if st["in_flight"] > 0 else st["now_us"] + duration
    if duration > 0 and stop_us != NEVER_ARRIVES:
        steps = min(steps, 1 + max(0, (stop_us - returned_us + duration - 1) // duration))
    block_size = cfg["block_size"]
    turns = steps // block_size
    rest = steps - turns * block_size
    lane = st["due_lane"]
    # Held blocks summed over the steps: whole turns repeat one pattern on a rising base
    rest_taken, rest_area = _lane_sum(q, block_size, lane, rest)
    area = rest_area + rest * turns * decoders
    if turns > 0:
        _, turn_area = _lane_sum(q, block_size, lane, block_size)
        area += turns * turn_area + block_size * decoders * (turns * (turns - 1) // 2)
    held = st["usable"] - st["free"]
    taken = turns * decoders + rest_taken
    tot["kv_block_us"] += (held * steps + area) * duration
    take_blocks(cfg, st, req, blk, taken)
    tot["kv_peak_blocks"] = max(tot["kv_peak_blocks"], held + taken)
    tick(cfg, st, tot, itl, returned_us - st["clock_token_us"], decoders, 1)
    tick(cfg, st, tot, itl, duration, decoders, steps - 1)
    last_call_us = st["now_us"] if steps == 1 else returned_us + duration * (steps - 2)
    st["now_us"] = returned_us + duration * (steps - 1)
    _count_jumped(cfg, st, tot, steps, duration * steps)
    return steps, last_call_us


@inlined
def _count_jumped(cfg, st, tot, steps, duration_us):
    if st["in_flight"] > 0:
        st["gpu_us"] += duration_us
        st["flight_end_us"] = st["gpu_us"]
    advance_clock(cfg, st, steps)
    st["clock_token_us"] = st["now_us"]
    st["executed"] += steps
    tot["steps"] += steps
    st["clock_step"] = tot["steps"]
    tot["decode_tokens"] += st["clocked"] * steps
    tot["running_us"] += st["clocked"] * duration_us
    tot["busy_us"] += duration_us


@helper
def _jump_by_time(cfg, st, tot, req, q, blk, itl, rec, steps, stop_us):
    """The same where every step has its own duration: a loop over time, never over requests."""
    block_size = cfg["block_size"]
    decoders = st["clocked"]
    in_flight = st["in_flight"]
    context = st["clock_context"] + decoders * st["clock"]
    held = st["usable"] - st["free"]
    taken = 0
    lane = st["due_lane"]
    now_us = st["now_us"]
    start_us = st["gpu_us"] if in_flight > 0 else now_us
    first_start_us = start_us
    token_us = st["clock_token_us"]
    last_call_us = now_us
    done = 0
    if cfg["record"]:
        steps = min(steps, rec.steps.shape[0] - st["rec_steps"] - in_flight)
    if cfg["preemption_mode"] == RESTART:
        steps = min(steps, ticks_in_room(st, itl))
    while done < steps and now_us < stop_us:
        taken += q.lane_size[lane]
        lane += 1
        if lane == block_size:
            lane = 0
        duration = step_us(cfg, 0, decoders, context, 0)
        if cfg["record"]:
            record_repeated(st, rec, now_us, st["free"] - taken, start_us, start_us + duration)
            record_update(st, rec, st["free"] - taken)
        tot["kv_block_us"] += (held + taken) * duration
        context += decoders
        last_call_us = now_us
        now_us = start_us if in_flight > 0 else start_us + duration  # the output that returns: the flight's, or its own
        start_us += duration
        tick(cfg, st, tot, itl, now_us - token_us, decoders, 1)
        token_us = now_us
        done += 1
    take_blocks(cfg, st, req, blk, taken)
    tot["kv_peak_blocks"] = max(tot["kv_peak_blocks"], held + taken)
    st["now_us"] = now_us
    _count_jumped(cfg, st, tot, done, start_us - first_start_us)
    return done, last_call_us
