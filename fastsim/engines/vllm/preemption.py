"""Who gives its blocks up, and what it loses: `select_victim` and `preempt_request`."""

import numpy as np

from fastsim._jit import helper, inlined
from fastsim._jit.indirect import ask
from fastsim.engines.outputs import NEVER, Status
from fastsim.engines.vllm.blocks import free_blocks
from fastsim.engines.vllm.codes import PreemptionMode, Victim
from fastsim.engines.vllm.free_list import blocks_for
from fastsim.engines.vllm.lanes import (
    computed_tokens,
    delivered_on_clock,
    lane_remove,
    leave_clock,
    length,
    on_clock,
    running_remove,
)
from fastsim.engines.vllm.recorder import note_loss, note_victim
from fastsim.engines.vllm.state import NONE
from fastsim.engines.vllm.waiting import enqueue

ALL_VISITED = 2**62
"""`visited` once the running loop is over: everybody on the clock has been given its token."""


@inlined
def is_scheduled_decode(s, i, tokens):
    """VLLM's split of the step's tokens: a decode is the one token that is missing, behind a computed prompt."""
    computed = s.req.num_computed_tokens[i]
    return tokens == 1 and computed + 1 == length(s, i) and computed >= s.wl.prompt_tokens[i]


@inlined
def count_scheduled(s, i, tokens, sign):
    """Add (sign 1) or take back (sign -1) an explicit request's tokens in this step's totals."""
    computed = s.req.num_computed_tokens[i]
    if is_scheduled_decode(s, i, tokens):
        s.st["decode_tokens"] += sign
        s.st["context_tokens"] += sign * computed
        s.st["window_tokens"] += sign * min(computed, s.cfg["window_tokens"])
    else:
        s.st["prefill_tokens"] += sign * tokens
        s.st["prefill_pairs_doubled"] += sign * tokens * (2 * computed + tokens)


@inlined
def add_scheduled(s, i, tokens):
    """Put an explicit request on this step's list."""
    s.req.scheduled[i] = tokens
    s.q.scheduled[s.st["scheduled"]] = i
    s.st["scheduled"] += 1
    s.st["token_budget"] -= tokens


@helper
def unschedule(s, i):
    """Take an explicit request out of this step again; its tokens return to both budgets."""
    tokens = s.req.scheduled[i]
    if tokens == 0:
        return
    s.st["token_budget"] += tokens
    count_scheduled(s, i, tokens, -1)
    s.req.scheduled[i] = 0
    size = s.st["scheduled"] - 1
    place = size
    while s.q.scheduled[place] != i:
        place -= 1
    for k in range(place, size):
        s.q.scheduled[k] = s.q.scheduled[k + 1]
    s.st["scheduled"] = size


@helper
def held_blocks(s, i):
    """Blocks a running request holds at this moment of the running loop."""
    if on_clock(s, i):
        computed = s.req.num_computed_tokens[i] + s.st["clock"]
        ahead = 1 if s.req.admission_number[i] < s.st["visited"] else 0
        return blocks_for(s, computed + ahead)
    return s.req.num_blocks[i]


@helper
def generated_tokens(s, i):
    """G of a running request."""
    if on_clock(s, i):
        return delivered_on_clock(s, i) - s.wl.prompt_tokens[i]
    return s.req.num_tokens[i] - s.wl.prompt_tokens[i]


@helper
def _random_place(s, candidates):
    """Place among the candidates, in running order: splitmix64 of (seed, number of the decision)."""
    state = s.cfg["seed"] * -7046029254386353131 + s.st["decisions"]  # 0x9E3779B97F4A7C15 as int64
    s.st["decisions"] += 1
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
def _later_arrival(s, a, b):
    """Whether `a` arrived after `b`: (arrival, index)."""
    if s.log.arrival_us[a] != s.log.arrival_us[b]:
        return s.log.arrival_us[a] > s.log.arrival_us[b]
    return a > b


@helper
def _preferred(s, victim, i, best):
    """Whether running request `i` is a better victim than `best`, which stands before it. Ties: the later one,
    except under vLLM's own priority rule, where the first in running order stays.
    """
    if victim == Victim.TAIL:
        return True
    if victim == Victim.PRIORITY:
        if s.wl.priority[i] != s.wl.priority[best]:
            return s.wl.priority[i] > s.wl.priority[best]
        return s.log.arrival_us[i] > s.log.arrival_us[best]
    if victim == Victim.LEAST_COMPUTED:
        return computed_tokens(s, i) <= computed_tokens(s, best)
    if victim == Victim.MOST_COMPUTED:
        return computed_tokens(s, i) >= computed_tokens(s, best)
    if victim == Victim.LEAST_GENERATED:
        return generated_tokens(s, i) <= generated_tokens(s, best)
    return held_blocks(s, i) >= held_blocks(s, best)


@helper
def select_victim(s):
    """The running request to preempt. Protected ones only when there is no other: then the latest arrival."""
    victim = s.cfg["victim"]
    if victim == Victim.TAIL and s.st["protected"] == 0:
        return s.st["running_tail"]
    all_protected = s.st["protected"] == s.st["running"]
    place = -1
    if victim == Victim.RANDOM and not all_protected:
        place = _random_place(s, s.st["running"] - s.st["protected"])
    best = NONE
    i = s.st["running_head"]
    while i != NONE:
        if all_protected:
            if best == NONE or _later_arrival(s, i, best):
                best = i
        elif not s.req.protected[i]:
            if victim == Victim.RANDOM:
                if place == 0:
                    return i
                place -= 1
            elif best == NONE or _preferred(s, victim, i, best):
                best = i
        i = s.req.run_next[i]
    return best


@helper
def own_victim(s):
    """The one that a policy file chooses, of those that are not protected. There must be some."""
    return int(ask(s.cfg["policy_victim"], s, 0))


@helper
def preempt_request(s, i, evictor, lacked):
    """Preempt running request `i`: un-schedule it, free its blocks, put it back into the waiting queue.

    For `evictor`, who lacks `lacked` blocks; 0: who takes its slot.
    """
    if s.cfg["record"]:
        computed = computed_tokens(s, i)
        note_victim(s, i, evictor, lacked, computed, computed + 1 if on_clock(s, i) else length(s, i))
    if i == s.st["cursor_explicit"]:
        s.st["cursor_explicit"] = s.req.lane_next[i]
    if i == s.st["cursor_due"]:
        s.st["cursor_due"] = s.req.lane_next[i]
    if on_clock(s, i):
        ahead = 1 if s.req.admission_number[i] < s.st["visited"] else 0
        leave_clock(s, i, ahead)
        if s.st["visited"] == ALL_VISITED:
            s.st["token_budget"] += 1
    else:
        unschedule(s, i)
        lane_remove(s, i)
    running_remove(s, i)
    s.st["protected"] -= s.req.protected[i]
    take_state_away(s, i)
    s.req.mid_prefill[i] = 0
    if s.cfg["asynchronous"]:
        s.req.stale[i] = 1 if s.req.flights[i] > 0 else 0
    s.log.status[i] = Status.WAITING
    s.log.num_preemptions[i] += 1
    s.tot["preemptions"] += 1
    if s.cfg["boost_after"] > 0 and s.log.num_preemptions[i] >= s.cfg["boost_after"]:
        s.req.protected[i] = 1
    if s.cfg["record"]:
        note_loss(s, i)
    s.st["preempted"] += 1
    s.req.waiting_since_us[i] = s.st["now_us"]
    enqueue(s, i, True)


@helper
def take_state_away(s, i):
    """Free the blocks; what else is lost is the preemption mode."""
    if s.cfg["preemption_mode"] == PreemptionMode.SWAP:
        blocks = blocks_for(s, s.req.num_computed_tokens[i])
        if blocks > 0:
            if s.st["host_blocks"] + blocks <= s.cfg["swap_space_blocks"]:
                free_blocks(s, i, True)
                s.req.swapped_blocks[i] = blocks
                s.st["host_blocks"] += blocks
                s.st["moved_blocks"] += blocks
                s.tot["swapped_out_blocks"] += blocks
                return
            s.tot["swap_fallbacks"] += 1
    free_blocks(s, i, True)
    s.req.num_computed_tokens[i] = 0
    if s.cfg["preemption_mode"] == PreemptionMode.RESTART:
        generated = s.req.num_tokens[i] - s.wl.prompt_tokens[i]
        s.tot["discarded_tokens"] += generated
        s.req.num_tokens[i] = s.wl.prompt_tokens[i]
        s.log.first_token_us[i] = NEVER
