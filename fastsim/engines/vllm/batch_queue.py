"""The loop around the scheduler with two batches in flight (asynchronous scheduling, vLLM 0.33.0's default).

After vLLM's `EngineCore.step_with_batch_queue`: a batch is scheduled before the output of the one before it, "the
flight", is known. A batch in flight is the list of its explicit requests and the number of those that decode on the
clock. Somebody who leaves the clock while it flies becomes an entry of its list (`lanes.write_out_flight`).
"""

from fastsim._jit import borrow, helper, inlined
from fastsim.engines.outputs import Status, Stop
from fastsim.engines.vllm.arrivals import next_arrival_us, open_door
from fastsim.engines.vllm.blocks import cache_blocks
from fastsim.engines.vllm.codes import NO_LIMIT, PreemptionMode
from fastsim.engines.vllm.dense import FALL_BACK, is_plain, run_dense
from fastsim.engines.vllm.fast_forward import jump, may_jump
from fastsim.engines.vllm.free_list import full_blocks
from fastsim.engines.vllm.gaps import tick
from fastsim.engines.vllm.lanes import advance_clock, lane_remove, length, take_ended_off_clock
from fastsim.engines.vllm.latency import scheduled_step_us
from fastsim.engines.vllm.livelock import GOING_ON, find_livelock, find_livelock_after_jump, watch_progress
from fastsim.engines.vllm.loop import LOG_FULL, count_scheduled_step, jump_empty, may_jump_empty, run
from fastsim.engines.vllm.pauses import see, unless_more_comes
from fastsim.engines.vllm.recorder import logs_have_room, record_schedule, record_update
from fastsim.engines.vllm.reset import reset, settle
from fastsim.engines.vllm.running_cap import after_steps
from fastsim.engines.vllm.schedule import schedule_step
from fastsim.engines.vllm.update import deliver_token, finish_noted, grow_computed, note_finished, start_clock

NOTHING = -1
SLEEP_US = 1000
"""The engine core sleeps this long after a pass that submitted nothing while it still has requests."""


@helper
def run_configuration(state):
    """One run of the engine that the configuration names. Returns 0, or LOG_FULL: repeat with more room."""
    s = borrow(state)
    if is_plain(s) and run_dense(s) != FALL_BACK:
        return 0
    return run_async(s) if s.cfg["asynchronous"] else run(s)


@helper
def run_async(s):
    """One run from the first arrival to its end. Returns 0, or LOG_FULL: repeat with more room."""
    reset(s)
    stop = advance_async(s)
    if stop == LOG_FULL:
        return LOG_FULL
    settle(s, stop)
    return 0


@helper
def advance_async(s):
    """Make all passes that start before `until_us`. Returns why the run ended, GOING_ON, or LOG_FULL."""
    stop = GOING_ON
    while stop == GOING_ON and s.st["now_us"] < s.st["until_us"]:
        if not logs_have_room(s, s.wl.prompt_tokens.shape[0]):
            return LOG_FULL
        stop = await_work(s)
        if s.st["now_us"] >= s.st["until_us"]:
            break
        if stop == GOING_ON:
            open_door(s)
            see(s, s.st["running"])
            stop = make_pass(s)
        if stop == GOING_ON and flight_repeats(s) and may_jump(s):
            jump(s)
            stop = find_livelock_after_jump(s)
        elif stop == GOING_ON and flight_repeats(s) and may_jump_empty(s):
            jump_empty(s, SLEEP_US)
            s.st["flight_end_us"] = s.st["now_us"] - SLEEP_US
    if stop != GOING_ON and s.st["in_flight"] > 0:
        take_ended_off_clock(s)
        receive(s)
    return unless_more_comes(s, stop)


@inlined
def has_work(s):
    """Whether the engine core calls schedule(): also once after somebody finished, so that workers hear of it."""
    return s.st["unfinished"] > 0 or s.st["somebody_finished"]


@inlined
def is_awake(s):
    """Whether it goes on without a further arrival."""
    return has_work(s) or s.st["in_flight"] > 0 or s.st["held"] > 0


@inlined
def flight_repeats(s):
    """Whether the flight holds what coming batches will: only decodes on the clock; or nothing, like the one before.

    And nobody has finished since the last call, so that the next one finds what that one found.
    """
    if s.st["in_flight"] == 0 or s.st["flight_size"] > 0 or s.st["finished"] > 0 or s.st["somebody_finished"]:
        return False
    return s.st["flight_tokens"] > 0 or s.st["received_tokens"] == 0


@inlined
def await_work(s):
    """Idle: advance the clock to the next arrival, or stop when there is none."""
    if is_awake(s):
        return GOING_ON
    arrival_us = next_arrival_us(s)
    if arrival_us == NO_LIMIT:
        return Stop.DRAINED
    s.st["now_us"] = max(s.st["now_us"], arrival_us)
    return GOING_ON


@inlined
def make_pass(s):
    """Submit a batch if there is work; receive the output of the oldest unless the queue has room for another."""
    stop = GOING_ON
    s.st["received_tokens"] = NOTHING
    tokens = 0
    waits_for_more = False
    if has_work(s):
        if s.st["now_us"] >= s.cfg["horizon_us"]:
            return Stop.HORIZON
        if s.tot["steps"] + s.st["in_flight"] == s.cfg["max_steps"]:
            return Stop.MAX_STEPS
        tokens = submit(s)
        if s.st["in_flight"] == 1:
            hand_over(s, tokens)
            waits_for_more = tokens > 0 or s.st["unfinished"] > 0
    if s.st["in_flight"] > 0 and not waits_for_more:
        receive(s)
        stop = find_livelock(s)
        if s.st["finished"] > 0:
            s.st["somebody_finished"] = 1
        if s.st["in_flight"] > 0:
            hand_over(s, tokens)
    if tokens == 0 and has_work(s):
        s.st["now_us"] += SLEEP_US
    return stop


@inlined
def submit(s):
    """Schedule a batch and queue it behind what the GPU still does. Returns its tokens; an empty one takes no time."""
    s.st["somebody_finished"] = 0
    schedule_step(s)
    start_us = max(s.st["now_us"], s.st["gpu_us"])
    end_us = start_us
    if s.st["prefill_tokens"] + s.st["decode_tokens"] > 0:
        end_us += scheduled_step_us(s)
        s.st["gpu_us"] = end_us
    s.st["submitted_end_us"] = end_us
    if s.cfg["record"]:
        record_schedule(s, start_us, end_us)
    tokens = count_scheduled_step(s, end_us - start_us)
    send_batch(s)
    s.st["in_flight"] += 1
    return tokens


@helper
def receive(s):
    """The output of the flight is there: tokens, completions, and what watches steps."""
    s.st["in_flight"] -= 1
    s.st["now_us"] = max(s.st["now_us"], s.st["flight_end_us"])
    s.st["received_tokens"] = s.st["flight_tokens"]
    s.tot["steps"] += 1
    receive_output(s)
    watch_progress(s, s.st["flight_clocked"])
    if s.st["flight_tokens"] > 0:
        after_steps(s, 1, s.st["flight_preempted"])
    if s.cfg["record"]:
        record_update(s, s.st["free"])


@inlined
def next_base(s):
    """Where the list of the batch behind the flight starts: the other half."""
    return 0 if s.st["flight_base"] > 0 else s.q.flight_request.shape[0] // 2


@inlined
def send_batch(s):
    """After schedule(): C grows, the tokens are in flight, and whoever misses nothing more will get a token.

    From then on it is certain that it decodes in every later call until its last token is in flight, so it enters the
    clock here, before the token has come.
    """
    s.st["submitted_clocked"] = s.st["clocked"]
    advance_clock(s, 1)
    base = next_base(s)
    for k in range(s.st["scheduled"]):
        i = s.q.scheduled[k]
        whole = length(s, i)
        grow_computed(s, i)
        samples = s.req.num_computed_tokens[i] == whole
        s.q.flight_request[base + k] = i
        s.q.flight_samples[base + k] = samples
        s.req.flights[i] += 1
        s.req.mid_prefill[i] = not samples
        if samples and s.st["use_clock"]:
            left = s.req.final_tokens[i] - whole - 1
            if left > 0:
                start_clock(s, i, left)


@inlined
def hand_over(s, tokens):
    """The batch just submitted is the flight now."""
    s.st["flight_base"] = next_base(s)
    s.st["flight_size"] = s.st["scheduled"]
    s.st["flight_clocked"] = s.st["submitted_clocked"]
    s.st["flight_tokens"] = tokens
    s.st["flight_preempted"] = s.st["preempted"]
    s.st["flight_end_us"] = s.st["submitted_end_us"]


@inlined
def receive_output(s):
    """update_from_output() for the flight, at its end."""
    end_us = s.st["flight_end_us"]
    s.st["finished"] = 0
    tick(s, end_us - s.st["clock_token_us"], s.st["flight_clocked"], 1)
    s.st["clock_token_us"] = end_us
    s.st["clock_step"] = s.tot["steps"]
    base = s.st["flight_base"]
    for k in range(base, base + s.st["flight_size"]):
        i = s.q.flight_request[k]
        if s.cfg["timeout_us"] == NO_LIMIT or s.log.status[i] != Status.TIMED_OUT:
            _receive_entry(s, i, s.q.flight_samples[k])
    if s.st["finished"] > 0:
        finish_noted(s, end_us)


@inlined
def _receive_entry(s, i, samples):
    """Tokens of request `i` return. One preempted meanwhile gets its token all the same, unless its life is over."""
    s.req.flights[i] -= 1
    stale = s.req.stale[i]
    if stale:
        s.req.stale[i] = 0
    if not samples:
        return
    if stale and s.cfg["preemption_mode"] == PreemptionMode.RESTART:
        s.tot["discarded_tokens"] += 1
        return
    delivered = s.req.num_tokens[i] + 1
    deliver_token(s, i, delivered, s.st["flight_end_us"])
    # If it is in the next batch, too, that call has hashed as much; if on the clock, `leave_clock` will see to it
    if s.cfg["enable_prefix_caching"] and not stale and s.req.flights[i] == 0 and s.req.lane[i] == s.cfg["block_size"]:
        cache_blocks(s, i, full_blocks(s, delivered - 1))
    if delivered >= s.req.final_tokens[i]:
        if s.log.status[i] == Status.RUNNING:
            lane_remove(s, i)
        note_finished(s, i)
