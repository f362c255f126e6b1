"""Jumping over steps that change nothing but lengths.

After a step that tried to admit but neither admitted, finished, evicted nor passed over anybody, and in which everybody
decoded, the next steps are all alike until one of the events in `steps_until_change`. Only counts of blocks are taken
in such a stretch, so they can be taken at once.

Admission that failed for the head's blocks keeps failing: free blocks only become fewer, and a lost prefix hit makes
the head need as many more. That holds while a look-up can lose hits only from the end, as for prompts of their own. The
blocks of a shared prefix can be lost in any order (quirk C), and a shorter hit can, under a chunk limit, need fewer
blocks; with such a head a stretch therefore ends where a block with a label would be recycled.
"""

from fastsim._jit import helper
from fastsim.engines.blis.blocks import take_plain
from fastsim.engines.blis.codes import BLOCKED_BLOCKS, BLOCKED_CAP, NO_LIMIT, NONE, NOT_BLOCKED, SCHEDULER_FCFS
from fastsim.engines.blis.gaps import log_steps
from fastsim.engines.blis.schedule import everybody_decodes
from fastsim.engines.blis.update import advance_clock, count_steps
from fastsim.engines.heap import heap_first, heap_first_key


@helper
def fast_forward(cfg, st, s, tot):
    """Jump, if the step just done allows it; moves the pending step."""
    changed = st["admitted"] > 0 or st["finished"] > 0 or st["prefill_tokens"] > 0
    if changed or st["blocked"] == NOT_BLOCKED or not everybody_decodes(cfg, st):
        return
    if st["running"] == 0 and s.waiting.size[0] == 0:
        return
    blocks_at_hand = st["free"]
    if st["blocked"] == BLOCKED_BLOCKS and s.wl.prefix_group[heap_first(s.waiting)] != NONE:
        blocks_at_hand = plain_head(st, s.blocks)
    st["count"] = steps_until_change(cfg, st, s, tot)
    growth = grow(cfg, st, s, blocks_at_hand)
    count = st["count"]
    if count <= 0:
        return
    take_plain(st, s.blocks, growth)
    st["misses"] += growth
    count_steps(cfg, st, tot, st["step_us"])
    if st["running"] > 0:
        log_steps(st, s.gaps)
    last_end_us = st["last_end_us"] + count * st["step_time_us"]
    advance_clock(cfg, st, last_end_us)
    st["now_us"] = st["step_us"] + (count - 1) * st["step_time_us"]
    st["end_us"] = max(st["end_us"], st["now_us"])
    st["step_us"] = last_end_us


@helper
def steps_until_change(cfg, st, s, tot):
    """How many of the coming steps are sure to be like the last one, blocks apart. The first starts at `step_us`."""
    start_us = st["step_us"]
    step_us = st["step_time_us"]
    count = cfg["max_steps"] - tot["steps"]
    count = min(count, (cfg["horizon_us"] - start_us) // step_us + 1)
    count = min(count, st["next_end"] - st["clock"] - 1)  # the step that completes somebody is done in full
    deadline_us = heap_first_key(s.deadlines)
    if deadline_us != NO_LIMIT:
        count = min(count, (deadline_us - start_us) // step_us + 1)  # a step at the deadline comes before it
    behind_the_head = st["blocked"] == BLOCKED_BLOCKS and cfg["scheduler"] == SCHEDULER_FCFS
    ignores_arrivals = st["running"] > 0 and (st["blocked"] == BLOCKED_CAP or behind_the_head)
    if not ignores_arrivals:
        arrival_us = heap_first_key(s.queueing)
        if st["arrival_cursor"] < s.wl.order.shape[0]:
            arrival_us = min(arrival_us, s.wl.arrival_us[s.wl.order[st["arrival_cursor"]]])
        if arrival_us != NO_LIMIT:
            count = min(count, (arrival_us - start_us + step_us - 1) // step_us)  # a step at the arrival comes after it
    return count


@helper
def grow(cfg, st, s, blocks_at_hand):
    """Blocks that the next `count` steps take; cuts `count` where the blocks at hand run out. Sets `block_steps`."""
    block_size = cfg["block_size"]
    running = st["running"]
    used = cfg["total_kv_blocks"] - st["free"]
    if running == 0 or st["count"] <= 0:
        st["block_steps"] = st["count"] * used
        return 0
    growth = 0
    block_steps = 0
    steps = 0
    if st["count"] >= block_size and blocks_at_hand >= running:  # in block_size steps everybody takes one block
        rounds = min(st["count"] // block_size, blocks_at_hand // running)
        taken = 0
        for ahead in range(block_size):
            taken += s.lists.lane_size[_lane_ahead(st, block_size, ahead)]
            block_steps += taken
        block_steps = rounds * block_steps + block_size * running * (rounds * (rounds - 1) // 2)
        growth = rounds * running
        steps = rounds * block_size
    for ahead in range(min(st["count"] - steps, block_size)):
        needed = s.lists.lane_size[_lane_ahead(st, block_size, ahead)]
        if growth + needed > blocks_at_hand:
            break
        growth += needed
        block_steps += growth
        steps += 1
    st["count"] = steps
    st["block_steps"] = block_steps + steps * used
    return growth


@helper
def _lane_ahead(st, block_size, ahead):
    lane = st["phase"] + ahead
    return lane - block_size if lane >= block_size else lane


@helper
def plain_head(st, b):
    """Blocks at the head of the free list before the first one with a label."""
    count = 0
    for at in range(st["ring_head"], st["ring_tail"]):
        item = b.ring[at]
        if item > 0:
            break
        count -= item
    return count
