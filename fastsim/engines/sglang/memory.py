"""KV tokens of requests: given to the radix tree at a checkpoint, freed at a release."""

from fastsim._jit import helper
from fastsim.engines.sglang.codes import NONE
from fastsim.engines.sglang.radix import insert
from fastsim.engines.sglang.tree import evict_until, lock, unlock


@helper
def ceil_pages(cfg, tokens):
    """Tokens rounded up to whole pages."""
    size = cfg["page_size"]
    return (tokens + size - 1) // size * size


@helper
def available(st):
    """Tokens that are free or could be."""
    return st["free"] + st["evictable"]


@helper
def content_tokens(s, i):
    """Prompt and generated tokens of request `i`."""
    return s.wl.prompt_tokens[i] + s.req.generated[i]


@helper
def checkpoint(cfg, st, s, i, tokens):
    """Give the whole pages of the first `tokens` tokens of request `i` to the tree."""
    size = cfg["page_size"]
    whole = tokens // size * size
    if cfg["disable_radix_cache"] or whole == 0:
        return
    insert(cfg, st, s, i, whole)
    node = st["hit_node"]
    if st["hit"] > s.req.protected[i]:
        st["free"] += st["hit"] - s.req.protected[i]  # its own copies of what was there
    lock(st, s, node)  # before the prompt's end splits it: the lower half stays its node
    prompt = s.wl.prompt_tokens[i] // size * size
    if 0 < prompt < whole:
        insert(cfg, st, s, i, prompt)
    unlock(st, s, s.req.node[i])
    s.req.node[i] = node
    s.req.protected[i] = whole


@helper
def release(cfg, st, s, i):
    """Give the request's own tokens, its lock and its slot back."""
    req = s.req
    req.computed_peak[i] = max(req.computed_peak[i], req.kv[i])
    st["free"] += ceil_pages(cfg, req.kv[i]) - req.protected[i]
    unlock(st, s, req.node[i])
    req.node[i] = NONE
    req.kv[i] = 0
    req.protected[i] = 0
    req.prefix[i] = 0
    req.has_row[i] = 0
    st["rows_free"] += 1


@helper
def put_back(cfg, st, s, i, still_running):
    """Free a running request that goes back to the queue, and make room for those that go on."""
    release(cfg, st, s, i)
    evict_until(st, s, cfg["retract_decode_steps"] * still_running)
    s.req.lives[i] += 1
    s.req.token_batch[i] = NONE
