"""One schedule() call: the running loop, then the waiting loop (vLLM v1 scheduler)."""

from fastsim._jit import helper, inlined
from fastsim.engines.vllm.admission import waiting_loop
from fastsim.engines.vllm.blocks import cache_blocks
from fastsim.engines.vllm.codes import Victim
from fastsim.engines.vllm.free_list import blocks_for, full_blocks, take_blocks
from fastsim.engines.vllm.lanes import materialise, samples_in_flight, take_ended_off_clock
from fastsim.engines.vllm.latency import clock_window_tokens, fill_windows
from fastsim.engines.vllm.preemption import (
    ALL_VISITED,
    add_scheduled,
    count_scheduled,
    own_victim,
    preempt_request,
    select_victim,
)
from fastsim.engines.vllm.state import NONE

LATEST_CLOCK = 2**30
"""A clock that shows more is set back, so that what a request has computed, less the clock, fits in an int32."""


@inlined
def schedule_step(s):
    """Decide this step: who runs how many tokens, who is preempted, who is admitted."""
    begin_step(s)
    if s.cfg["asynchronous"] and s.st["clock_next_end"] < s.st["clock"]:
        take_ended_off_clock(s)
    choose_clock(s)
    running_loop(s)
    waiting_loop(s)
    s.st["decode_tokens"] += s.st["clocked"]
    s.st["context_tokens"] += s.st["clock_context"] + s.st["clocked"] * s.st["clock"]
    if s.cfg["window_tokens"] > 0:
        fill_windows(s)
        s.st["window_tokens"] += clock_window_tokens(s)


@inlined
def begin_step(s):
    """Budgets and thresholds as they are at the start of a step."""
    # vLLM 0.33.0 keeps two budgets, which shrink alike: the lesser one decides
    s.st["token_budget"] = min(s.cfg["max_num_scheduled_tokens"], s.cfg["max_num_batched_tokens"])
    s.st["scheduled"] = 0
    s.st["preempted"] = 0
    s.st["admitted"] = 0
    s.st["finished"] = 0
    s.st["prefill_tokens"] = 0
    s.st["decode_tokens"] = 0
    s.st["context_tokens"] = 0
    s.st["window_tokens"] = 0
    s.st["prefill_pairs_doubled"] = 0
    s.st["moved_blocks"] = 0
    s.st["prefill_ran"] = 0
    threshold = s.cfg["long_prefill_token_threshold"]
    requests = s.st["running"] + s.st["waiting"]
    if requests <= 1 and not s.cfg["threshold_always"]:
        threshold = 0
    if threshold > 0 and s.cfg["long_prefill_token_threshold_adaptive"]:
        threshold = max(threshold, s.cfg["max_num_batched_tokens"] // requests)
    s.st["threshold"] = threshold
    s.st["defer"] = 0
    if s.cfg["prefill_schedule_interval"] > 1:
        s.st["defer"] = defers_prefill(s)


@helper
def defers_prefill(s):
    """Whether prefills wait in this step: the last one was too recently and somebody can decode meanwhile."""
    if s.st["cap_bound"] or s.st["executed"] + 1 - s.st["last_prefill"] >= s.cfg["prefill_schedule_interval"]:
        return 0
    i = s.st["running_head"]
    while i != NONE:
        if not s.req.mid_prefill[i]:
            return 1
        i = s.req.run_next[i]
    return 0


@inlined
def wanted_tokens(s, i):
    """Tokens an explicit request asks for: all it misses, cut by the long-prefill threshold.

    Asynchronous: none when its last token is in flight. (At a call at most one of its tokens is.)
    """
    computed = s.req.num_computed_tokens[i]
    tokens = s.req.num_tokens[i] - computed
    if samples_in_flight(s, i):
        if computed + 1 >= s.req.final_tokens[i]:
            return 0
        tokens += 1
    if 0 < s.st["threshold"] < tokens:
        tokens = s.st["threshold"]
    return tokens


@inlined
def choose_clock(s):
    """Whether everybody on the clock will decode one token in this step; if not, write the counters out.

    True when the budgets cover every decoder and whatever stands before the last of them. What an explicit request
    behind all of them gets is what they leave.
    """
    if not s.cfg["fast_forward"]:
        return
    if s.st["clock"] > LATEST_CLOCK:
        materialise(s, NONE)
        s.st["clock"] = 0
        s.st["due_lane"] = 0
    budget = s.st["token_budget"]
    decoders = s.st["clocked"]
    explicit = s.cfg["block_size"]
    fits = decoders <= budget
    if fits and decoders > 0 and s.q.lane_head[explicit] != NONE:
        last_decoder = _last_on_clock(s)
        wanted = decoders
        i = s.q.lane_head[explicit]
        while i != NONE and s.req.admission_number[i] < last_decoder:
            wanted += wanted_tokens(s, i)
            i = s.req.lane_next[i]
        fits = wanted <= budget
    if decoders > 0 and not fits:
        materialise(s, NONE)
    s.st["use_clock"] = 1 if fits and s.st["running"] <= budget else 0


@inlined
def _last_on_clock(s):
    i = s.st["running_tail"]
    while s.req.lane[i] == s.cfg["block_size"]:
        i = s.req.run_prev[i]
    return s.req.admission_number[i]


@inlined
def running_loop(s):
    """VLLM's loop over `running`: everybody who needs something in this step, in admission order.

    Explicit requests need tokens. Of those on the clock only the ones whose blocks are full need anything: their lane
    is due when the clock modulo block_size is its number.
    """
    explicit = s.cfg["block_size"]
    due = NONE
    due_size = 0
    if s.st["clocked"] > 0:
        due = s.q.lane_head[s.st["due_lane"]]
        due_size = s.q.lane_size[s.st["due_lane"]]
    if s.q.lane_head[explicit] == NONE and due_size <= s.st["free"]:
        take_blocks(s, due_size)
    else:
        visit_running(s, s.q.lane_head[explicit], due)
    s.st["visited"] = ALL_VISITED
    s.st["token_budget"] -= s.st["clocked"]


@inlined
def visit_running(s, first_explicit, first_due):
    """Merge the explicit lane and the due lane by admission number; preempt where blocks are short."""
    s.st["visited"] = -1
    s.st["cursor_explicit"] = first_explicit
    s.st["cursor_due"] = first_due
    while True:
        a = s.st["cursor_explicit"]
        b = s.st["cursor_due"]
        if a == NONE and b == NONE:
            break
        if b == NONE or (a != NONE and s.req.admission_number[a] < s.req.admission_number[b]):
            if s.st["token_budget"] <= s.st["clocked"]:
                break
            s.st["cursor_explicit"] = s.req.lane_next[a]
            if not schedule_running(s, a):
                materialise(s, s.st["visited"])
                break
        else:
            s.st["cursor_due"] = s.req.lane_next[b]
            s.st["visited"] = s.req.admission_number[b]
            if make_room(s, b, 1):
                take_blocks(s, 1)
                s.st["visited"] += 1  # it has its block from here on
            elif self_preemption_stops(s):
                materialise(s, s.st["visited"])
                break


@helper
def self_preemption_stops(s):
    """Whether a request that preempts itself ends the running loop: always under `tail`, and always in 0.16.0."""
    return s.cfg["victim"] == Victim.TAIL or s.cfg["self_preemption_stops"]


@inlined
def schedule_running(s, i):
    """Schedule one explicit running request. False: the loop ends here."""
    if s.st["defer"] and s.req.mid_prefill[i]:
        return True
    computed = s.req.num_computed_tokens[i]
    left = s.st["token_budget"] - s.st["clocked"]
    tokens = min(wanted_tokens(s, i), left, s.cfg["max_model_len"] - computed - 1)
    if tokens <= 0:
        return True
    needed = blocks_needed(s, i, computed + tokens)
    if needed > 0:
        s.st["visited"] = s.req.admission_number[i]
        if not make_room(s, i, needed):
            return not self_preemption_stops(s)
        take_blocks(s, needed)
        s.req.num_blocks[i] += needed
    if s.cfg["enable_prefix_caching"]:
        cache_blocks(s, i, full_blocks(s, min(computed + tokens, s.req.num_tokens[i])))
    if s.req.mid_prefill[i]:
        s.st["prefill_ran"] = 1
        count_scheduled(s, i, tokens, 1)
    else:  # it has sampled since its admission, and so it misses one token
        s.st["decode_tokens"] += 1
        s.st["context_tokens"] += computed
        s.st["window_tokens"] += min(computed, s.cfg["window_tokens"])
    add_scheduled(s, i, tokens)
    return True


@inlined
def blocks_needed(s, i, tokens):
    """Blocks running request `i` lacks to hold `tokens` tokens."""
    held = s.req.num_blocks[i]
    if tokens <= held * s.cfg["block_size"]:
        return 0
    return blocks_for(s, tokens) - held


@helper
def make_room(s, i, needed):
    """Preempt until `needed` blocks are free. False: request `i` itself had to go."""
    others = 0
    while needed > s.st["free"]:
        # Each has one call, so that it becomes part of this loop
        if s.cfg["policy_victim"] != 0 and s.st["protected"] < s.st["running"]:
            victim = own_victim(s)
        else:
            victim = select_victim(s)
        preempt_request(s, victim, i, needed - s.st["free"])
        if victim == i:
            s.tot["ineffective_preemptions"] += others
            return False
        others += 1
    return True
