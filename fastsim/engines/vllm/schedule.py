"""One schedule() call: the running loop, then the waiting loop (vLLM v1 scheduler)."""

from fastsim._jit import helper, inlined
from fastsim.engines.vllm.admission import waiting_loop
from fastsim.engines.vllm.blocks import cache_blocks
from fastsim.engines.vllm.codes import Victim
from fastsim.engines.vllm.free_list import take_blocks
from fastsim.engines.vllm.lanes import materialise, samples_in_flight, take_ended_off_clock
from fastsim.engines.vllm.preemption import ALL_VISITED, add_scheduled, count_scheduled, preempt_request, select_victim
from fastsim.engines.vllm.state import NONE

TAIL = int(Victim.TAIL)


@inlined
def schedule_step(cfg, st, tot, wl, req, q, blk, log, rec):
    """Decide this step: who runs how many tokens, who is preempted, who is admitted."""
    begin_step(cfg, st, req)
    if cfg["asynchronous"] and st["clock_next_end"] < st["clock"]:
        take_ended_off_clock(cfg, st, req, q, log)
    choose_clock(cfg, st, req, q, log)
    running_loop(cfg, st, tot, wl, req, q, blk, log, rec)
    waiting_loop(cfg, st, tot, wl, req, q, blk, log, rec)
    st["decode_tokens"] += st["clocked"]
    st["context_tokens"] += st["clock_context"] + st["clocked"] * st["clock"]


@inlined
def begin_step(cfg, st, req):
    """Budgets and thresholds as they are at the start of a step."""
    # vLLM 0.33.0 keeps two budgets, which shrink alike: the lesser one decides
    st["token_budget"] = min(cfg["max_num_scheduled_tokens"], cfg["max_num_batched_tokens"])
    st["scheduled"] = 0
    st["preempted"] = 0
    st["admitted"] = 0
    st["finished"] = 0
    st["prefill_tokens"] = 0
    st["decode_tokens"] = 0
    st["context_tokens"] = 0
    st["moved_blocks"] = 0
    st["prefill_ran"] = 0
    threshold = cfg["long_prefill_token_threshold"]
    requests = st["running"] + st["waiting"]
    if requests <= 1 and not cfg["threshold_always"]:
        threshold = 0
    if threshold > 0 and cfg["long_prefill_token_threshold_adaptive"]:
        threshold = max(threshold, cfg["max_num_batched_tokens"] // requests)
    st["threshold"] = threshold
    st["defer"] = 0
    if cfg["prefill_schedule_interval"] > 1:
        st["defer"] = defers_prefill(cfg, st, req)


@helper
def defers_prefill(cfg, st, req):
    """Whether prefills wait in this step: the last one was too recently and somebody can decode meanwhile."""
    if st["cap_bound"] or st["executed"] + 1 - st["last_prefill"] >= cfg["prefill_schedule_interval"]:
        return 0
    i = st["running_head"]
    while i != NONE:
        if not req.mid_prefill[i]:
            return 1
        i = req.run_next[i]
    return 0


@inlined
def wanted_tokens(cfg, st, req, i):
    """Tokens an explicit request asks for: all it misses, cut by the long-prefill threshold.

    Asynchronous: none when its last token is in flight. (At a call at most one of its tokens is.)
    """
    computed = req.num_computed_tokens[i]
    tokens = req.num_tokens[i] - computed
    if samples_in_flight(cfg, req, i):
        if computed + 1 >= req.final_tokens[i]:
            return 0
        tokens += 1
    if 0 < st["threshold"] < tokens:
        tokens = st["threshold"]
    return tokens


@inlined
def choose_clock(cfg, st, req, q, log):
    """Whether everybody on the clock will decode one token in this step; if not, write the counters out.

    True when the budgets cover every decoder and whatever stands before the last of them. What an explicit request
    behind all of them gets is what they leave.
    """
    if not cfg["fast_forward"]:
        return
    budget = st["token_budget"]
    decoders = st["clocked"]
    explicit = cfg["block_size"]
    fits = decoders <= budget
    if fits and decoders > 0 and q.lane_head[explicit] != NONE:
        last_decoder = _last_on_clock(cfg, st, req)
        wanted = decoders
        i = q.lane_head[explicit]
        while i != NONE and req.admission_number[i] < last_decoder:
            wanted += wanted_tokens(cfg, st, req, i)
            i = req.lane_next[i]
        fits = wanted <= budget
    if decoders > 0 and not fits:
        materialise(cfg, st, req, q, log, NONE)
    st["use_clock"] = 1 if fits and st["running"] <= budget else 0


@inlined
def _last_on_clock(cfg, st, req):
    i = st["running_tail"]
    while req.lane[i] == cfg["block_size"]:
        i = req.run_prev[i]
    return req.admission_number[i]


@inlined
def running_loop(cfg, st, tot, wl, req, q, blk, log, rec):
    """VLLM's loop over `running`: everybody who needs something in this step, in admission order.

    Explicit requests need tokens. Of those on the clock only the ones whose blocks are full need anything: their lane
    is due when the clock modulo block_size is its number.
    """
    explicit = cfg["block_size"]
    due = NONE
    due_size = 0
    if st["clocked"] > 0:
        due = q.lane_head[st["due_lane"]]
        due_size = q.lane_size[st["due_lane"]]
    if q.lane_head[explicit] == NONE and due_size <= st["free"]:
        take_blocks(cfg, st, req, blk, due_size)
    else:
        visit_running(cfg, st, tot, wl, req, q, blk, log, rec, q.lane_head[explicit], due)
    st["visited"] = ALL_VISITED
    st["token_budget"] -= st["clocked"]


@inlined
def visit_running(cfg, st, tot, wl, req, q, blk, log, rec, first_explicit, first_due):
    """Merge the explicit lane and the due lane by admission number; preempt where blocks are short."""
    st["visited"] = -1
    st["cursor_explicit"] = first_explicit
    st["cursor_due"] = first_due
    while True:
        a = st["cursor_explicit"]
        b = st["cursor_due"]
        if a == NONE and b == NONE:
            break
        if b == NONE or (a != NONE and req.admission_number[a] < req.admission_number[b]):
            if st["token_budget"] <= st["clocked"]:
                break
            st["cursor_explicit"] = req.lane_next[a]
            if not schedule_running(cfg, st, tot, wl, req, q, blk, log, rec, a):
                materialise(cfg, st, req, q, log, st["visited"])
                break
        else:
            st["cursor_due"] = req.lane_next[b]
            st["visited"] = req.admission_number[b]
            if make_room(cfg, st, tot, wl, req, q, blk, log, rec, b, 1):
                take_blocks(cfg, st, req, blk, 1)
                st["visited"] += 1  # it has its block from here on
            elif self_preemption_stops(cfg):
                materialise(cfg, st, req, q, log, st["visited"])
                break


@helper
def self_preemption_stops(cfg):
    """Whether a request that preempts itself ends the running loop: always under `tail`, and always in 0.16.0."""
    return cfg["victim"] == TAIL or cfg["self_preemption_stops"]


@inlined
def schedule_running(cfg, st, tot, wl, req, q, blk, log, rec, i):
    """Schedule one explicit running request. False: the loop ends here."""
    if st["defer"] and req.mid_prefill[i]:
        return True
    computed = req.num_computed_tokens[i]
    left = st["token_budget"] - st["clocked"]
    tokens = min(wanted_tokens(cfg, st, req, i), left, cfg["max_model_len"] - computed - 1)
    if tokens <= 0:
        return True
    needed = blocks_needed(cfg, req, i, computed + tokens)
    if needed > 0:
        st["visited"] = req.admission_number[i]
        if not make_room(cfg, st, tot, wl, req, q, blk, log, rec, i, needed):
            return not self_preemption_stops(cfg)
        take_blocks(cfg, st, req, blk, needed)
        req.num_blocks[i] += needed
    if cfg["enable_prefix_caching"]:
        cache_blocks(cfg, st, wl, req, blk, i, min(computed + tokens, req.num_tokens[i]) // cfg["block_size"])
    if req.mid_prefill[i]:
        st["prefill_ran"] = 1
        count_scheduled(cfg, st, wl, req, i, tokens, 1)
    else:  # it has sampled since its admission, and so it misses one token
        st["decode_tokens"] += 1
        st["context_tokens"] += computed
    add_scheduled(st, req, q, i, tokens)
    return True


@inlined
def blocks_needed(cfg, req, i, tokens):
    """Blocks running request `i` lacks to hold `tokens` tokens."""
    held = req.num_blocks[i]
    if tokens <= held * cfg["block_size"]:
        return 0
    return (tokens + cfg["block_size"] - 1) // cfg["block_size"] - held


@helper
def make_room(cfg, st, tot, wl, req, q, blk, log, rec, i, needed):
    """Preempt until `needed` blocks are free. False: request `i` itself had to go."""
    others = 0
    while needed > st["free"]:
        victim = select_victim(cfg, st, wl, req, log)
        preempt_request(cfg, st, tot, wl, req, q, blk, log, rec, victim)
        if victim == i:
            tot["ineffective_preemptions"] += others
            return False
        others += 1
    return True
