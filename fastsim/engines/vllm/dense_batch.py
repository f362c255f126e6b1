"""The running requests of the dense loop: who decodes, in arrays in the order of admission.

Everybody on the decode clock has a place: `clock_request`, `clock_offset` (C - D) and `clock_end`. Besides them at most
one request is in the middle of its prefill, the last in running order. Of the lanes only the sizes are kept: whose the
blocks are that are due matters only when they are short and the victim is not the last in running order.
"""

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import Status, note_completion
from fastsim.engines.vllm.blocks import free_blocks
from fastsim.engines.vllm.codes import PreemptionMode
from fastsim.engines.vllm.dense_queue import is_by_rank, queue_again
from fastsim.engines.vllm.free_list import blocks_for, full_blocks, lane_of, take_blocks
from fastsim.engines.vllm.lanes import NO_END, end_life
from fastsim.engines.vllm.preemption import take_state_away
from fastsim.engines.vllm.state import NONE


@inlined
def enter_dense(s, i, left):
    """Request `i`, which misses one token (C == T - 1) and has `left` to sample, decodes from the next step on."""
    clock = s.st["clock"]
    place = s.st["clocked"]
    offset = s.req.num_computed_tokens[i] - clock
    end = clock + left - 1
    s.q.clock_request[place] = i
    s.q.clock_offset[place] = offset
    s.q.clock_end[place] = end
    s.q.clock_rank[place] = s.wl.victim_rank[i]
    s.q.lane_size[lane_of(s, offset)] += 1
    s.st["clocked"] = place + 1
    s.st["clock_context"] += offset
    s.st["clock_next_end"] = min(s.st["clock_next_end"], end)


@inlined
def write_out_dense(s, place, ahead):
    """Write the counters of the decoder at `place` to its own arrays. Returns who it is; its place is the caller's.

    `ahead` is 1 when this step has already given it its block, else 0; C is that at the start of the step.
    """
    i = s.q.clock_request[place]
    offset = s.q.clock_offset[place]
    computed = offset + s.st["clock"]
    s.req.num_computed_tokens[i] = computed
    s.req.num_tokens[i] = computed + 1
    s.req.num_blocks[i] = blocks_for(s, computed + ahead)
    if s.cfg["enable_prefix_caching"]:
        s.req.num_cached_blocks[i] = max(full_blocks(s, computed + ahead), s.req.num_cached_blocks[i])
    s.log.last_token_us[i] = s.st["clock_token_us"]
    if s.cfg["preemption_mode"] == PreemptionMode.RESTART:
        s.req.token_tick[i] = s.st["tick"]
        if computed + 1 > s.req.max_num_tokens[i]:
            s.st["progress_step"] = s.st["clock_step"]
    s.q.lane_size[lane_of(s, offset)] -= 1
    s.st["clock_context"] -= offset
    return i


@helper
def set_back_clock(s):
    """The clock shows 0 again, so that every offset from it fits in an int32."""
    clock = s.st["clock"]
    for lane in range(s.cfg["block_size"]):
        s.q.lane_size[lane] = 0
    for place in range(s.st["clocked"]):
        offset = s.q.clock_offset[place] + clock
        s.q.clock_offset[place] = offset
        s.q.clock_end[place] -= clock
        s.q.lane_size[lane_of(s, offset)] += 1
    s.st["clock_context"] += s.st["clocked"] * clock
    s.st["clock"] = 0
    s.st["due_lane"] = 0
    s.st["clock_next_end"] = next_end_dense(s)


@inlined
def next_end_dense(s):
    """The least clock at which somebody completes."""
    end = NO_END
    for place in range(s.st["clocked"]):
        end = min(end, s.q.clock_end[place])
    return end


@inlined
def take_due_blocks(s):
    """A block for everybody who needs one in this step, in running order; while they are short, preempt somebody."""
    due = s.q.lane_size[s.st["due_lane"]]
    if due <= s.st["free"]:
        take_blocks(s, due)
    elif is_by_rank(s):
        _share_by_rank(s, due)
    else:
        _share_in_order(s, due)


@helper
def _share_in_order(s, unserved):
    """The victim is the last in running order: while blocks are short it is still to be served itself."""
    lane = s.st["due_lane"]
    preempted = 0
    while unserved > s.st["free"]:
        if s.st["free"] > 0:
            preempted = 0
            unserved -= s.st["free"]
            take_blocks(s, s.st["free"])
        due = s.q.lane_size[lane]
        preempt_at(s, victim_place(s), 0)
        if s.q.lane_size[lane] < due:
            unserved -= 1
            if unserved == 0:  # it needed the block itself
                s.tot["ineffective_preemptions"] += preempted
        preempted += 1
    take_blocks(s, unserved)


@helper
def _share_by_rank(s, unserved):
    """The victim may stand anywhere. One that stands before the request in need has been served in this step."""
    lane = s.st["due_lane"]
    place = 0
    while unserved > s.st["free"]:
        if lane_of(s, s.q.clock_offset[place]) != lane:
            place += 1
            continue
        unserved -= 1
        preempted = 0
        served = True
        while served and s.st["free"] == 0:
            victim = victim_place(s)
            due = s.q.lane_size[lane]
            preempt_at(s, victim, 1 if victim < place else 0)
            if victim == place:
                s.tot["ineffective_preemptions"] += preempted
                served = False
            elif victim < place:
                place -= 1
            elif s.q.lane_size[lane] < due:
                unserved -= 1
            preempted += 1
        if served:
            take_blocks(s, 1)
            place += 1
    take_blocks(s, unserved)


@inlined
def victim_place(s):
    """Whom to preempt: the last in running order, or the first of greatest rank. One in prefill is behind the last."""
    decoders = s.st["clocked"]
    i = s.st["prefilling"]
    if not is_by_rank(s):
        return decoders if i != NONE else decoders - 1
    greatest = -1
    for place in range(decoders):
        greatest = max(greatest, s.q.clock_rank[place])
    if i != NONE and s.wl.victim_rank[i] > greatest:
        return decoders
    place = 0
    while s.q.clock_rank[place] != greatest:
        place += 1
    return place


@helper
def preempt_at(s, place, ahead):
    """Preempt the request at a place: a decoder, or, behind the last one, the request in prefill."""
    decoders = s.st["clocked"]
    if place == decoders:
        i = s.st["prefilling"]
        s.st["prefilling"] = NONE
    else:
        i = write_out_dense(s, place, ahead)
        end = s.q.clock_end[place]
        for behind in range(place + 1, decoders):
            _move(s, behind, behind - 1)
        s.st["clocked"] = decoders - 1
        if end == s.st["clock_next_end"]:
            s.st["clock_next_end"] = next_end_dense(s)
    end_life(s, i)
    take_state_away(s, i)
    s.log.status[i] = Status.WAITING
    s.log.num_preemptions[i] += 1
    s.tot["preemptions"] += 1
    s.st["preempted"] += 1
    s.req.waiting_since_us[i] = s.st["now_us"]
    queue_again(s, i)


@inlined
def _move(s, old, place):
    s.q.clock_request[place] = s.q.clock_request[old]
    s.q.clock_offset[place] = s.q.clock_offset[old]
    s.q.clock_end[place] = s.q.clock_end[old]
    s.q.clock_rank[place] = s.q.clock_rank[old]


@helper
def finish_decoders(s, end_us):
    """Whoever decodes its last token in this step finishes, in running order; the others move up."""
    clock = s.st["clock"]
    place = 0
    for old in range(s.st["clocked"]):
        if s.q.clock_end[old] == clock:
            i = write_out_dense(s, old, 1)
            s.req.num_computed_tokens[i] += 1
            s.req.num_tokens[i] += 1
            finish_dense(s, i, end_us)
        else:
            _move(s, old, place)
            place += 1
    s.st["clocked"] = place
    s.st["clock_next_end"] = next_end_dense(s)
    s.st["progress_step"] = s.tot["steps"]


@helper
def finish_dense(s, i, end_us):
    """Request `i`, whose counters are written out, has its last token."""
    end_life(s, i)
    free_blocks(s, i, False)
    s.log.status[i] = Status.FINISHED
    s.log.last_token_us[i] = end_us
    s.log.finish_us[i] = end_us
    s.st["alive_tokens"] -= s.wl.prompt_tokens[i] + s.wl.output_tokens[i]
    s.tot["completed"] += 1
    note_completion(s.tot, s.cfg["b1_us_per_prefill_token"], end_us)
