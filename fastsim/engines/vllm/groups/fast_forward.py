"""The steps in which the running set only decodes, done without visiting those of them for whom nothing happens.

Such a request needs its tables touched now and then: a block to take, to give back or to hash. When that is can be told
ahead: without drafts by counting, with them by walking along its acceptances, which depend on request and position
only. So each request stands in a calendar at its next such step, and a step visits those whose day it is, in running
order. It ends before the step in which anything else can happen: somebody finishes, blocks are short, the head of the
queue may fit, somebody arrives who could be admitted.

What a step did before it was found to be such a one, the scheduler finds done when it does the step itself: giving back
and taking for the same tokens a second time changes nothing.
"""

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import record_gaps
from fastsim.engines.vllm.arrivals import let_arrivals_in, next_deadline_us
from fastsim.engines.vllm.codes import NO_LIMIT, RunningCap
from fastsim.engines.vllm.fast_forward import arrival_stop_us
from fastsim.engines.vllm.groups.hashing import hash_blocks
from fastsim.engines.vllm.groups.latency import decode_step_us
from fastsim.engines.vllm.groups.lookup import find_hits
from fastsim.engines.vllm.groups.schedule import allocate_running
from fastsim.engines.vllm.groups.speculation import accepted_drafts
from fastsim.engines.vllm.groups.tables import note_quiet
from fastsim.engines.vllm.latency import tokens_us
from fastsim.engines.vllm.running_cap import (
    after_steps,
    note_cap_bound,
    steps_until_cap_changes,
    steps_until_door_opens,
)
from fastsim.engines.vllm.scalars import ScanEnd
from fastsim.engines.vllm.state import NONE
from fastsim.engines.vllm.waiting import queue_front

DAYS = 64
"""Length of the calendar: whoever has nothing to do for so long is looked at again."""


@inlined
def may_stretch(s):
    """Whether the coming steps only decode, and scan the queue as vainly as the one just done."""
    if (
        not s.cfg["fast_forward"]
        or s.cfg["record"]
        or s.st["running"] == 0
        or s.st["preempted"] + s.st["admitted"] + s.st["finished"] + s.st["prefill_tokens"] > 0
        or s.st["decode_tokens"] != s.st["running"] * (1 + s.cfg["k"])
        or s.st["cap"] != s.st["scan_cap"]
        or s.cfg["hashed_drafts"]
        or s.cfg["prefill_schedule_interval"] > 1
        or s.cfg["window_tokens"] > 0
        or (s.cfg["k"] > 0 and s.cfg["b3_us_per_context_token"] != 0.0)
    ):
        return False
    scan_end = s.st["scan_end"]
    if scan_end == ScanEnd.EMPTY:
        return True
    if s.cfg["slot_preempt"] and s.st["waiting"] > 0:
        return False
    if scan_end in (ScanEnd.CAP, ScanEnd.BUDGET):
        return True
    return not s.cfg["bypass"] and scan_end in (ScanEnd.BLOCKS, ScanEnd.CHUNKING)


@inlined
def _steps_at_most(s):
    """Coming steps that nothing outside the running set cuts short, time left out."""
    steps = s.cfg["max_steps"] - s.tot["steps"]
    if s.cfg["running_cap"] == RunningCap.FEEDBACK:
        steps = min(steps, steps_until_cap_changes(s))
    if s.st["held"] > 0:
        steps = min(steps, steps_until_door_opens(s))
    return steps


@helper
def stretch(s):
    """Do the coming steps up to the next that is more than decoding."""
    most = _steps_at_most(s)
    if most <= 1:
        return
    stop_us = min(s.cfg["horizon_us"], arrival_stop_us(s))
    if s.cfg["timeout_us"] != NO_LIMIT:
        stop_us = min(stop_us, next_deadline_us(s))
    if stop_us <= s.st["now_us"]:
        return
    _watch_hits(s, 1)
    done, last_call_us = _days(s, most, stop_us)
    _watch_hits(s, 0)
    if done == 0:
        return
    s.st["executed"] += done
    s.tot["steps"] += done
    s.st["progress_step"] = s.tot["steps"]
    s.tot["decode_tokens"] += s.st["running"] * (1 + s.cfg["k"]) * done
    s.st["preempted"] = 0
    # Those who came meanwhile could not be admitted, but they did wait
    let_arrivals_in(s, last_call_us)
    note_cap_bound(s)
    s.tot["waiting_peak"] = max(s.tot["waiting_peak"], s.st["waiting"])
    after_steps(s, done, 0)


@helper
def _watch_hits(s, watched):
    """Mark what the head of the queue finds in the cache, where it is for want of blocks that it waits."""
    s.st["watched_block_taken"] = 0
    i = queue_front(s)
    if s.st["scan_end"] != ScanEnd.BLOCKS or not s.cfg["enable_prefix_caching"] or i == NONE:
        return
    if watched:
        find_hits(s, i)
    for j in range(s.cfg["num_groups"]):
        offset = s.grp.offset[s.cfg["first_group"] + j]
        for q in range(s.tab.hit_from[j], s.tab.hit_length[j]):
            s.pool.watched[s.tab.hits[offset + q]] = watched


@helper
def _days(s, most, stop_us):
    """The steps themselves. Returns how many, and when the last schedule() call was."""
    running = s.st["running"]
    last_day = _open_calendar(s, most)
    free_at_scan = s.st["free"]
    if s.st["scan_end"] != ScanEnd.BLOCKS:
        free_at_scan = s.st["usable"]
    context = 0
    i = s.st["running_head"]
    while i != NONE:
        context += s.q.start_computed[i]
        i = s.req.run_next[i]
    by_tokens_us = tokens_us(s, 0, running * (1 + s.cfg["k"]))
    now_us = s.st["now_us"]
    last_call_us = now_us
    block_us = 0
    day = 0
    while day < last_day and now_us < stop_us:
        size = _due(s, day)
        if size > 0 and not _allocate_due(s, size):
            break
        if s.st["free"] > free_at_scan or s.st["watched_block_taken"]:
            break
        duration = decode_step_us(s, by_tokens_us, context, running)
        held = s.st["usable"] - s.st["free"]
        block_us += held * duration
        s.tot["kv_peak_blocks"] = max(s.tot["kv_peak_blocks"], held)
        record_gaps(s.tot, s.gaps, duration, running)
        last_call_us = now_us
        now_us += duration
        context += running
        s.q.day_head[day % DAYS] = NONE
        for place in range(size):
            last_day = min(last_day, _go_on(s, s.q.due[place], day))
        day += 1
    s.tot["kv_block_us"] += block_us
    elapsed_us = now_us - s.st["now_us"]
    s.tot["running_us"] += running * elapsed_us
    s.tot["busy_us"] += elapsed_us
    s.st["now_us"] = now_us
    _close_calendar(s, day, now_us)
    return day, last_call_us


@helper
def _open_calendar(s, most):
    """Everybody's first day. Returns the first on which somebody does more than decode, at most `most`."""
    for day in range(DAYS):
        s.q.day_head[day] = NONE
    last_day = most
    i = s.st["running_head"]
    while i != NONE:
        s.q.start_computed[i] = s.req.num_computed_tokens[i]
        s.q.base_day[i] = 0
        s.q.base_computed[i] = s.req.num_computed_tokens[i]
        last_day = min(last_day, _note_next_day(s, i, 0))
        i = s.req.run_next[i]
    return last_day


@helper
def _note_next_day(s, i, day):
    """Enter request `i`, which has come to `day`, where its tables change next.

    Returns the day on which it finishes or nears `max_model_len` if that comes first, else one that is far.
    """
    s.q.base_day[i] = day
    computed = s.req.num_computed_tokens[i]
    s.q.base_computed[i] = computed
    final = s.req.final_tokens[i]
    ends = NO_LIMIT
    k = s.cfg["k"]
    if k == 0:
        days = max(min(s.req.quiet_start[i], s.req.quiet_end[i]) - computed, 0)
        left = final - computed - 2  # T = C + 1, and the step that samples the last token is not ours
        if left <= days:
            ends = day + left
            days = left
        days = min(days, DAYS - 1)
        computed += days
    else:
        days = 0
        while days < DAYS - 1:
            if computed >= s.req.quiet_start[i] or computed + 1 + k > s.req.quiet_end[i]:
                break
            after = computed + 1 + accepted_drafts(s, i, computed + 1, k)
            if after + 1 >= final or computed + k + 2 > s.cfg["max_model_len"]:
                ends = day + days
                break
            if (
                s.cfg["enable_prefix_caching"]
                and after + 1 - s.cfg["hash_lookahead"] >= s.req.hash_at[i]
                and (after >= s.req.hash_at[i])
            ):
                break
            computed = after
            days += 1
        if ends == NO_LIMIT:
            after = computed + 1 + accepted_drafts(s, i, computed + 1, k)
            if after + 1 >= final or computed + k + 2 > s.cfg["max_model_len"]:
                ends = day + days
    s.req.num_computed_tokens[i] = computed
    s.q.next_day[i] = day + days
    place = (day + days) % DAYS
    s.q.day_next[i] = s.q.day_head[place]
    s.q.day_head[place] = i
    return ends


@helper
def _due(s, day):
    """Those whose day it is, in running order, into `due`. Returns how many."""
    size = 0
    i = s.q.day_head[day % DAYS]
    while i != NONE:
        place = size
        while place > 0 and s.req.admission_number[s.q.due[place - 1]] > s.req.admission_number[i]:
            s.q.due[place] = s.q.due[place - 1]
            place -= 1
        s.q.due[place] = i
        size += 1
        i = s.q.day_next[i]
    return size


@inlined
def _allocate_due(s, size):
    """Let everybody due give back and take blocks. False: there are not enough."""
    for place in range(size):
        i = s.q.due[place]
        start = s.req.num_computed_tokens[i]
        end = start + 1 + s.cfg["k"]
        if start >= s.req.quiet_start[i] or end > s.req.quiet_end[i]:
            # What the prefix cache hashes goes by the length, which is that of this day
            s.req.num_tokens[i] = start + 1
            if not allocate_running(s, i, start, end):
                return False
    return True


@inlined
def _go_on(s, i, day):
    """The output of `day` for request `i`, who was due; returns what `_note_next_day` does."""
    computed = s.req.num_computed_tokens[i] + 1
    if s.cfg["k"] > 0:
        computed += accepted_drafts(s, i, computed, s.cfg["k"])
    s.req.num_computed_tokens[i] = computed
    s.req.num_tokens[i] = computed + 1
    if s.cfg["enable_prefix_caching"] and min(computed, computed + 1 - s.cfg["hash_lookahead"]) >= s.req.hash_at[i]:
        hash_blocks(s, i, computed)
        note_quiet(s, i)
    return _note_next_day(s, i, day + 1)


@helper
def _close_calendar(s, day, now_us):
    """Write everybody's counters as they are at the start of `day`."""
    k = s.cfg["k"]
    i = s.st["running_head"]
    while i != NONE:
        if s.q.next_day[i] > day:
            computed = s.q.base_computed[i] + day - s.q.base_day[i]
            if k > 0:
                computed = s.q.base_computed[i]
                for _ in range(day - s.q.base_day[i]):
                    computed += 1 + accepted_drafts(s, i, computed + 1, k)
            s.req.num_computed_tokens[i] = computed
        computed = s.req.num_computed_tokens[i]
        s.req.num_tokens[i] = computed + 1
        if day > 0:
            s.req.max_num_tokens[i] = max(s.req.max_num_tokens[i], computed + 1)
            s.req.max_computed_tokens[i] = max(s.req.max_computed_tokens[i], computed)
            s.log.last_token_us[i] = now_us
            s.log.scheduled_tokens[i] += day * (1 + k)
            accepted = computed - s.q.start_computed[i] - day
            s.req.verified_drafts[i] += day * k
            s.req.accepted_drafts[i] += accepted
            s.tot["drafts"] += day * k
            s.tot["accepted"] += accepted
        i = s.req.run_next[i]
