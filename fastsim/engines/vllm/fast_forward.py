"""Jump over the steps in which the running set only decodes.

After a step that performed its waiting scan and admitted, finished and preempted nobody, with everybody on the clock,
the next steps differ in nothing but growth until something changes. `steps_until_change` holds every stop; `jump`
does the steps at once. Asynchronous: so many schedule() calls, and so many outputs, which are those of the batch in
flight and of all new ones but the last.
"""

from fastsim._jit import helper, inlined
from fastsim.engines.vllm.arrivals import let_arrivals_in, next_arrival_us, next_deadline_us
from fastsim.engines.vllm.codes import NO_LIMIT, PreemptionMode, QueueOrder, RunningCap
from fastsim.engines.vllm.free_list import blocks_for, full_blocks, take_blocks
from fastsim.engines.vllm.gaps import tick, ticks_in_room
from fastsim.engines.vllm.lanes import advance_clock
from fastsim.engines.vllm.latency import clock_window_tokens, fill_windows, step_us, tokens_us
from fastsim.engines.vllm.livelock import steps_until_no_progress, watch_progress
from fastsim.engines.vllm.policy_file.gates import opens_at, policy_repeats, stops_at_arrivals, watches_steps
from fastsim.engines.vllm.recorder import record_repeated, record_update
from fastsim.engines.vllm.running_cap import (
    after_steps,
    note_cap_bound,
    steps_until_cap_changes,
    steps_until_door_opens,
)
from fastsim.engines.vllm.scalars import ScanEnd


@inlined
def may_jump(s):
    """Whether the coming steps only decode, and scan the queue as vainly as the one just done.

    A last prefill chunk in that step leaves more budget to the next one: then only a scan that failed for another
    reason is sure to fail again. A candidate that weighs a slot's victim may pass a later test: what the victim grows
    by is counted as free, and the cached blocks that it takes no longer count as hits to be saved.
    """
    if (
        not s.cfg["fast_forward"]
        or s.st["running"] == 0
        or s.st["clocked"] < s.st["running"]
        or s.st["preempted"] > 0
        or s.st["admitted"] > 0
        or s.st["finished"] > 0
        or s.st["cap"] != s.st["scan_cap"]
        or s.st["running"] > min(s.cfg["max_num_scheduled_tokens"], s.cfg["max_num_batched_tokens"])
    ):
        return False
    if s.cfg["policy"] and not policy_repeats(s):
        return False
    scan_end = s.st["scan_end"]
    if s.cfg["record"] and scan_looks_at_somebody(s):
        return False
    weighs_victims = s.cfg["slot_preempt"] and s.cfg["enable_prefix_caching"] and s.st["waiting"] > 0
    if weighs_victims and (scan_end != ScanEnd.CAP or s.cfg["bypass"]):
        return False
    if s.st["scheduled"] > 0:
        return not s.cfg["record"] and scan_end in (ScanEnd.EMPTY, ScanEnd.CAP, ScanEnd.BLOCKS)
    return scan_end != ScanEnd.SKIPPED


@inlined
def scan_looks_at_somebody(s):
    """Whether coming scans may look at a request: what it lacks, which the tape notes, differs from step to step."""
    if s.cfg["bypass"] or s.cfg["slot_preempt"]:
        return s.st["waiting"] > 0
    return s.st["scan_end"] not in (ScanEnd.EMPTY, ScanEnd.CAP, ScanEnd.BUDGET)


@inlined
def steps_until_change(s):
    """How many coming steps are certain to change nothing but lengths, time and blocks left out."""
    in_flight = s.st["in_flight"]  # who ends is known one call later
    steps = min(s.st["clock_next_end"] - s.st["clock"] + in_flight, s.cfg["max_steps"] - s.tot["steps"] - in_flight)
    if s.cfg["running_cap"] == RunningCap.FEEDBACK:
        steps = min(steps, steps_until_cap_changes(s))
    if s.st["held"] > 0:
        steps = min(steps, steps_until_door_opens(s))
    if s.cfg["detect_livelock"] and s.cfg["preemption_mode"] == PreemptionMode.RESTART:
        steps = min(steps, steps_until_no_progress(s))
    if s.cfg["prefill_schedule_interval"] > 1:
        steps = min(steps, s.st["last_prefill"] + s.cfg["prefill_schedule_interval"] - s.st["executed"] - 1)
    return steps


@inlined
def steps_until_short(s, most):
    """Coming steps that the free blocks cover, at most `most`. A whole turn of the lanes takes a block a request."""
    block_size = s.cfg["block_size"]
    free = s.st["free"]
    decoders = s.st["clocked"]
    if blocks_for(s, most) * decoders <= free:
        return most
    turns = free // decoders if decoders <= free else 0
    left = free - turns * decoders
    steps = turns * block_size
    lane = s.st["due_lane"]
    while steps < most:
        left -= s.q.lane_size[lane]
        if left < 0:
            break
        steps += 1
        lane += 1
        if lane == block_size:
            lane = 0
    return steps


@inlined
def arrival_stop_us(s):
    """The next arrival that could change a decision: none while the scan cannot come to it."""
    scan_end = s.st["scan_end"]
    if (
        s.cfg["record"]
        or s.cfg["prefill_schedule_interval"] > 1
        or s.cfg["slot_preempt"]
        or s.cfg["timeout_us"] != NO_LIMIT
        or s.cfg["backpressure_threshold"] > 0.0
        or (s.cfg["policy"] and stops_at_arrivals(s))
        or min(s.cfg["max_num_queued_reqs"], s.cfg["max_num_queued_tokens"]) != NO_LIMIT
    ):
        return next_arrival_us(s)
    if scan_end in (ScanEnd.CAP, ScanEnd.BUDGET):
        return NO_LIMIT
    if scan_end != ScanEnd.EMPTY and s.cfg["queue_order"] == QueueOrder.FCFS and not s.cfg["bypass"]:
        adaptive = s.cfg["long_prefill_token_threshold_adaptive"] and not s.cfg["scheduler_reserve_full_isl"]
        if not adaptive:
            return NO_LIMIT
    return next_arrival_us(s)


@inlined
def _growth(s, most):
    """At most `most` coming steps that the free blocks cover: how many, blocks they take, and those summed over steps.

    A whole turn of the lanes takes a block of each decoder; turns repeat one pattern on a rising base.
    """
    block_size = s.cfg["block_size"]
    decoders = s.st["clocked"]
    turns = full_blocks(s, most)
    if turns * decoders > s.st["free"]:
        turns = s.st["free"] // decoders
    base = turns * decoders
    left = s.st["free"] - base
    rest = min(most - turns * block_size, block_size)
    taken = 0
    area = 0
    done = 0
    lane = s.st["due_lane"]
    while done < rest:
        grown = taken + s.q.lane_size[lane]
        if grown > left:
            break
        taken = grown
        area += grown
        done += 1
        lane += 1
        if lane == block_size:
            lane = 0
    if turns > 0:
        area += done * base + turns * _turn_area(s) + block_size * decoders * (turns * (turns - 1) // 2)
    return turns * block_size + done, base + taken, area


@inlined
def _turn_area(s):
    """Blocks taken by the end of each step of a whole turn, summed over its steps."""
    block_size = s.cfg["block_size"]
    due = s.st["due_lane"]
    area = 0
    for lane in range(due, block_size):
        area += s.q.lane_size[lane] * (block_size + due - lane)
    for lane in range(due):
        area += s.q.lane_size[lane] * (due - lane)
    return area


@inlined
def jump(s):
    """Do all steps up to the next change, if there are any."""
    steps = steps_until_change(s)
    if s.cfg["window_tokens"] > 0:
        fill_windows(s)
        steps = min(steps, s.st["window_fill_clock"] - s.st["clock"])
    if steps <= 0:
        return
    stop_us = min(s.cfg["horizon_us"], arrival_stop_us(s))
    if s.cfg["timeout_us"] != NO_LIMIT:
        stop_us = min(stop_us, next_deadline_us(s))
    s.st["preempted"] = 0
    if s.cfg["b3_us_per_context_token"] != 0.0 or s.st["window_below"] > 0 or s.cfg["record"] or watches_steps(s):
        done, last_call_us = jump_by_time(s, steps_until_short(s, steps), stop_us)
    else:
        done, last_call_us = jump_at_once(s, steps, stop_us)
    if done == 0:
        return
    # Those who came during the jump could not be admitted, but they did wait
    let_arrivals_in(s, last_call_us)
    note_cap_bound(s)
    s.tot["waiting_peak"] = max(s.tot["waiting_peak"], s.st["waiting"])
    watch_progress(s, s.st["clocked"])
    after_steps(s, done, 0)


@inlined
def jump_at_once(s, most, stop_us):
    """Steps of equal duration, at most `most`: closed form. Returns how many, and when the last call was."""
    decoders = s.st["clocked"]
    duration = step_us(s.cfg, tokens_us(s, 0, decoders), 0, clock_window_tokens(s), 0.0, 0)
    if stop_us <= s.st["now_us"]:
        return 0, 0
    # Outputs return every `duration` from here on; the first call is made now, the others each when one has returned
    returned_us = s.st["flight_end_us"] if s.st["in_flight"] > 0 else s.st["now_us"] + duration
    steps, taken, area = _growth(s, most)
    if steps <= 0 or returned_us > s.st["until_us"]:
        return 0, 0
    if s.st["until_us"] - returned_us < duration * (steps - 1):
        steps, taken, area = _growth(s, 1 + (s.st["until_us"] - returned_us) // duration)
    if stop_us - returned_us < duration * (steps - 1):
        most = min(steps, 1 + max(0, (stop_us - returned_us + duration - 1) // duration))
        steps, taken, area = _growth(s, most)
    held = s.st["usable"] - s.st["free"]
    s.tot["kv_block_us"] += (held * steps + area) * duration
    take_blocks(s, taken)
    s.tot["kv_peak_blocks"] = max(s.tot["kv_peak_blocks"], held + taken)
    tick(s, returned_us - s.st["clock_token_us"], decoders, 1)
    tick(s, duration, decoders, steps - 1)
    last_call_us = s.st["now_us"] if steps == 1 else returned_us + duration * (steps - 2)
    s.st["now_us"] = returned_us + duration * (steps - 1)
    _count_jumped(s, steps, duration * steps)
    return steps, last_call_us


@inlined
def _count_jumped(s, steps, duration_us):
    if s.st["in_flight"] > 0:
        s.st["gpu_us"] += duration_us
        s.st["flight_end_us"] = s.st["gpu_us"]
    advance_clock(s, steps)
    s.st["clock_token_us"] = s.st["now_us"]
    s.st["executed"] += steps
    s.tot["steps"] += steps
    s.st["clock_step"] = s.tot["steps"]
    s.tot["decode_tokens"] += s.st["clocked"] * steps
    s.tot["running_us"] += s.st["clocked"] * duration_us
    s.tot["busy_us"] += duration_us


@helper
def jump_by_time(s, steps, stop_us):
    """The same where every step has its own duration: a loop over time, never over requests."""
    block_size = s.cfg["block_size"]
    decoders = s.st["clocked"]
    in_flight = s.st["in_flight"]
    by_tokens_us = tokens_us(s, 0, decoders)
    context = s.st["clock_context"] + decoders * s.st["clock"]
    window = clock_window_tokens(s)
    held = s.st["usable"] - s.st["free"]
    taken = 0
    lane = s.st["due_lane"]
    now_us = s.st["now_us"]
    start_us = s.st["gpu_us"] if in_flight > 0 else now_us
    first_start_us = start_us
    token_us = s.st["clock_token_us"]
    last_call_us = now_us
    done = 0
    if s.cfg["record"]:
        steps = min(steps, s.rec.steps.shape[0] - s.st["rec_steps"] - in_flight)
    if s.cfg["preemption_mode"] == PreemptionMode.RESTART:
        steps = min(steps, ticks_in_room(s))
    watches = watches_steps(s)
    while done < steps and now_us < stop_us:
        duration = step_us(s.cfg, by_tokens_us, context, window, 0.0, 0)
        returned_us = start_us if in_flight > 0 else start_us + duration  # the flight's output, or its own
        if returned_us > s.st["until_us"]:
            break
        grown = taken + s.q.lane_size[lane]
        if watches and opens_at(s, now_us, s.st["free"] - grown, done):
            break
        taken = grown
        lane += 1
        if lane == block_size:
            lane = 0
        if s.cfg["record"]:
            record_repeated(s, now_us, s.st["free"] - taken, start_us, start_us + duration)
            record_update(s, s.st["free"] - taken)
        s.tot["kv_block_us"] += (held + taken) * duration
        context += decoders
        window += s.st["window_below"]
        last_call_us = now_us
        now_us = returned_us
        start_us += duration
        tick(s, now_us - token_us, decoders, 1)
        token_us = now_us
        done += 1
    take_blocks(s, taken)
    s.tot["kv_peak_blocks"] = max(s.tot["kv_peak_blocks"], held + taken)
    s.st["now_us"] = now_us
    _count_jumped(s, done, start_us - first_start_us)
    return done, last_call_us
