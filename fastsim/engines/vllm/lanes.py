"""The running list, and the lanes and decode clock that stand for its members (see `state`)."""

from fastsim._jit import helper, inlined
from fastsim.engines.vllm.free_list import blocks_for, full_blocks, lane_of
from fastsim.engines.vllm.latency import enter_window, fill_windows, leave_window
from fastsim.engines.vllm.state import NONE

NO_END = 2**62
"""`clock_next_end` of an empty clock."""


@inlined
def running_append(s, i):
    """Append `i` to the running list: the last place, the highest admission number. A life begins, with C tokens."""
    s.req.life_start_tokens[i] = s.req.num_computed_tokens[i]
    tail = s.st["running_tail"]
    s.req.run_prev[i] = tail
    s.req.run_next[i] = NONE
    if tail == NONE:
        s.st["running_head"] = i
    else:
        s.req.run_next[tail] = i
    s.st["running_tail"] = i
    s.req.admission_number[i] = s.st["admissions"]
    s.st["admissions"] += 1
    s.st["running"] += 1


@inlined
def running_remove(s, i):
    """Take `i`, which is not on the clock, out of the running list, wherever it stands."""
    end_life(s, i)
    before = s.req.run_prev[i]
    after = s.req.run_next[i]
    if before == NONE:
        s.st["running_head"] = after
    else:
        s.req.run_next[before] = after
    if after == NONE:
        s.st["running_tail"] = before
    else:
        s.req.run_prev[after] = before
    s.st["running"] -= 1


@inlined
def end_life(s, i):
    """Count what `i` was scheduled since its admission, and remember how far it came."""
    start = s.req.life_start_tokens[i]
    computed = s.req.num_computed_tokens[i]
    highest = s.req.max_computed_tokens[i]
    if computed > start:
        s.log.scheduled_tokens[i] += computed - start
        s.tot["recomputed_tokens"] += min(computed, highest) - min(start, highest)
        s.req.max_computed_tokens[i] = max(highest, computed)
    s.req.max_num_tokens[i] = max(s.req.max_num_tokens[i], s.req.num_tokens[i])


@inlined
def lane_insert(s, lane, i):
    """Insert `i` into a lane by admission number. Nearly always the last place, so search from the end."""
    after = NONE
    before = s.q.lane_tail[lane]
    number = s.req.admission_number[i]
    while before != NONE and s.req.admission_number[before] > number:
        after = before
        before = s.req.lane_prev[before]
    s.req.lane_prev[i] = before
    s.req.lane_next[i] = after
    if before == NONE:
        s.q.lane_head[lane] = i
    else:
        s.req.lane_next[before] = i
    if after == NONE:
        s.q.lane_tail[lane] = i
    else:
        s.req.lane_prev[after] = i
    s.q.lane_size[lane] += 1
    s.req.lane[i] = lane


@inlined
def lane_remove(s, i):
    """Take `i` out of its lane."""
    lane = s.req.lane[i]
    before = s.req.lane_prev[i]
    after = s.req.lane_next[i]
    if before == NONE:
        s.q.lane_head[lane] = after
    else:
        s.req.lane_next[before] = after
    if after == NONE:
        s.q.lane_tail[lane] = before
    else:
        s.req.lane_prev[after] = before
    s.q.lane_size[lane] -= 1
    s.req.lane[i] = NONE


@inlined
def on_clock(s, i):
    """Whether the counters of `i` are those of the decode clock."""
    lane = s.req.lane[i]
    return lane != NONE and lane != s.cfg["block_size"]


@inlined
def advance_clock(s, steps):
    """Everybody on the clock decodes `steps` tokens."""
    s.st["clock"] += steps
    lane = s.st["due_lane"] + steps
    s.st["due_lane"] = lane if lane < s.cfg["block_size"] else lane_of(s, -lane)


@helper
def computed_tokens(s, i):
    """C of a request, at the start of this step, wherever it stands."""
    if on_clock(s, i):
        return s.req.num_computed_tokens[i] + s.st["clock"]
    return s.req.num_computed_tokens[i]


@inlined
def samples_in_flight(s, i):
    """Whether the flight will sample a token for explicit request `i` (vLLM's output placeholder; 0 or 1 at a call).

    It will when it has tokens of the request and, being the last batch to run it, did not leave it mid-prefill.
    """
    return s.cfg["asynchronous"] and s.req.flights[i] > 0 and not s.req.mid_prefill[i]


@inlined
def length(s, i):
    """Tokens of an explicit request once everything in flight has returned: L, which is T when nothing is."""
    return s.req.num_tokens[i] + 1 if samples_in_flight(s, i) else s.req.num_tokens[i]


@inlined
def delivered_on_clock(s, i):
    """T of a request on the clock: all it has computed and the one token that this sampled, unless in flight."""
    return s.req.num_computed_tokens[i] + s.st["clock"] + 1 - s.st["in_flight"]


@inlined
def enter_clock(s, i):
    """A request that has just sampled a token (C == T - 1) starts to decode lazily.

    The invariants from here on: it is scheduled one token in every step, it holds ceil(C / block_size) blocks, those
    filled by delivered tokens are hashed, and it has got a token at `clock_token_us`.
    """
    computed = s.req.num_computed_tokens[i]
    clock = s.st["clock"]
    offset = computed - clock
    fill_windows(s)
    enter_window(s, offset)
    lane_insert(s, lane_of(s, offset), i)
    s.req.num_computed_tokens[i] = offset
    s.st["clock_context"] += offset
    slot = s.st["clocked"]
    end = s.req.end_clock[i]
    s.q.clock_request[slot] = i
    s.q.clock_end[slot] = end
    s.req.clock_slot[i] = slot
    s.st["clocked"] = slot + 1
    s.st["clock_next_end"] = min(s.st["clock_next_end"], end)


@helper
def leave_clock(s, i, ahead):
    """Write the counters of `i` out and take it off the clock; it then stands in no lane.

    `ahead` is 1 when this step has already given it its block and hashed what that fills, else 0. Its own step is not
    counted: C is that at the start of this step.
    """
    lane_remove(s, i)
    offset = s.req.num_computed_tokens[i]
    fill_windows(s)
    leave_window(s, offset)
    computed = offset + s.st["clock"]
    delivered = delivered_on_clock(s, i)
    s.req.num_computed_tokens[i] = computed
    s.req.num_tokens[i] = delivered
    s.req.num_blocks[i] = blocks_for(s, computed + ahead)
    if s.cfg["enable_prefix_caching"]:
        cached = full_blocks(s, computed + ahead - s.st["in_flight"])
        s.req.num_cached_blocks[i] = max(cached, s.req.num_cached_blocks[i])
    if s.req.flights[i] == 0:
        s.log.last_token_us[i] = s.st["clock_token_us"]
        s.req.token_tick[i] = s.st["tick"]
        if s.st["in_flight"] > 0:
            write_out_flight(s, i)
    if delivered > s.req.max_num_tokens[i]:
        s.st["progress_step"] = s.st["clock_step"]
    s.st["clock_context"] -= offset
    last = s.st["clocked"] - 1
    slot = s.req.clock_slot[i]
    moved = s.q.clock_request[last]
    s.q.clock_request[slot] = moved
    s.q.clock_end[slot] = s.q.clock_end[last]
    s.req.clock_slot[moved] = slot
    s.st["clocked"] = last
    if s.req.end_clock[i] == s.st["clock_next_end"]:
        s.st["clock_next_end"] = _next_end(s, last)


@helper
def write_out_flight(s, i):
    """Request `i` leaves the clock: its decode in the batch in flight becomes an entry of that batch's list."""
    entry = s.st["flight_base"] + s.st["flight_size"]
    s.q.flight_request[entry] = i
    s.q.flight_samples[entry] = 1
    s.st["flight_size"] += 1
    s.st["flight_clocked"] -= 1
    s.req.flights[i] = 1


@helper
def take_ended_off_clock(s):
    """Asynchronous: those whose last token is in flight are scheduled no more, but still hold slot and blocks."""
    slot = 0
    while slot < s.st["clocked"]:
        if s.q.clock_end[slot] < s.st["clock"]:
            i = s.q.clock_request[slot]
            leave_clock(s, i, 0)
            lane_insert(s, s.cfg["block_size"], i)
        else:
            slot += 1


@inlined
def _next_end(s, clocked):
    end = NO_END
    for slot in range(clocked):
        end = min(end, s.q.clock_end[slot])
    return end


@helper
def materialise(s, behind):
    """Write out the counters of all who were admitted after number `behind`: they will not decode one token each.

    They have got nothing in this step yet.
    """
    explicit = s.cfg["block_size"]
    i = s.st["running_head"]
    while i != NONE and s.req.admission_number[i] <= behind:
        i = s.req.run_next[i]
    while i != NONE:
        if s.req.lane[i] != explicit:
            leave_clock(s, i, 0)
            lane_insert(s, explicit, i)
        i = s.req.run_next[i]
