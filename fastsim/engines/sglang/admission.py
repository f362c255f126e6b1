"""One prefill pass: the chunked request first, then the queue in order until somebody does not fit."""

from fastsim._jit import helper
from fastsim.engines.sglang.batches import (
    add_decodes,
    add_extend,
    allocate_prefill,
    decode_fits,
    drop_certain_ends,
)
from fastsim.engines.sglang.budgets import budget_state, charge, open_budgets, rest
from fastsim.engines.sglang.codes import CONTINUE, NO_TOKEN, NONE, OTHER
from fastsim.engines.sglang.exact import try_exactly
from fastsim.engines.sglang.memory import ceil_pages, content_tokens
from fastsim.engines.sglang.preemption import preempt_for
from fastsim.engines.sglang.radix import match
from fastsim.engines.sglang.tree import lock, unlock
from fastsim.engines.sglang.waiting import append_waiting, drop_head, num_waiting, sort_waiting


@helper
def prefill(cfg, st, s):
    """Build a prefill batch in the open slot. False: the pool ran over."""
    if st["num_running"] == 0 or cfg["preempts"]:
        st["full"] = 0
    chunked = st["chunked"]
    if (st["full"] or num_waiting(st) == 0) and chunked == NONE:
        return True
    slots = min(cfg["max_running_requests"] - st["num_running"], st["rows_free"])
    if slots <= 0 and chunked == NONE and cfg["preempts"] == 0:
        st["full"] = 1
        return True
    sort_waiting(cfg, st, s)
    open_budgets(cfg, st, s)
    if chunked != NONE:
        if st["chunk_left"] <= 0:
            return True  # more requests decode than a chunk has tokens: it waits
        continue_chunk(cfg, st, s, chunked)
        st["chunked"] = st["new_chunked"]
    drop_head(st, walk_queue(cfg, st, s))
    for k in range(st["num_preempted"]):
        append_waiting(st, s, s.lists.preempted[k], st["now_us"])
    slot = st["batch"]
    if s.batches.num_extends[slot] == 0:
        return True
    st["chunked"] = st["new_chunked"]
    s.batches.chunked[slot] = st["chunked"]
    if not allocate_prefill(cfg, st, s):
        return False
    if cfg["mixes"] and st["num_running"] > 0:
        mix_decodes(cfg, st, s)
    return True


@helper
def mix_decodes(cfg, st, s):
    """The running requests decode in the same batch, if that fits; otherwise they sit it out."""
    drop_certain_ends(cfg, st, s)
    if st["num_running"] > 0 and decode_fits(cfg, st, s):
        add_decodes(cfg, st, s)
        for k in range(st["num_running"]):
            i = s.lists.running[k]
            s.req.tokens_at_match[i] = content_tokens(s, i)
        st["num_running"] = 0


@helper
def continue_chunk(cfg, st, s, i):
    """The request in the middle of its prompt gets its next chunk, whatever the pool has."""
    limit = min(st["chunk_left"], int(rest(st)))
    if limit <= 0:
        limit = st["chunk_left"]
    left = content_tokens(s, i) - s.req.prefix[i]
    tokens = min(left, limit)
    charge(cfg, st, tokens, min(s.req.limit[i], cfg["clip_max_new_tokens"]) if tokens == left else 0)
    add_extend(st, s, i, tokens)
    st["continued"] = 1
    if tokens < left:
        st["new_chunked"] = i


@helper
def walk_queue(cfg, st, s):
    """Admit from the head of the queue; returns how many were."""
    slot = st["batch"]
    for k in range(num_waiting(st)):
        i = s.lists.waiting[st["wait_head"] + k]
        admitted = s.batches.num_extends[slot]
        if budget_state(st) == OTHER:
            return k
        slots = min(cfg["max_running_requests"] - st["num_running"], st["rows_free"] + st["continued"])
        if admitted >= slots:
            st["full"] = 1
        if st["full"] and not (cfg["preempts"] and preempt_for(cfg, st, s, i)):
            return k
        result = try_request(cfg, st, s, i)
        if result == NONE:
            return k
        count = k
        if result == CONTINUE:
            count += 1
            result = budget_state(st)
        if result != CONTINUE:
            if result == NO_TOKEN:
                st["full"] = 1 if s.batches.num_extends[slot] > 0 or st["num_running"] > 0 else 0
            return count
    return num_waiting(st)


@helper
def try_request(cfg, st, s, i):
    """Match and admit request `i` if it fits; NONE: the batch has its `prefill_max_requests`."""
    hit = 0
    node = NONE
    if cfg["disable_radix_cache"] == 0:
        match(cfg, st, s, i, content_tokens(s, i) - 1)
        hit = st["hit"]
        node = st["hit_node"]
    s.req.prefix[i] = hit
    s.req.tokens_at_match[i] = content_tokens(s, i)
    if s.batches.num_extends[st["batch"]] >= cfg["prefill_max_requests"]:
        return NONE
    if s.wl.ignore_eos[i] and cfg["disable_radix_cache"]:
        result = try_exactly(cfg, st, s, i)
    else:
        lock(st, s, node)
        result = try_one(cfg, st, s, i)
        if result == CONTINUE:
            s.req.node[i] = node
        else:
            unlock(st, s, node)
    if result == CONTINUE:
        s.req.kv[i] = hit
        s.req.protected[i] = hit
        s.log.prefix_hit_tokens[i] += hit
        if s.log.prefix_hit_tokens_first[i] < 0:
            s.log.prefix_hit_tokens_first[i] = hit
    return result


@helper
def try_one(cfg, st, s, i):
    """Admit request `i` if its content and its whole future fit beside what is reserved for the others."""
    req = s.req
    size = cfg["page_size"]
    tokens = content_tokens(s, i) - req.prefix[i]
    future = min(max(req.limit[i] - req.generated[i], 0), cfg["clip_max_new_tokens"])
    if not tokens + future + size < rest(st):
        return NO_TOKEN
    whole = ceil_pages(cfg, tokens)
    reserve = min(req.limit[i], cfg["clip_max_new_tokens"])
    if cfg["chunks"] == 0:
        if s.batches.num_extends[st["batch"]] > 0 and whole >= st["input_left"]:
            return OTHER
    elif whole > st["chunk_left"]:
        chunk = st["chunk_left"] // size * size
        tokens = (req.prefix[i] + chunk) // size * size - req.prefix[i]
        if tokens <= 0:
            return OTHER
        reserve = 0
        st["new_chunked"] = i
    charge(cfg, st, tokens, reserve)
    add_extend(st, s, i, tokens)
    return CONTINUE
