"""KV pages: a page holds `block_size` positions in every depth plane and costs `planes` blocks.

Pages are merely counted, except shareable prompt pages under prefix caching, which have an identity, a holder count and
an age. Free blocks include what evicting idle cached pages would free.
"""

from fastsim._jit import helper
from fastsim.engines.rlt.codes import NONE
from fastsim.engines.rlt.queues import clear, pop, push, remove


@helper
def pages_for(cfg, tokens):
    """Pages that hold `tokens` positions."""
    return (tokens + cfg["block_size"] - 1) // cfg["block_size"]


@helper
def required_blocks(cfg, tokens):
    """Blocks that hold `tokens` positions in all depth planes."""
    return pages_for(cfg, tokens) * cfg["planes"]


@helper
def free_blocks(cfg, st):
    """Blocks a claim can count on."""
    return cfg["num_blocks"] - cfg["planes"] * (st["live_pages"] - st["idle_cached_pages"])


@helper
def shareable_pages(wl, i):
    """Prompt pages of request `i` that may be shared: those before the page with its last prompt token."""
    return wl.key_start[i + 1] - wl.key_start[i]


@helper
def reset_pages(cfg, st, s):
    """All pages free, nothing cached."""
    st["live_pages"] = 0
    st["idle_cached_pages"] = 0
    st["cached_pages"] = 0
    st["unused_pages"] = 0
    if cfg["prefix_caching"]:
        clear(s.lru)
        count = min(s.pages.unused.shape[0], cfg["num_blocks"] // cfg["planes"])
        for page in range(count):
            s.pages.unused[page] = count - 1 - page
            s.pages.key[page] = NONE
        st["unused_pages"] = count
        for key in range(s.pages.page_of_key.shape[0]):
            s.pages.page_of_key[key] = NONE


@helper
def evict_oldest(st, s):
    """Drop the oldest cache entry. A page still held stays with its holders and frees nothing."""
    page = pop(s.lru, 0)
    s.pages.page_of_key[s.pages.key[page]] = NONE
    s.pages.key[page] = NONE
    st["cached_pages"] -= 1
    if s.pages.holders[page] == 0:
        st["idle_cached_pages"] -= 1
        st["live_pages"] -= 1
        s.pages.unused[st["unused_pages"]] = page
        st["unused_pages"] += 1


@helper
def claim_pages(cfg, st, s, i, count):
    """Give request `i` `count` more pages, evicting as needed; False, and nothing evicted, when they are not there."""
    need = count * cfg["planes"]
    if need > free_blocks(cfg, st):
        return False
    if cfg["prefix_caching"]:
        while need > cfg["num_blocks"] - cfg["planes"] * st["live_pages"]:
            evict_oldest(st, s)
        base = s.wl.key_start[i]
        last = min(s.req.held_pages[i] + count, shareable_pages(s.wl, i))
        for k in range(s.req.held_pages[i], last):
            st["unused_pages"] -= 1
            page = s.pages.unused[st["unused_pages"]]
            s.pages.holders[page] = 1
            s.pages.owned[base + k] = page
    st["live_pages"] += count
    s.req.held_pages[i] += count
    return True


@helper
def release_pages(cfg, st, s, i):
    """Request `i` gives all its pages back. Cached ones stay until they are evicted."""
    held = s.req.held_pages[i]
    s.req.held_pages[i] = 0
    st["live_pages"] -= held
    if cfg["prefix_caching"]:
        base = s.wl.key_start[i]
        for k in range(min(held, shareable_pages(s.wl, i))):
            page = s.pages.owned[base + k]
            s.pages.holders[page] -= 1
            if s.pages.holders[page] > 0:
                st["live_pages"] += 1
            elif s.pages.key[page] != NONE:
                st["live_pages"] += 1
                st["idle_cached_pages"] += 1
            else:
                s.pages.unused[st["unused_pages"]] = page
                st["unused_pages"] += 1


@helper
def count_hits(s, i):
    """(leading prompt pages of request `i` that are cached, how many of them only the cache keeps)."""
    base = s.wl.key_start[i]
    hits = 0
    idle = 0
    for k in range(shareable_pages(s.wl, i)):
        page = s.pages.page_of_key[s.wl.page_keys[base + k]]
        if page == NONE:
            break
        hits += 1
        if s.pages.holders[page] == 0:
            idle += 1
    return hits, idle


@helper
def pin_hits(st, s, i, hits):
    """Request `i`, which holds nothing yet, takes its first `hits` pages from the cache; they become the youngest."""
    base = s.wl.key_start[i]
    for k in range(hits):
        page = s.pages.page_of_key[s.wl.page_keys[base + k]]
        if s.pages.holders[page] == 0:
            st["idle_cached_pages"] -= 1
        s.pages.holders[page] += 1
        s.pages.owned[base + k] = page
        remove(s.lru, 0, page)
        push(s.lru, 0, page)
    s.req.held_pages[i] = hits


@helper
def register_prefix(cfg, st, s, i, tokens):
    """Cache the shareable pages among the first `tokens` prompt tokens of request `i` whose prefix is not cached."""
    base = s.wl.key_start[i]
    for k in range(min(tokens // cfg["block_size"], shareable_pages(s.wl, i))):
        key = s.wl.page_keys[base + k]
        if s.pages.page_of_key[key] == NONE:
            page = s.pages.owned[base + k]
            s.pages.page_of_key[key] = page
            s.pages.key[page] = key
            push(s.lru, 0, page)
            st["cached_pages"] += 1
