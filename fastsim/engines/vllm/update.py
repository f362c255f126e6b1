"""update_from_output(): counters advance, tokens are delivered, requests finish."""

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import NEVER, Status, note_completion
from fastsim.engines.vllm.arrivals import client_sends_next
from fastsim.engines.vllm.blocks import free_blocks
from fastsim.engines.vllm.codes import PreemptionMode
from fastsim.engines.vllm.gaps import count_gaps, log_token, tick
from fastsim.engines.vllm.lanes import advance_clock, enter_clock, lane_remove, leave_clock, running_remove
from fastsim.engines.vllm.waiting import withdraw

RUNNING = int(Status.RUNNING)
FINISHED = int(Status.FINISHED)
RESTART = int(PreemptionMode.RESTART)


@inlined
def update_from_output(cfg, st, tot, wl, req, q, blk, log, itl, rec, end_us):
    """Deliver this step's tokens at `end_us`; finish in scheduling order, which is that of the running list."""
    ends_on_clock = st["clocked"] > 0 and st["clock_next_end"] == st["clock"]
    tick(cfg, st, tot, itl, end_us - st["clock_token_us"], st["clocked"], 1)
    if ends_on_clock:
        _finish_clocked(cfg, st, tot, req, q, log)
    advance_clock(cfg, st, 1)
    st["clock_token_us"] = end_us
    st["clock_step"] = tot["steps"]
    for k in range(st["scheduled"]):
        _advance(cfg, st, tot, req, q, log, itl, q.scheduled[k], end_us)
    if st["finished"] > 0:
        finish_noted(cfg, st, tot, wl, req, q, blk, log, rec, end_us)


@helper
def finish_noted(cfg, st, tot, wl, req, q, blk, log, rec, end_us):
    """Finish everybody noted, in scheduling order."""
    _sort_finished(st, req, q)
    for k in range(st["finished"]):
        finish_request(cfg, st, tot, wl, req, q, blk, log, q.finished[k], end_us)
        if cfg["record"]:
            rec.finished[st["rec_finished"]] = q.finished[k]
            st["rec_finished"] += 1


@helper
def _finish_clocked(cfg, st, tot, req, q, log):
    """Take those whose last decode this step is off the clock, as explicit requests that have advanced."""
    clock = st["clock"]
    slot = 0
    while slot < st["clocked"]:
        if q.clock_end[slot] == clock:
            i = q.clock_request[slot]
            leave_clock(cfg, st, req, q, log, i, 1)
            req.num_computed_tokens[i] += 1
            req.num_tokens[i] += 1
            _note_progress(st, tot, req, i, req.num_tokens[i])
            note_finished(st, q, i)
        else:
            slot += 1


@inlined
def _note_progress(st, tot, req, i, length):
    """Request `i` is `length` tokens long: more than in any life before is progress."""
    if length > req.max_num_tokens[i]:
        st["progress_step"] = tot["steps"]


@helper
def note_finished(st, q, i):
    """Note `i` as finishing in this step."""
    q.finished[st["finished"]] = i
    st["finished"] += 1


@inlined
def _advance(cfg, st, tot, req, q, log, itl, i, end_us):
    """One explicit scheduled request: C grows; if nothing is missing any more it gets a token."""
    grow_computed(req, i)
    length = req.num_computed_tokens[i] + 1
    if length <= req.num_tokens[i]:
        req.mid_prefill[i] = 1
        return
    req.mid_prefill[i] = 0
    deliver_token(cfg, st, tot, req, log, itl, i, length, end_us)
    left = req.final_tokens[i] - length
    if left <= 0:
        lane_remove(req, q, i)
        note_finished(st, q, i)
    elif st["use_clock"]:
        start_clock(cfg, st, req, q, i, left)


@inlined
def grow_computed(req, i):
    """The tokens that explicit request `i` was given in this step count as computed."""
    req.num_computed_tokens[i] += req.scheduled[i]
    req.scheduled[i] = 0


@helper
def start_clock(cfg, st, req, q, i, left):
    """Explicit request `i`, which has `left` more tokens to sample, enters the clock."""
    lane_remove(req, q, i)
    req.end_clock[i] = st["clock"] + left - 1
    enter_clock(cfg, st, req, q, i)


@inlined
def deliver_token(cfg, st, tot, req, log, itl, i, length, end_us):
    """One output token reaches the client: request `i` is `length` tokens long now."""
    req.num_tokens[i] = length
    if log.first_token_us[i] == NEVER:
        log.first_token_us[i] = end_us
        if log.first_life_token_us[i] == NEVER:
            log.first_life_token_us[i] = end_us
        req.run_tick[i] = st["tick"]
        req.token_tick[i] = st["tick"]
    elif cfg["preemption_mode"] == RESTART:
        log_token(st, req, log, itl, i, end_us)
    else:
        count_gaps(st, tot, itl, end_us - log.last_token_us[i], 1)
    log.last_token_us[i] = end_us
    _note_progress(st, tot, req, i, length)


@helper
def _sort_finished(st, req, q):
    """Scheduling order: admission numbers (insertion sort, the list is short)."""
    for k in range(1, st["finished"]):
        i = q.finished[k]
        place = k
        while place > 0 and req.admission_number[q.finished[place - 1]] > req.admission_number[i]:
            q.finished[place] = q.finished[place - 1]
            place -= 1
        q.finished[place] = i


@helper
def finish_request(cfg, st, tot, wl, req, q, blk, log, i, end_us):
    """Request `i` (in no lane any more) has its last token: free its blocks, take it off the running list.

    Asynchronous: it may have been preempted while that token was in flight; then it is in the queue.
    """
    if log.status[i] == RUNNING:
        running_remove(st, tot, req, log, i)
        st["protected"] -= req.protected[i]
    else:
        withdraw(st, wl, req, q, log, i)
    free_blocks(cfg, st, req, blk, i, False)
    log.status[i] = FINISHED
    log.last_token_us[i] = end_us
    log.finish_us[i] = end_us
    st["unfinished"] -= 1
    st["alive_tokens"] -= wl.prompt_tokens[i] + wl.output_tokens[i]
    st["completed_since_door"] += 1
    tot["completed"] += 1
    note_completion(tot, end_us)
    client_sends_next(st, wl, q, log, end_us)
