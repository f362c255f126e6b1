"""The batch under construction: who is in it, and the KV that it takes."""

from fastsim._jit import helper
from fastsim.engines.sglang.codes import NONE, RUNNING
from fastsim.engines.sglang.memory import ceil_pages, content_tokens
from fastsim.engines.sglang.tree import evict_until


@helper
def open_batch(st, s):
    """An empty batch in the slot that the last one does not use."""
    slot = 1 if st["last"] == 0 else 0
    st["batch"] = slot
    s.batches.num_extends[slot] = 0
    s.batches.num_decodes[slot] = 0
    s.batches.chunked[slot] = NONE
    s.batches.number[slot] = st["num_batches"] + 1


@helper
def add_extend(st, s, i, tokens):
    """Request `i` gets `tokens` of its content computed, behind its prefix."""
    b = s.batches
    slot = st["batch"]
    at = slot * st["num_requests"] + b.num_extends[slot]
    start = s.req.prefix[i]
    ends = start + tokens == content_tokens(s, i)
    b.extend[at] = i
    b.extend_tokens[at] = tokens
    b.extend_start[at] = start
    b.extend_ends[at] = ends
    b.extend_lives[at] = s.req.lives[i]
    b.num_extends[slot] += 1
    s.req.status[i] = RUNNING
    if ends:
        s.req.token_batch[i] = b.number[slot]


@helper
def allocate_prefill(cfg, st, s):
    """KV and slots for the prefill; False: there is not enough, SGLang's process would die."""
    b = s.batches
    slot = st["batch"]
    first = slot * st["num_requests"]
    count = b.num_extends[slot]
    tokens = 0
    for at in range(first, first + count):
        tokens += b.extend_tokens[at]
    evict_until(st, s, tokens if cfg["page_size"] == 1 else tokens + cfg["page_size"] * count)
    for at in range(first, first + count):
        i = b.extend[at]
        if s.req.has_row[i] == 0:
            s.req.has_row[i] = 1
            st["rows_free"] -= 1
        end = s.req.kv[i] + b.extend_tokens[at]
        st["free"] -= ceil_pages(cfg, end) - ceil_pages(cfg, s.req.kv[i])
        s.req.kv[i] = end
        if b.extend_ends[at] == 0:
            s.req.chunk_end[i] = end
    return st["free"] >= 0


@helper
def decode_fits(cfg, st, s):
    """Whether everybody running can decode once more; evicts for it."""
    pages = 0
    for k in range(st["num_running"]):
        if s.req.kv[s.lists.running[k]] % cfg["page_size"] == 0:
            pages += 1
    return evict_until(st, s, pages * cfg["page_size"])


@helper
def add_decodes(cfg, st, s):
    """Everybody running decodes in the batch."""
    b = s.batches
    slot = st["batch"]
    first = slot * st["num_requests"]
    evict_until(st, s, st["num_running"] * cfg["page_size"])
    for k in range(st["num_running"]):
        i = s.lists.running[k]
        if s.req.kv[i] % cfg["page_size"] == 0:
            st["free"] -= cfg["page_size"]
        s.req.kv[i] += 1
        s.req.token_batch[i] = b.number[slot]
        b.decode[first + k] = i
        b.decode_lives[first + k] = s.req.lives[i]
    b.num_decodes[slot] = st["num_running"]


@helper
def drop_certain_ends(cfg, st, s):
    """Under overlap, those whose last token is in flight leave `running`. Whether anybody did."""
    if cfg["disable_overlap_schedule"] or st["last"] == NONE:
        return False
    number = s.batches.number[st["last"]]
    kept = 0
    for k in range(st["num_running"]):
        i = s.lists.running[k]
        if s.req.generated[i] + 1 < s.req.limit[i] or s.req.token_batch[i] != number:
            s.lists.running[kept] = i
            kept += 1
    left = kept < st["num_running"]
    st["num_running"] = kept
    if left:
        st["full"] = 0
    return left
