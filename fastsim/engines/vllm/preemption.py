"""Who gives its blocks up, and what it loses: `select_victim` and `preempt_request`."""

import numpy as np

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import NEVER, Status
from fastsim.engines.vllm.blocks import free_blocks
from fastsim.engines.vllm.codes import PreemptionMode, Victim
from fastsim.engines.vllm.lanes import (
    computed_tokens,
    delivered_on_clock,
    lane_remove,
    leave_clock,
    length,
    on_clock,
    running_remove,
)
from fastsim.engines.vllm.state import NONE
from fastsim.engines.vllm.waiting import enqueue

TAIL = int(Victim.TAIL)
PRIORITY = int(Victim.PRIORITY)
LEAST_COMPUTED = int(Victim.LEAST_COMPUTED)
MOST_COMPUTED = int(Victim.MOST_COMPUTED)
LEAST_GENERATED = int(Victim.LEAST_GENERATED)
MOST_BLOCKS = int(Victim.MOST_BLOCKS)
RANDOM = int(Victim.RANDOM)
ALL_VISITED = 2**62
"""`visited` once the running loop is over: everybody on the clock has been given its token."""
RESTART = int(PreemptionMode.RESTART)
SWAP = int(PreemptionMode.SWAP)
WAITING = int(Status.WAITING)


@inlined
def is_scheduled_decode(cfg, wl, req, i, tokens):
    """VLLM's split of the step's tokens: a decode is the one token that is missing, behind a computed prompt."""
    computed = req.num_computed_tokens[i]
    return tokens == 1 and computed + 1 == length(cfg, req, i) and computed >= wl.prompt_tokens[i]


@inlined
def count_scheduled(cfg, st, wl, req, i, tokens, sign):
    """Add (sign 1) or take back (sign -1) an explicit request's tokens in this step's totals."""
    if is_scheduled_decode(cfg, wl, req, i, tokens):
        st["decode_tokens"] += sign
        st["context_tokens"] += sign * req.num_computed_tokens[i]
    else:
        st["prefill_tokens"] += sign * tokens


@inlined
def add_scheduled(st, req, q, i, tokens):
    """Put an explicit request on this step's list."""
    req.scheduled[i] = tokens
    q.scheduled[st["scheduled"]] = i
    st["scheduled"] += 1
    st["token_budget"] -= tokens


@helper
def unschedule(cfg, st, wl, req, q, i):
    """Take an explicit request out of this step again; its tokens return to both budgets."""
    tokens = req.scheduled[i]
    if tokens == 0:
        return
    st["token_budget"] += tokens
    count_scheduled(cfg, st, wl, req, i, tokens, -1)
    req.scheduled[i] = 0
    size = st["scheduled"] - 1
    place = size
    while q.scheduled[place] != i:
        place -= 1
    for k in range(place, size):
        q.scheduled[k] = q.scheduled[k + 1]
    st["scheduled"] = size


@helper
def held_blocks(cfg, st, req, i):
    """Blocks a running request holds at this moment of the running loop."""
    if on_clock(cfg, req, i):
        computed = req.num_computed_tokens[i] + st["clock"]
        ahead = 1 if req.admission_number[i] < st["visited"] else 0
        return (computed + ahead + cfg["block_size"] - 1) // cfg["block_size"]
    return req.num_blocks[i]


@helper
def generated_tokens(cfg, st, wl, req, i):
    """G of a running request."""
    if on_clock(cfg, req, i):
        return delivered_on_clock(st, req, i) - wl.prompt_tokens[i]
    return req.num_tokens[i] - wl.prompt_tokens[i]


@helper
def _random_place(cfg, st, candidates):
    """Place among the candidates, in running order: splitmix64 of (seed, number of the decision)."""
    state = cfg["seed"] * -7046029254386353131 + st["decisions"]  # 0x9E3779B97F4A7C15 as int64
    st["decisions"] += 1
    return splitmix64(state, candidates)


@helper
def splitmix64(state, modulus):
    """The generator's output for `state`, as an unsigned number, modulo `modulus`."""
    z = np.uint64(state) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64(z % np.uint64(modulus))


@helper
def _later_arrival(log, a, b):
    """Whether `a` arrived after `b`: (arrival, index)."""
    if log.arrival_us[a] != log.arrival_us[b]:
        return log.arrival_us[a] > log.arrival_us[b]
    return a > b


@helper
def _preferred(cfg, st, wl, req, log, victim, i, best):
    """Whether running request `i` is a better victim than `best`, which stands before it. Ties: the later one,
    except under vLLM's own priority rule, where the first in running order stays.
    """
    if victim == TAIL:
        return True
    if victim == PRIORITY:
        if wl.priority[i] != wl.priority[best]:
            return wl.priority[i] > wl.priority[best]
        return log.arrival_us[i] > log.arrival_us[best]
    if victim == LEAST_COMPUTED:
        return computed_tokens(cfg, st, req, i) <= computed_tokens(cfg, st, req, best)
    if victim == MOST_COMPUTED:
        return computed_tokens(cfg, st, req, i) >= computed_tokens(cfg, st, req, best)
    if victim == LEAST_GENERATED:
        return generated_tokens(cfg, st, wl, req, i) <= generated_tokens(cfg, st, wl, req, best)
    return held_blocks(cfg, st, req, i) >= held_blocks(cfg, st, req, best)


@helper
def select_victim(cfg, st, wl, req, log):
    """The running request to preempt. Protected ones only when there is no other: then the latest arrival."""
    victim = cfg["victim"]
    if victim == TAIL and st["protected"] == 0:
        return st["running_tail"]
    all_protected = st["protected"] == st["running"]
    place = -1
    if victim == RANDOM and not all_protected:
        place = _random_place(cfg, st, st["running"] - st["protected"])
    best = NONE
    i = st["running_head"]
    while i != NONE:
        if all_protected:
            if best == NONE or _later_arrival(log, i, best):
                best = i
        elif not req.protected[i]:
            if victim == RANDOM:
                if place == 0:
                    return i
                place -= 1
            elif best == NONE or _preferred(cfg, st, wl, req, log, victim, i, best):
                best = i
        i = req.run_next[i]
    return best


@helper
def preempt_request(cfg, st, tot, wl, req, q, blk, log, rec, i):
    """Preempt running request `i`: un-schedule it, free its blocks, put it back into the waiting queue."""
    if i == st["cursor_explicit"]:
        st["cursor_explicit"] = req.lane_next[i]
    if i == st["cursor_due"]:
        st["cursor_due"] = req.lane_next[i]
    if on_clock(cfg, req, i):
        ahead = 1 if req.admission_number[i] < st["visited"] else 0
        leave_clock(cfg, st, req, q, log, i, ahead)
        if st["visited"] == ALL_VISITED:
            st["token_budget"] += 1
    else:
        unschedule(cfg, st, wl, req, q, i)
        lane_remove(req, q, i)
    running_remove(st, tot, req, log, i)
    st["protected"] -= req.protected[i]
    _take_state_away(cfg, st, tot, wl, req, blk, log, i)
    req.mid_prefill[i] = 0
    if cfg["asynchronous"]:
        req.stale[i] = 1 if req.flights[i] > 0 else 0
    log.status[i] = WAITING
    log.num_preemptions[i] += 1
    tot["preemptions"] += 1
    tot["last_preemption_us"] = st["now_us"]
    if cfg["boost_after"] > 0 and log.num_preemptions[i] >= cfg["boost_after"]:
        req.protected[i] = 1
    if cfg["record"]:
        rec.preempted[st["rec_preempted"]] = i
        st["rec_preempted"] += 1
    st["preempted"] += 1
    enqueue(cfg, st, wl, req, q, log, i, True)


@helper
def _take_state_away(cfg, st, tot, wl, req, blk, log, i):
    """Free the blocks; what else is lost is the preemption mode."""
    block_size = cfg["block_size"]
    if cfg["preemption_mode"] == SWAP:
        blocks = (req.num_computed_tokens[i] + block_size - 1) // block_size
        if blocks > 0:
            if st["host_blocks"] + blocks <= cfg["swap_space_blocks"]:
                free_blocks(cfg, st, req, blk, i, True)
                req.swapped_blocks[i] = blocks
                st["host_blocks"] += blocks
                st["moved_blocks"] += blocks
                tot["swapped_out_blocks"] += blocks
                return
            tot["swap_fallbacks"] += 1
    free_blocks(cfg, st, req, blk, i, True)
    req.num_computed_tokens[i] = 0
    if cfg["preemption_mode"] == RESTART:
        generated = req.num_tokens[i] - wl.prompt_tokens[i]
        tot["discarded_tokens"] += generated
        req.num_tokens[i] = wl.prompt_tokens[i]
        log.first_token_us[i] = NEVER
