"""Jumping over steps in which everybody that fits decodes and nothing else can happen; what is left is the same.

After such a step the next ones are alike until somebody is done, somebody arrives who could enter, or blocks run out:
what is free falls by as much as what is reserved or used rises, so that who did not fit does not fit.
"""

from fastsim._jit import helper
from fastsim.engines.outputs import record_gaps
from fastsim.engines.trtllm.arrivals import next_arrival_us
from fastsim.engines.trtllm.capacity import blocks_of
from fastsim.engines.trtllm.codes import NO_LIMIT
from fastsim.engines.trtllm.step import count_held


@helper
def steps_before(time_us, st):
    """How many of the coming steps start before a time."""
    if time_us >= NO_LIMIT:
        return NO_LIMIT
    return (time_us - st["now_us"] + st["step_us"] - 1) // st["step_us"]


@helper
def fast_forward(cfg, st, s, tot):
    """Jump, if the step just done allows it. Whether it did."""
    if st["plain"] == 0 or st["step_us"] <= 0:
        return False
    count = min(cfg["max_steps"] - tot["steps"], steps_before(cfg["horizon_us"], st))
    if st["blocked"] == 0:
        count = min(count, steps_before(next_arrival_us(st, s), st))
    running = st["num_decodes"]
    for k in range(running):
        i = s.lists.decodes[k]
        count = min(count, s.req.target[i] - s.req.generated[i] - 1)
    if count <= 0:
        return False
    count = step_blocks(cfg, st, s, tot, count)
    if count <= 0:
        return False
    advance(cfg, st, s, tot, count)
    return True


@helper
def step_blocks(cfg, st, s, tot, count):
    """Blocks of up to `count` steps; for how many there are enough."""
    size = cfg["tokens_per_block"]
    lanes = s.lists.lanes
    for k in range(size):
        lanes[k] = 0
    for k in range(st["num_decodes"]):
        lanes[(size - s.req.in_kv[s.lists.decodes[k]] % size) % size] += 1
    lane = 0
    for step in range(count):
        if lanes[lane] > st["free"]:
            return step
        st["free"] -= lanes[lane]
        lane = lane + 1 if lane + 1 < size else 0
        count_held(cfg, st, tot, st["step_us"])
    return count


@helper
def advance(cfg, st, s, tot, count):
    """Everything else that `count` steps change."""
    req = s.req
    running = st["num_decodes"]
    st["now_us"] += count * st["step_us"]
    again = 0
    for k in range(running):
        i = s.lists.decodes[k]
        again += max(min(req.most_computed[i], req.in_kv[i] + count) - req.in_kv[i], 0)
        req.in_kv[i] += count
        req.blocks[i] = blocks_of(cfg, req.in_kv[i])
        req.generated[i] += count
        req.most_computed[i] = max(req.most_computed[i], req.in_kv[i])
        s.log.scheduled_tokens[i] += count
        s.log.last_token_us[i] = st["now_us"]
    record_gaps(tot, s.gaps, st["step_us"], count * running)
    tot["recomputed_tokens"] += again
    tot["steps"] += count
    tot["decode_tokens"] += count * running
