"""The running list, and the lanes and decode clock that stand for its members (see `state`)."""

from fastsim._jit import helper, inlined
from fastsim.engines.vllm.state import NONE

NO_END = 2**31 - 1
"""`clock_next_end` of an empty clock."""


@inlined
def running_append(st, req, i):
    """Append `i` to the running list: the last place, the highest admission number. A life begins, with C tokens."""
    req.life_start_tokens[i] = req.num_computed_tokens[i]
    tail = st["running_tail"]
    req.run_prev[i] = tail
    req.run_next[i] = NONE
    if tail == NONE:
        st["running_head"] = i
    else:
        req.run_next[tail] = i
    st["running_tail"] = i
    req.admission_number[i] = st["admissions"]
    st["admissions"] += 1
    st["running"] += 1


@inlined
def running_remove(st, tot, req, log, i):
    """Take `i`, which is not on the clock, out of the running list, wherever it stands."""
    end_life(tot, req, log, i)
    before = req.run_prev[i]
    after = req.run_next[i]
    if before == NONE:
        st["running_head"] = after
    else:
        req.run_next[before] = after
    if after == NONE:
        st["running_tail"] = before
    else:
        req.run_prev[after] = before
    st["running"] -= 1


@inlined
def end_life(tot, req, log, i):
    """Count what `i` was scheduled since its admission, and remember how far it came."""
    start = req.life_start_tokens[i]
    computed = req.num_computed_tokens[i]
    highest = req.max_computed_tokens[i]
    if computed > start:
        log.scheduled_tokens[i] += computed - start
        tot["recomputed_tokens"] += min(computed, highest) - min(start, highest)
        req.max_computed_tokens[i] = max(highest, computed)
    req.max_num_tokens[i] = max(req.max_num_tokens[i], req.num_tokens[i])


@inlined
def lane_insert(req, q, lane, i):
    """Insert `i` into a lane by admission number. Nearly always the last place, so search from the end."""
    after = NONE
    before = q.lane_tail[lane]
    number = req.admission_number[i]
    while before != NONE and req.admission_number[before] > number:
        after = before
        before = req.lane_prev[before]
    req.lane_prev[i] = before
    req.lane_next[i] = after
    if before == NONE:
        q.lane_head[lane] = i
    else:
        req.lane_next[before] = i
    if after == NONE:
        q.lane_tail[lane] = i
    else:
        req.lane_prev[after] = i
    q.lane_size[lane] += 1
    req.lane[i] = lane


@inlined
def lane_remove(req, q, i):
    """Take `i` out of its lane."""
    lane = req.lane[i]
    before = req.lane_prev[i]
    after = req.lane_next[i]
    if before == NONE:
        q.lane_head[lane] = after
    else:
        req.lane_next[before] = after
    if after == NONE:
        q.lane_tail[lane] = before
    else:
        req.lane_prev[after] = before
    q.lane_size[lane] -= 1
    req.lane[i] = NONE


@inlined
def on_clock(cfg, req, i):
    """Whether the counters of `i` are those of the decode clock."""
    lane = req.lane[i]
    return lane != NONE and lane != cfg["block_size"]


@inlined
def advance_clock(cfg, st, steps):
    """Everybody on the clock decodes `steps` tokens."""
    st["clock"] += steps
    lane = st["due_lane"] + steps
    st["due_lane"] = lane if lane < cfg["block_size"] else lane % cfg["block_size"]


@helper
def computed_tokens(cfg, st, req, i):
    """C of a request, at the start of this step, wherever it stands."""
    if on_clock(cfg, req, i):
        return req.num_computed_tokens[i] + st["clock"]
    return req.num_computed_tokens[i]


@inlined
def samples_in_flight(cfg, req, i):
    """Whether the flight will sample a token for explicit request `i` (vLLM's output placeholder; 0 or 1 at a call).

    It will when it has tokens of the request and, being the last batch to run it, did not leave it mid-prefill.
    """
    return cfg["asynchronous"] and req.flights[i] > 0 and not req.mid_prefill[i]


@inlined
def length(cfg, req, i):
    """Tokens of an explicit request once everything in flight has returned: L, which is T when nothing is."""
    return req.num_tokens[i] + 1 if samples_in_flight(cfg, req, i) else req.num_tokens[i]


@inlined
def delivered_on_clock(st, req, i):
    """T of a request on the clock: all it has computed and the one token that this sampled, unless in flight."""
    return req.num_computed_tokens[i] + st["clock"] + 1 - st["in_flight"]


@inlined
def enter_clock(cfg, st, req, q, i):
    """A request that has just sampled a token (C == T - 1) starts to decode lazily.

    The invariants from here on: it is scheduled one token in every step, it holds ceil(C / block_size) blocks, those
    filled by delivered tokens are hashed, and it has got a token at `clock_token_us`.
    """
    computed = req.num_computed_tokens[i]
    clock = st["clock"]
    offset = computed - clock
    lane_insert(req, q, (-offset) % cfg["block_size"], i)
    req.num_computed_tokens[i] = offset
    st["clock_context"] += offset
    slot = st["clocked"]
    end = req.end_clock[i]
    q.clock_request[slot] = i
    q.clock_end[slot] = end
    req.clock_slot[i] = slot
    st["clocked"] = slot + 1
    st["clock_next_end"] = min(st["clock_next_end"], end)


@helper
def leave_clock(cfg, st, req, q, log, i, ahead):
    """Write the counters of `i` out and take it off the clock; it then stands in no lane.

    `ahead` is 1 when this step has already given it its block and hashed what that fills, else 0. Its own step is not
    counted: C is that at the start of this step.
    """
    lane_remove(req, q, i)
    offset = req.num_computed_tokens[i]
    computed = offset + st["clock"]
    block_size = cfg["block_size"]
    delivered = delivered_on_clock(st, req, i)
    req.num_computed_tokens[i] = computed
    req.num_tokens[i] = delivered
    req.num_blocks[i] = (computed + ahead + block_size - 1) // block_size
    if cfg["enable_prefix_caching"]:
        cached = (computed + ahead - st["in_flight"]) // block_size
        req.num_cached_blocks[i] = max(cached, req.num_cached_blocks[i])
    if req.flights[i] == 0:
        log.last_token_us[i] = st["clock_token_us"]
        req.token_tick[i] = st["tick"]
        if st["in_flight"] > 0:
            write_out_flight(st, req, q, i)
    if delivered > req.max_num_tokens[i]:
        st["progress_step"] = st["clock_step"]
    st["clock_context"] -= offset
    last = st["clocked"] - 1
    slot = req.clock_slot[i]
    moved = q.clock_request[last]
    q.clock_request[slot] = moved
    q.clock_end[slot] = q.clock_end[last]
    req.clock_slot[moved] = slot
    st["clocked"] = last
    if req.end_clock[i] == st["clock_next_end"]:
        st["clock_next_end"] = _next_end(q, last)


@helper
def write_out_flight(st, req, q, i):
    """Request `i` leaves the clock: its decode in the batch in flight becomes an entry of that batch's list."""
    entry = st["flight_base"] + st["flight_size"]
    q.flight_request[entry] = i
    q.flight_samples[entry] = 1
    st["flight_size"] += 1
    st["flight_clocked"] -= 1
    req.flights[i] = 1


@helper
def take_ended_off_clock(cfg, st, req, q, log):
    """Asynchronous: those whose last token is in flight are scheduled no more, but still hold slot and blocks."""
    slot = 0
    while slot < st["clocked"]:
        if q.clock_end[slot] < st["clock"]:
            i = q.clock_request[slot]
            leave_clock(cfg, st, req, q, log, i, 0)
            lane_insert(req, q, cfg["block_size"], i)
        else:
            slot += 1


@inlined
def _next_end(q, clocked):
    end = NO_END
    for slot in range(clocked):
        end = min(end, q.clock_end[slot])
    return end


@helper
def materialise(cfg, st, req, q, log, behind):
    """Write out the counters of all who were admitted after number `behind`: they will not decode one token each.

    They have got nothing in this step yet.
    """
    explicit = cfg["block_size"]
    i = st["running_head"]
    while i != NONE and req.admission_number[i] <= behind:
        i = req.run_next[i]
    while i != NONE:
        if req.lane[i] != explicit:
            leave_clock(cfg, st, req, q, log, i, 0)
            lane_insert(req, q, explicit, i)
        i = req.run_next[i]
