"""The GPU block cache: free list, keys and tables (see `state`).

Quirk B: a prompt that is cached as a whole is admitted without claiming its blocks.
Quirk C: recycling a block removes its key from the map even when a newer block has registered the same key.
"""

from fastsim._jit import helper
from fastsim.engines.blis.codes import NONE

_CLAIMED = 0


@helper
def prompt_key(s, i, block):
    """Key of a full block of the prompt of `i`, chained regularly from the start."""
    if block < s.req.shared_blocks[i]:
        return s.blocks.group_key[s.wl.prefix_group[i]] + block
    return s.req.key_start[i] + block


@helper
def _forget(b, label):
    """The content of a block is about to be overwritten."""
    key = b.key[label]
    if key != NONE:
        b.label[key] = NONE
        b.key[label] = NONE


@helper
def register(b, label, key):
    """A block has become full: from now on it can be found."""
    b.key[label] = key
    b.label[key] = label


@helper
def take_block(st, b):
    """Take the head of the free list for new content, as a block with a label and one reference."""
    while b.ring[st["ring_head"]] == _CLAIMED:
        st["ring_head"] += 1
    item = b.ring[st["ring_head"]]
    if item > 0:
        label = item - 1
        st["ring_head"] += 1
        _forget(b, label)
    else:
        b.ring[st["ring_head"]] = item + 1
        if st["spare"] > 0:
            st["spare"] -= 1
            label = b.spare[st["spare"]]
        else:
            label = st["labels"]
            st["labels"] += 1
        b.key[label] = NONE
    b.references[label] = 1
    st["free"] -= 1
    return label


@helper
def take_plain(st, b, count):
    """Take `count` blocks from the head of the free list for content that is never looked up."""
    st["free"] -= count
    while count > 0:
        at = st["ring_head"]
        item = b.ring[at]
        if item < 0:
            taken = min(count, -item)
            b.ring[at] = item + taken
            count -= taken
        if item > 0:
            label = item - 1
            _forget(b, label)
            b.spare[st["spare"]] = label
            st["spare"] += 1
            count -= 1
        if item >= 0 or b.ring[at] == 0:
            st["ring_head"] = at + 1


@helper
def _compact(st, b):
    """Move the free list to the start of its ring. Every entry left holds a block, so half of the ring becomes free."""
    to = 0
    for at in range(st["ring_head"], st["ring_tail"]):
        item = b.ring[at]
        if item != _CLAIMED:
            b.ring[to] = item
            if item > 0:
                b.slot[item - 1] = to
            to += 1
    st["ring_head"] = 0
    st["ring_tail"] = to


@helper
def _append(st, b, item):
    if st["ring_tail"] == b.ring.shape[0]:
        _compact(st, b)
    b.ring[st["ring_tail"]] = item
    st["ring_tail"] += 1


@helper
def append_plain(st, b, count):
    """Give back `count` blocks without label."""
    st["free"] += count
    last = st["ring_tail"] - 1
    if last >= st["ring_head"] and b.ring[last] < 0:
        b.ring[last] -= count
    else:
        _append(st, b, -count)


@helper
def append_block(st, b, label):
    """Put a block that nobody holds at the tail of the free list; it keeps its key."""
    _append(st, b, label + 1)
    b.slot[label] = st["ring_tail"] - 1
    st["free"] += 1


@helper
def claim(st, b, label):
    """Add a holder to a cached block, which may be free."""
    if b.references[label] == 0:
        b.ring[b.slot[label]] = _CLAIMED
        st["free"] -= 1
    b.references[label] += 1
    st["hits"] += 1


@helper
def append_to_table(s, i, label):
    """The next block of the table of `i`."""
    s.blocks.table[s.req.table_start[i] + s.req.table_len[i]] = label
    s.req.table_len[i] += 1


@helper
def cached_prefix(st, s, i):
    """Look up the longest cached prefix of the prompt of `i`: its labels in `Blocks.cached`, how many in `cached`."""
    b = s.blocks
    found = 0
    free = 0
    while found < s.req.prompt_blocks[i]:
        label = b.label[prompt_key(s, i, found)]
        if label == NONE:
            break
        b.cached[found] = label
        free += b.references[label] == 0
        found += 1
    st["cached"] = found
    st["cached_free"] = free


@helper
def nothing_cached(st):
    """No prefix is looked up for the allocation to come."""
    st["cached"] = 0
    st["cached_free"] = 0


@helper
def allocate_prompt(cfg, st, s, i, start, end):
    """Blocks for prompt tokens start..end-1 of `i`, all or nothing; the blocks just looked up are claimed first."""
    b = s.blocks
    block_size = cfg["block_size"]
    first = (start + block_size - 1) // block_size
    last = (end + block_size - 1) // block_size
    if last - first + st["cached_free"] > st["free"]:
        return False
    if end == start:
        return True  # quirk B
    for at in range(st["cached"]):
        claim(st, b, b.cached[at])
        append_to_table(s, i, b.cached[at])
    labelled = s.req.prompt_blocks[i]
    full = end // block_size
    if start % block_size > 0 and first <= min(full, labelled):
        register(b, b.table[s.req.table_start[i] + first - 1], prompt_key(s, i, first - 1))
    for block in range(first, min(last, labelled)):
        label = take_block(st, b)
        append_to_table(s, i, label)
        if block < full:
            register(b, label, prompt_key(s, i, block))
    if last > labelled:
        take_plain(st, b, last - max(first, labelled))
    st["misses"] += last - first
    return True


@helper
def allocate_token(cfg, st, s, i, position, phase):
    """A block for output token `position` of `i`, if its last one is full: `phase` is the clock modulo block size."""
    if s.req.lane[i] != phase:
        return True
    if st["free"] == 0:
        if cfg["rollback_leak"]:
            drop_table(s, i, position)
        return False
    take_plain(st, s.blocks, 1)
    st["misses"] += 1
    return True


@helper
def drop_table(s, i, position):
    """The leak: `i` forgets its blocks, which keep their references. Its next block starts at `position`."""
    s.req.table_len[i] = 0
    s.req.plain_start[i] = position


@helper
def release(cfg, st, s, i, tokens):
    """Give back the blocks of `i`, which hold its first `tokens` tokens: last block first, keys kept."""
    b = s.blocks
    if cfg["kv_cpu_blocks"] == 0:
        block_size = cfg["block_size"]
        plain = (tokens - s.req.plain_start[i] + block_size - 1) // block_size
        if plain > 0:
            append_plain(st, b, plain)
    start = s.req.table_start[i]
    for at in range(start + s.req.table_len[i] - 1, start - 1, -1):
        label = b.table[at]
        b.references[label] -= 1
        if b.references[label] == 0:
            append_block(st, b, label)
    s.req.table_len[i] = 0


@helper
def reset_blocks(cfg, st, s):
    """An empty cache, and the layout of tables and keys for this block size."""
    b = s.blocks
    req = s.req
    block_size = cfg["block_size"]
    tiered = cfg["kv_cpu_blocks"] > 0
    tables = 0
    keys = 0
    for i in range(req.table_len.shape[0]):
        prompt_blocks = s.wl.prompt_tokens[i] // block_size
        req.prompt_blocks[i] = prompt_blocks
        req.shared_blocks[i] = s.wl.prefix_tokens[i] // block_size if s.wl.prefix_group[i] != NONE else 0
        req.table_start[i] = tables
        req.key_start[i] = keys
        req.table_len[i] = 0
        req.plain_start[i] = prompt_blocks * block_size
        tables += prompt_blocks
        keys += prompt_blocks
        if tiered:
            # At worst all prompt blocks are claimed, then computed again from a position that is not block-aligned.
            tables += prompt_blocks + s.wl.output_tokens[i] // block_size + 4
            keys += s.wl.output_tokens[i] // block_size + 2
    for group in range(b.group_key.shape[0]):
        b.group_key[group] = keys
        keys += s.wl.group_prefix_tokens[group] // block_size
    b.label[:] = NONE
    st["keys"] = keys
    st["free"] = cfg["total_kv_blocks"]
    b.ring[0] = -cfg["total_kv_blocks"]
    st["ring_head"] = 0
    st["ring_tail"] = 1
    st["labels"] = 0
    st["spare"] = 0
    st["hits"] = 0
    st["misses"] = 0
