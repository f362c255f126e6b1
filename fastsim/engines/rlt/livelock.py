"""Livelock: empty steps that have come back to a state they left repeat forever.

An empty step runs no batch, so no request makes progress; what it can change is who waits, who is active, the order of
the queues, the bypass counts and the prefix cache. If, in an unbroken row of empty steps without a fresh admission, all
of these are as they were some steps ago, then the steps since are a cycle: a proof, not a suspicion.

A state is compared with that of the step before and with an anchor, which moves up after 1, 2, 4, ... steps (Brent's
cycle detection), so cycles of any length are found: most have one step, some two (two victims take turns).

So every run ends: a swap loses nothing, hence non-empty steps are bounded by the work, and a request is fresh once.
"""

from fastsim._jit import helper
from fastsim.engines.rlt.codes import LIVELOCK_STEP, LIVELOCK_STOP, NONE, NUM_STAGES
from fastsim.engines.rlt.queues import num_waiting
from fastsim.engines.rlt.records import NO_LIMIT

AS_BEFORE = 1
AS_ANCHOR = 2


@helper
def see(st, lists, value):
    """Write `value` to the next place of `seen`: AS_BEFORE if it was there already, AS_ANCHOR if the anchor has it."""
    at = st["seen_length"]
    st["seen_length"] = at + 1
    same = 0
    if lists.seen[at] == value:
        same |= AS_BEFORE
    if lists.anchor[at] == value:
        same |= AS_ANCHOR
    lists.seen[at] = value
    return same


@helper
def see_state(st, s):
    """Write down the state after an empty step: AS_BEFORE and AS_ANCHOR for all of it."""
    lists = s.lists
    st["seen_length"] = 0
    same = see(st, lists, st["live_pages"])
    same &= see(st, lists, st["idle_cached_pages"])
    same &= see(st, lists, st["cached_pages"])
    same &= see(st, lists, st["phase"])
    same &= see(st, lists, num_waiting(st))
    for place in range(st["wait_head"], st["wait_tail"]):
        i = lists.waiting[place]
        same &= see(st, lists, i)
        same &= see(st, lists, s.req.bypasses[i])
    for stage in range(NUM_STAGES):
        same &= see(st, lists, s.stages.size[stage])
        x = s.stages.head[stage]
        while x != NONE:
            same &= see(st, lists, x)
            x = s.stages.next[x]
    return same


@helper
def drop_anchor(st, s, totals, extra, distance):
    """Remember the state just seen, and the totals, for the next `distance` steps."""
    for k in range(st["seen_length"]):
        s.lists.anchor[k] = s.lists.seen[k]
    for i in range(st["next_arrival"]):
        s.lists.anchor_preemptions[i] = s.log.num_preemptions[i]
    st["anchor_distance"] = distance
    st["anchor_us"] = st["now_us"]
    st["anchor_steps"] = totals["steps"]
    st["anchor_preemptions"] = totals["preemptions"]
    st["anchor_swapped_out"] = totals["swapped_out_blocks"]
    st["anchor_swapped_in"] = totals["swapped_in_blocks"]
    st["anchor_ineffective"] = totals["ineffective_preemptions"]
    st["anchor_kv"] = totals["kv_block_us"]
    st["anchor_running"] = totals["running_us"]
    st["anchor_resumptions"] = extra["resumptions"]
    st["anchor_slot"] = extra["slot_preemptions"]
    st["anchor_grow"] = extra["grow_preemptions"]
    st["anchor_failed"] = extra["failed_growths"]
    st["anchor_blocked"] = extra["blocked"]
    st["anchor_deferred"] = extra["deferred"]


@helper
def repeat_since_anchor(st, s, totals, extra, times):
    """Count what happened since the anchor, a cycle, `times` times more. Its steps were all empty."""
    skipped_us = times * (st["now_us"] - st["anchor_us"])
    steps = times * (totals["steps"] - st["anchor_steps"])
    totals["steps"] += steps
    totals["empty_steps"] += steps
    extra["skipped_steps"] += steps
    if totals["preemptions"] > st["anchor_preemptions"]:
        totals["preemptions"] += times * (totals["preemptions"] - st["anchor_preemptions"])
    totals["swapped_out_blocks"] += times * (totals["swapped_out_blocks"] - st["anchor_swapped_out"])
    totals["swapped_in_blocks"] += times * (totals["swapped_in_blocks"] - st["anchor_swapped_in"])
    totals["ineffective_preemptions"] += times * (totals["ineffective_preemptions"] - st["anchor_ineffective"])
    totals["kv_block_us"] += times * (totals["kv_block_us"] - st["anchor_kv"])
    totals["running_us"] += times * (totals["running_us"] - st["anchor_running"])
    extra["resumptions"] += times * (extra["resumptions"] - st["anchor_resumptions"])
    extra["slot_preemptions"] += times * (extra["slot_preemptions"] - st["anchor_slot"])
    extra["grow_preemptions"] += times * (extra["grow_preemptions"] - st["anchor_grow"])
    extra["failed_growths"] += times * (extra["failed_growths"] - st["anchor_failed"])
    extra["blocked"] += times * (extra["blocked"] - st["anchor_blocked"])
    extra["deferred"] += times * (extra["deferred"] - st["anchor_deferred"])
    for i in range(st["next_arrival"]):
        s.log.num_preemptions[i] += times * (s.log.num_preemptions[i] - s.lists.anchor_preemptions[i])
    for place in range(st["wait_head"], st["wait_tail"]):
        i = s.lists.waiting[place]
        if s.req.waiting_since_us[i] >= st["anchor_us"]:
            s.req.waiting_since_us[i] += skipped_us
    st["now_us"] += skipped_us


@helper
def skip_cycles(cfg, st, s, totals, extra):
    """Count whole cycles up to the next arrival, the horizon or the last step, but run the last one of them.

    What a cycle leaves behind (waits that span its end) is then exact, and the run goes on as if it had stepped.
    """
    until = cfg["horizon_us"]
    if st["next_arrival"] < st["num_requests"]:
        until = min(until, s.wl.arrival_us[st["next_arrival"]])
    times = (until - st["now_us"]) // (st["now_us"] - st["anchor_us"])
    times = min(times, (cfg["max_steps"] - totals["steps"]) // (totals["steps"] - st["anchor_steps"])) - 1
    if times > 0:
        repeat_since_anchor(st, s, totals, extra, times)
        st["seen_step"] = totals["steps"]


@helper
def watch_livelock(cfg, st, s, totals, extra):
    """Look for a cycle after an empty step. True when the run ends here.

    Marks a livelock at the first repeated state with no arrival to come, and skips cycles unless told to step.
    """
    starts = st["seen_step"] != totals["steps"] - 1 or st["admissions"] > 0
    st["seen_step"] = totals["steps"]
    same = see_state(st, s)
    if starts:
        drop_anchor(st, s, totals, extra, 1)
        return False
    distance = totals["steps"] - st["anchor_steps"]
    if same == 0:
        if distance == st["anchor_distance"]:
            drop_anchor(st, s, totals, extra, 2 * distance)
        return False
    arrivals = st["next_arrival"] < st["num_requests"]
    if not arrivals and totals["livelock_step"] < 0:
        totals["livelock_step"] = totals["steps"] - 1
        totals["livelock_us"] = st["now_us"]
        totals["livelock_kind"] = 1
        extra["livelock_period"] = 1 if same & AS_BEFORE else distance
    endless = cfg["horizon_us"] == NO_LIMIT and cfg["max_steps"] == NO_LIMIT
    if not arrivals and (endless or cfg["on_livelock"] == LIVELOCK_STOP):
        return True
    if cfg["on_livelock"] == LIVELOCK_STEP:
        return False
    if same & AS_ANCHOR:
        skip_cycles(cfg, st, s, totals, extra)
    drop_anchor(st, s, totals, extra, 1)
    return False
