"""Budgets of one prefill pass: tokens of the pool, of the batch and of the chunk."""

from fastsim._jit import helper
from fastsim.engines.sglang.codes import CONTINUE, NO_LIMIT, NO_TOKEN, NONE, OTHER
from fastsim.engines.sglang.memory import available, ceil_pages


@helper
def future_tokens(cfg, st, s, i):
    """What a running request may still generate, as admission counts it."""
    left = min(s.req.limit[i] - s.req.generated[i], cfg["clip_max_new_tokens"])
    return left * ratio_of(st, s, i)


@helper
def ratio_of(st, s, i):
    """Share of its future tokens that is reserved for a request."""
    return 1.0 if s.wl.ignore_eos[i] else st["ratio"]


@helper
def open_budgets(cfg, st, s):
    """What the pass may take."""
    mixed = st["num_running"] if cfg["mixes"] else 0
    st["input_left"] = cfg["max_prefill_tokens"] - mixed
    st["chunk_left"] = cfg["chunked_prefill_size"] - mixed if cfg["chunks"] else NO_LIMIT
    st["taken"] = mixed
    future = 0.0
    for k in range(st["num_running"]):
        future += future_tokens(cfg, st, s, s.lists.running[k])
    st["reserved"] = mixed + future
    st["continued"] = 0
    st["new_chunked"] = NONE
    st["num_ends"] = NONE


@helper
def rest(st):
    """Tokens of the pool that are not reserved for anybody (float)."""
    return available(st) - st["reserved"]


@helper
def budget_state(st):
    """Whether anything is left for another request."""
    if rest(st) <= 0 or available(st) - st["taken"] <= 0:
        return NO_TOKEN
    if st["input_left"] <= 0 or st["chunk_left"] <= 0:
        return OTHER
    return CONTINUE


@helper
def charge(cfg, st, tokens, reserve):
    """Take `tokens` of prompt and a reserve for what will be generated."""
    whole = ceil_pages(cfg, tokens)
    st["reserved"] += whole + cfg["page_size"] + reserve
    st["taken"] += whole + cfg["page_size"]
    st["input_left"] -= whole
    if cfg["chunks"]:
        st["chunk_left"] -= whole
