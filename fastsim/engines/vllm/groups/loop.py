"""The loops around the scheduler: one batch at a time, or two in flight (asynchronous scheduling)."""

from fastsim._jit import borrow, helper, inlined
from fastsim.engines.outputs import Status, Stop
from fastsim.engines.vllm.arrivals import next_deadline_us, receive_arrivals, time_out, unhold
from fastsim.engines.vllm.batch_queue import NOTHING, SLEEP_US, await_work, has_work
from fastsim.engines.vllm.codes import NO_LIMIT
from fastsim.engines.vllm.groups.admission import waiting_loop
from fastsim.engines.vllm.groups.fast_forward import may_stretch, stretch
from fastsim.engines.vllm.groups.latency import decode_step_us, scheduled_step_us
from fastsim.engines.vllm.groups.livelock import find_livelock
from fastsim.engines.vllm.groups.recorder import record_has_room, record_schedule, record_update
from fastsim.engines.vllm.groups.reset import reset, settle
from fastsim.engines.vllm.groups.schedule import begin_step, close_batch, running_loop, running_remove
from fastsim.engines.vllm.groups.tables import free_tables
from fastsim.engines.vllm.groups.update import update_from_output
from fastsim.engines.vllm.latency import tokens_us
from fastsim.engines.vllm.livelock import GOING_ON
from fastsim.engines.vllm.loop import LOG_FULL, before_step, count_scheduled_step, jump_empty, may_jump_empty
from fastsim.engines.vllm.running_cap import after_steps
from fastsim.engines.vllm.waiting import withdraw


@helper
def run_configuration(state):
    """One run. Returns 0, or LOG_FULL: repeat with more room."""
    s = borrow(state)
    return _run_async(s) if s.cfg["asynchronous"] else _run(s)


@inlined
def schedule_step(s, base):
    """Decide this step: who runs how many tokens, who is preempted, who is admitted."""
    begin_step(s)
    running_loop(s)
    waiting_loop(s)
    close_batch(s, base)


# --- The door -------------------------------------------------------------------------------------------------------


@inlined
def open_door(s):
    """Deadlines, then those held at the door, then everybody who has arrived by now."""
    if s.cfg["timeout_us"] != NO_LIMIT:
        _abort_expired(s)
    receive_arrivals(s)


@helper
def _abort_expired(s):
    """Abort everybody whose deadline has passed, by (deadline, index): the order of arrival."""
    while next_deadline_us(s) <= s.st["now_us"]:
        i = s.q.received[s.st["deadline_cursor"]]
        s.st["deadline_cursor"] += 1
        if s.log.status[i] == Status.HELD:
            unhold(s, i)
        else:
            _abort_request(s, i)
        time_out(s, i)


@helper
def _abort_request(s, i):
    """Its client has gone: take `i` out of the queues and free its blocks."""
    if s.log.status[i] == Status.RUNNING:
        running_remove(s, i)
        free_tables(s, i)
    else:
        withdraw(s, i)
    s.st["somebody_finished"] = 1
    s.st["unfinished"] -= 1
    s.st["alive_tokens"] -= s.wl.prompt_tokens[i] + s.wl.output_tokens[i]


# --- One batch at a time --------------------------------------------------------------------------------------------


@helper
def _run(s):
    reset(s)
    stop = GOING_ON
    while stop == GOING_ON:
        if s.cfg["record"] and not record_has_room(s):
            return LOG_FULL
        open_door(s)
        stop = before_step(s)
        if stop == GOING_ON and s.st["unfinished"] > 0:
            _step(s)
            stop = find_livelock(s)
            if stop == GOING_ON and may_stretch(s):
                stretch(s)
                stop = _find_livelock_after_jump(s)
            elif stop == GOING_ON and may_jump_empty(s):
                jump_empty(s, decode_step_us(s, tokens_us(s, 0, 0), 0, 0))
                stop = _find_livelock_after_jump(s)
    settle(s, stop)
    return 0


@helper
def _find_livelock_after_jump(s):
    """The same where a call is rare enough not to be compiled in."""
    return find_livelock(s)


@inlined
def _step(s):
    """schedule(), the time it takes, update_from_output()."""
    schedule_step(s, 0)
    duration = scheduled_step_us(s)
    end_us = s.st["now_us"] + duration
    if s.cfg["record"]:
        record_schedule(s, 0, s.st["now_us"], end_us)
    tokens = count_scheduled_step(s, duration)
    s.tot["steps"] += 1
    update_from_output(s, 0, s.st["scheduled"], end_us)
    s.st["now_us"] = end_us
    if tokens > 0:
        after_steps(s, 1, s.st["preempted"])
    if s.cfg["record"]:
        record_update(s, s.st["free"])


# --- Two batches in flight ------------------------------------------------------------------------------------------


@helper
def _run_async(s):
    reset(s)
    stop = GOING_ON
    while stop == GOING_ON:
        if s.cfg["record"] and not record_has_room(s):
            return LOG_FULL
        stop = await_work(s)
        if stop == GOING_ON:
            open_door(s)
            stop = _make_pass(s)
        if stop == GOING_ON and _flight_repeats(s) and may_jump_empty(s):
            jump_empty(s, SLEEP_US)
            s.st["flight_end_us"] = s.st["now_us"] - SLEEP_US
    if s.st["in_flight"] > 0:
        _receive(s)
    settle(s, stop)
    return 0


@inlined
def _flight_repeats(s):
    """Whether the flight is as empty as the batch before it, and nobody has finished since."""
    return (
        s.st["in_flight"] > 0
        and s.st["flight_tokens"] == 0
        and s.st["received_tokens"] == 0
        and s.st["finished"] == 0
        and not s.st["somebody_finished"]
    )


@inlined
def _make_pass(s):
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
        tokens = _submit(s)
        if s.st["in_flight"] == 1:
            _hand_over(s, tokens)
            waits_for_more = tokens > 0 or s.st["unfinished"] > 0
    if s.st["in_flight"] > 0 and not waits_for_more:
        _receive(s)
        stop = find_livelock(s)
        if s.st["finished"] > 0:
            s.st["somebody_finished"] = 1
        if s.st["in_flight"] > 0:
            _hand_over(s, tokens)
    if tokens == 0 and has_work(s):
        s.st["now_us"] += SLEEP_US
    return stop


@inlined
def _next_base(s):
    """Where the batch behind the flight is written: the other half."""
    return 0 if s.st["flight_base"] > 0 else s.q.batch_request.shape[0] // 2


@inlined
def _submit(s):
    """Schedule a batch and queue it behind what the GPU still does. Returns its tokens; an empty one takes no time."""
    s.st["somebody_finished"] = 0
    base = _next_base(s)
    schedule_step(s, base)
    start_us = max(s.st["now_us"], s.st["gpu_us"])
    end_us = start_us
    if s.st["prefill_tokens"] + s.st["decode_tokens"] > 0:
        end_us += scheduled_step_us(s)
        s.st["gpu_us"] = end_us
    s.st["submitted_end_us"] = end_us
    if s.cfg["record"]:
        record_schedule(s, base, start_us, end_us)
    tokens = count_scheduled_step(s, end_us - start_us)
    s.st["in_flight"] += 1
    return tokens


@inlined
def _hand_over(s, tokens):
    """The batch just submitted is the flight now."""
    s.st["flight_base"] = _next_base(s)
    s.st["flight_size"] = s.st["scheduled"]
    s.st["flight_tokens"] = tokens
    s.st["flight_preempted"] = s.st["preempted"]
    s.st["flight_end_us"] = s.st["submitted_end_us"]


@helper
def _receive(s):
    """The output of the flight is there: tokens, completions, and what watches steps."""
    s.st["in_flight"] -= 1
    s.st["now_us"] = max(s.st["now_us"], s.st["flight_end_us"])
    s.st["received_tokens"] = s.st["flight_tokens"]
    s.tot["steps"] += 1
    update_from_output(s, s.st["flight_base"], s.st["flight_size"], s.st["flight_end_us"])
    if s.st["flight_tokens"] > 0:
        after_steps(s, 1, s.st["flight_preempted"])
    if s.cfg["record"]:
        record_update(s, s.st["free"])
