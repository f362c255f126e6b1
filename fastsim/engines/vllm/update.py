"""update_from_output(): counters advance, tokens are delivered, requests finish."""

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import NEVER, Status, note_completion
from fastsim.engines.vllm.arrivals import client_sends_next
from fastsim.engines.vllm.blocks import free_blocks
from fastsim.engines.vllm.codes import PreemptionMode
from fastsim.engines.vllm.gaps import count_gaps, log_token, tick
from fastsim.engines.vllm.lanes import advance_clock, enter_clock, lane_remove, leave_clock, running_remove
from fastsim.engines.vllm.waiting import withdraw


@inlined
def update_from_output(s, end_us):
    """Deliver this step's tokens at `end_us`; finish in scheduling order, which is that of the running list."""
    ends_on_clock = s.st["clocked"] > 0 and s.st["clock_next_end"] == s.st["clock"]
    tick(s, end_us - s.st["clock_token_us"], s.st["clocked"], 1)
    if ends_on_clock:
        _finish_clocked(s)
    advance_clock(s, 1)
    s.st["clock_token_us"] = end_us
    s.st["clock_step"] = s.tot["steps"]
    for k in range(s.st["scheduled"]):
        _advance(s, s.q.scheduled[k], end_us)
    if s.st["finished"] > 0:
        finish_noted(s, end_us)


@helper
def finish_noted(s, end_us):
    """Finish everybody noted, in scheduling order."""
    _sort_finished(s)
    for k in range(s.st["finished"]):
        finish_request(s, s.q.finished[k], end_us)
        if s.cfg["record"]:
            s.rec.finished[s.st["rec_finished"]] = s.q.finished[k]
            s.st["rec_finished"] += 1


@helper
def _finish_clocked(s):
    """Take those whose last decode this step is off the clock, as explicit requests that have advanced."""
    clock = s.st["clock"]
    slot = 0
    while slot < s.st["clocked"]:
        if s.q.clock_end[slot] == clock:
            i = s.q.clock_request[slot]
            leave_clock(s, i, 1)
            s.req.num_computed_tokens[i] += 1
            s.req.num_tokens[i] += 1
            _note_progress(s, i, s.req.num_tokens[i])
            note_finished(s, i)
        else:
            slot += 1


@inlined
def _note_progress(s, i, length):
    """Request `i` is `length` tokens long: more than in any life before is progress."""
    if length > s.req.max_num_tokens[i]:
        s.st["progress_step"] = s.tot["steps"]


@helper
def note_finished(s, i):
    """Note `i` as finishing in this step."""
    s.q.finished[s.st["finished"]] = i
    s.st["finished"] += 1


@inlined
def _advance(s, i, end_us):
    """One explicit scheduled request: C grows; if nothing is missing any more it gets a token."""
    grow_computed(s, i)
    length = s.req.num_computed_tokens[i] + 1
    if length <= s.req.num_tokens[i]:
        s.req.mid_prefill[i] = 1
        return
    s.req.mid_prefill[i] = 0
    deliver_token(s, i, length, end_us)
    left = s.req.final_tokens[i] - length
    if left <= 0:
        lane_remove(s, i)
        note_finished(s, i)
    elif s.st["use_clock"]:
        start_clock(s, i, left)


@inlined
def grow_computed(s, i):
    """The tokens that explicit request `i` was given in this step count as computed."""
    s.req.num_computed_tokens[i] += s.req.scheduled[i]
    s.req.scheduled[i] = 0


@helper
def start_clock(s, i, left):
    """Explicit request `i`, which has `left` more tokens to sample, enters the clock."""
    lane_remove(s, i)
    s.req.end_clock[i] = s.st["clock"] + left - 1
    enter_clock(s, i)


@inlined
def deliver_token(s, i, length, end_us):
    """One output token reaches the client: request `i` is `length` tokens long now."""
    s.req.num_tokens[i] = length
    if s.log.first_token_us[i] == NEVER:
        s.log.first_token_us[i] = end_us
        if s.log.first_life_token_us[i] == NEVER:
            s.log.first_life_token_us[i] = end_us
        s.req.run_tick[i] = s.st["tick"]
        s.req.token_tick[i] = s.st["tick"]
    elif s.cfg["preemption_mode"] == PreemptionMode.RESTART:
        log_token(s, i, end_us)
    else:
        count_gaps(s, end_us - s.log.last_token_us[i], 1)
    s.log.last_token_us[i] = end_us
    _note_progress(s, i, length)


@helper
def _sort_finished(s):
    """Scheduling order: admission numbers (insertion sort, the list is short)."""
    for k in range(1, s.st["finished"]):
        i = s.q.finished[k]
        place = k
        while place > 0 and s.req.admission_number[s.q.finished[place - 1]] > s.req.admission_number[i]:
            s.q.finished[place] = s.q.finished[place - 1]
            place -= 1
        s.q.finished[place] = i


@helper
def finish_request(s, i, end_us):
    """Request `i` (in no lane any more) has its last token: free its blocks, take it off the running list.

    Asynchronous: it may have been preempted while that token was in flight; then it is in the queue.
    """
    if s.log.status[i] == Status.RUNNING:
        running_remove(s, i)
        s.st["protected"] -= s.req.protected[i]
    else:
        withdraw(s, i)
    free_blocks(s, i, False)
    s.log.status[i] = Status.FINISHED
    s.log.last_token_us[i] = end_us
    s.log.finish_us[i] = end_us
    s.st["unfinished"] -= 1
    s.st["alive_tokens"] -= s.wl.prompt_tokens[i] + s.wl.output_tokens[i]
    s.st["completed_since_door"] += 1
    s.tot["completed"] += 1
    note_completion(s.tot, s.cfg["b1_us_per_prefill_token"], end_us)
    client_sends_next(s, end_us)
