"""Jumping over turns in which everybody decodes and nothing else can happen; what is left is the same to the bit.

After a turn in which everybody decoded and nobody came, ended, left or was retracted, the next turns are alike as long
as admission stays shut, nobody reaches the last token, and the pool, evictions included, has the pages. Free pages,
evictions and `new_token_ratio` alone change from turn to turn; they are stepped, with no look at any request.
"""

from fastsim._jit import helper
from fastsim.engines.outputs import record_gaps
from fastsim.engines.sglang.codes import NO_LIMIT, NONE
from fastsim.engines.sglang.memory import available
from fastsim.engines.sglang.tree import evict_until
from fastsim.engines.sglang.update import count_held
from fastsim.engines.sglang.waiting import num_waiting


@helper
def fast_forward(cfg, st, s, tot):
    """Jump, if the turns just done allow it. Whether it did."""
    overlaps = cfg["disable_overlap_schedule"] == 0
    if st["plain_turns"] < (2 if overlaps else 1) or st["chunked"] != NONE:
        return False
    slot = st["last"]
    step_us = s.batches.end_us[slot] - s.batches.start_us[slot]
    if step_us <= 0:
        return False
    count = turns_shut(cfg, st, s, overlaps, slot, step_us)
    if count <= 0:
        return False
    count = min(count, cfg["max_steps"] - st["num_batches"])
    count = min(count, turns_before(cfg["horizon_us"], st, s, overlaps, slot, step_us))
    for k in range(st["num_running"]):
        i = s.lists.running[k]
        count = min(count, s.req.target[i] - s.req.generated[i] - 1)
    if count <= 0:
        return False
    count = step_memory(cfg, st, s, tot, slot, count, step_us)
    if count <= 0:
        return False
    advance(cfg, st, s, tot, overlaps, slot, count, step_us)
    return True


@helper
def turns_before(time_us, st, s, overlaps, slot, step_us):
    """How many of the coming turns start before a time, which is later than now."""
    if time_us >= NO_LIMIT:
        return NO_LIMIT
    first_us = st["now_us"]
    turns = 0
    if overlaps:  # the first turn starts now, the second when the batch in flight has ended
        first_us = s.batches.end_us[slot]
        turns = 1
        if first_us >= time_us:
            return turns
    return turns + (time_us - first_us + step_us - 1) // step_us


@helper
def turns_shut(cfg, st, s, overlaps, slot, step_us):
    """For how many turns admission is sure to stay shut."""
    if st["full"] and cfg["preempts"] == 0:
        return NO_LIMIT
    if st["passes_since_prefill"] < cfg["prefill_decode_interval"]:
        return cfg["prefill_decode_interval"] - st["passes_since_prefill"]
    if num_waiting(st) > 0:
        return 0
    if st["next_arrival"] == st["num_requests"]:
        return NO_LIMIT
    arrival_us = s.wl.arrival_us[s.wl.order[st["next_arrival"]]]
    return turns_before(arrival_us, st, s, overlaps, slot, step_us)


@helper
def step_memory(cfg, st, s, tot, slot, count, step_us):
    """Pages, evictions and `new_token_ratio` of up to `count` turns; returns for how many there are pages."""
    size = cfg["page_size"]
    running = st["num_running"]
    lanes = s.lists.lanes
    lane = 0
    if size > 1:
        for k in range(size):
            lanes[k] = 0
        for k in range(running):
            lanes[(size - s.req.kv[s.lists.running[k]] % size) % size] += 1  # turns until it needs a page
    settled = False
    for turn in range(count):
        pages = running
        if size > 1:
            pages = lanes[lane]
            lane = lane + 1 if lane + 1 < size else 0
        if available(st) < pages * size:
            return turn
        if st["free"] < running * size:
            evict_until(st, s, running * size)
        st["free"] -= pages * size
        if not settled:
            ratio = max(st["ratio"] - cfg["decay"], cfg["min_ratio"])
            settled = ratio == st["ratio"]
            st["ratio"] = ratio
        count_held(cfg, st, s, tot, slot, step_us)
    return count


@helper
def advance(cfg, st, s, tot, overlaps, slot, count, step_us):
    """Everything else that `count` turns change."""
    running = st["num_running"]
    b = s.batches
    b.start_us[slot] += count * step_us
    b.end_us[slot] += count * step_us
    st["now_us"] = b.start_us[slot] if overlaps else b.end_us[slot]
    for k in range(running):
        i = s.lists.running[k]
        s.req.generated[i] += count
        s.req.kv[i] += count
        s.log.scheduled_tokens[i] += count
        s.log.last_token_us[i] = st["now_us"]
    record_gaps(tot, s.gaps, step_us, count * running)
    st["num_batches"] += count
    tot["steps"] += count
    tot["decode_tokens"] += count * running
    tot["busy_us"] += count * step_us
    if st["passes_since_prefill"] < cfg["prefill_decode_interval"]:
        st["passes_since_prefill"] = min(st["passes_since_prefill"] + count, cfg["prefill_decode_interval"])
