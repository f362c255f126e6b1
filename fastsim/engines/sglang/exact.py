"""The exact test of requests that ignore their stop token, without a radix cache: it walks through everybody's end."""

from fastsim._jit import helper
from fastsim.engines.sglang.batches import add_extend
from fastsim.engines.sglang.budgets import charge, ratio_of, rest
from fastsim.engines.sglang.codes import CONTINUE, NO_TOKEN, NONE, OTHER
from fastsim.engines.sglang.memory import available, ceil_pages, content_tokens


@helper
def place_end(st, s, at, left, held):
    """Put an end at a place of the list."""
    for k in range(st["num_ends"], at, -1):
        s.ends.left[k] = s.ends.left[k - 1]
        s.lists.end_held[k] = s.lists.end_held[k - 1]
    s.ends.left[at] = left
    s.lists.end_held[at] = held
    st["num_ends"] += 1


@helper
def tokens_left(st, s, i):
    """Tokens until request `i` ends, as far as they are reserved (float)."""
    return s.req.limit[i] * ratio_of(st, s, i) - s.req.generated[i]


@helper
def add_behind_equals(st, s, i):
    """The first list is sorted by the tokens left, stable."""
    left = tokens_left(st, s, i)
    if left > 0:
        at = st["num_ends"]
        while at > 0 and s.ends.left[at - 1] > left:
            at -= 1
        place_end(st, s, at, left, content_tokens(s, i))


@helper
def first_ends(st, s, i):
    """The list at the first test of a pass: request `i`, everybody running, those admitted so far."""
    st["num_ends"] = 0
    add_behind_equals(st, s, i)
    for k in range(st["num_running"]):
        add_behind_equals(st, s, s.lists.running[k])
    slot = st["batch"]
    first = slot * st["num_requests"]
    for k in range(s.batches.num_extends[slot]):
        add_behind_equals(st, s, s.batches.extend[first + k])


@helper
def add_later_end(st, s, i):
    """At later tests: before the first end that does not come earlier, or, without one, before the last."""
    left = tokens_left(st, s, i)
    if left <= 0:
        return
    at = 0
    while at < st["num_ends"] and s.ends.left[at] < left:
        at += 1
    if at == st["num_ends"]:
        at = max(at - 1, 0)
    place_end(st, s, at, left, content_tokens(s, i))


@helper
def try_exactly(cfg, st, s, i):
    """Admit request `i` if the pool holds until everybody's end."""
    tokens = content_tokens(s, i) - s.req.prefix[i]
    need = ceil_pages(cfg, tokens) + cfg["page_size"]
    now = available(st) - st["taken"]
    if need > now or need > rest(st):
        return NO_TOKEN
    if st["num_ends"] == NONE:
        first_ends(st, s, i)
    else:
        add_later_end(st, s, i)
    freed = 0
    for k in range(st["num_ends"]):
        alive = st["num_ends"] - k
        if now - need + freed - s.ends.left[k] * alive <= alive:
            return NO_TOKEN
        freed += s.lists.end_held[k]
    if cfg["chunks"] == 0 or tokens <= st["chunk_left"]:
        charge(cfg, st, tokens, min(s.req.limit[i], cfg["clip_max_new_tokens"]))
        add_extend(st, s, i, tokens)
    elif st["chunk_left"] <= 0:
        return OTHER
    else:
        tokens = st["chunk_left"]
        charge(cfg, st, tokens, 0)
        add_extend(st, s, i, tokens)
        st["new_chunked"] = i
    return CONTINUE
