"""The CPU tier behind the GPU cache: reloads before an allocation, a mirror of every held block after each step.

With it every block has a label and its fill level, because the tier keeps decode blocks too and counts a block that was
claimed whole as full. Quirk D: when reloading improves nothing, the blocks looked up before it are claimed although
reloading may have overwritten them; the chain of keys is then irregular.
"""

from fastsim._jit import helper
from fastsim.engines.blis.blocks import (
    append_block,
    append_to_table,
    cached_prefix,
    claim,
    drop_table,
    nothing_cached,
    prompt_key,
    register,
    take_block,
)
from fastsim.engines.blis.chains import chained_key
from fastsim.engines.blis.codes import NONE
from fastsim.engines.blis.lru import cpu_touch


@helper
def _register_last(cfg, st, s, i):
    """The last block of the table of `i` has become full."""
    b = s.blocks
    last = s.req.table_start[i] + s.req.table_len[i] - 1
    previous = b.key[b.table[last - 1]] if s.req.table_len[i] > 1 else NONE
    label = b.table[last]
    b.filled[label] = cfg["block_size"]
    register(b, label, chained_key(cfg, st, s, i, previous, b.position[label]))


@helper
def _reload(cfg, st, s, i):
    """Bring prompt blocks of `i` back to the tail of the free list, past those just looked up or its own.

    No free block is taken twice. Returns how many were brought back.
    """
    b = s.blocks
    t = s.tier
    known = st["cached"]
    previous = NONE
    if s.req.table_len[i] > known:
        known = s.req.table_len[i]
        previous = b.key[b.table[s.req.table_start[i] + known - 1]]
    elif known > 0:
        previous = b.key[b.cached[known - 1]]
    reloads = 0
    most = st["free"]
    for block in range(known, s.req.prompt_blocks[i]):
        position = block * cfg["block_size"]
        key = chained_key(cfg, st, s, i, previous, position)
        previous = key
        if b.label[key] != NONE:
            continue
        if t.key_node[key] == NONE or reloads == most:
            break
        label = take_block(st, b)
        b.references[label] = 0
        b.filled[label] = cfg["block_size"]
        b.position[label] = position
        register(b, label, key)
        append_block(st, b, label)
        cpu_touch(st, t, t.key_node[key])
        st["transfer_us"] += cfg["block_transfer_us"]
        reloads += 1
    st["reloaded"] += reloads
    return reloads


@helper
def _new_block(st, s, i, position, tokens):
    label = take_block(st, s.blocks)
    s.blocks.position[label] = position
    s.blocks.filled[label] = tokens
    append_to_table(s, i, label)
    st["misses"] += 1


@helper
def last_room(cfg, s, i):
    """Tokens that still fit into the last block of `i`."""
    if s.req.table_len[i] == 0:
        return 0
    b = s.blocks
    return cfg["block_size"] - b.filled[b.table[s.req.table_start[i] + s.req.table_len[i] - 1]]


@helper
def _write_prompt(cfg, st, s, i, start, end):
    """Blocks for prompt tokens start..end-1 from the GPU alone: claim `cached[table_len:]`, then take new ones."""
    b = s.blocks
    block_size = cfg["block_size"]
    room = last_room(cfg, s, i)
    needed = (max(end - start - room, 0) + block_size - 1) // block_size
    claims = 0
    for at in range(s.req.table_len[i], st["cached"]):
        claims += b.references[b.cached[at]] == 0
    if needed + claims > st["free"]:
        return False
    if end == start:
        return True  # quirk B
    for at in range(s.req.table_len[i], st["cached"]):
        claim(st, b, b.cached[at])
        append_to_table(s, i, b.cached[at])
    if room > 0:
        taken = min(room, end - start)
        b.filled[b.table[s.req.table_start[i] + s.req.table_len[i] - 1]] += taken
        start += taken
        if taken == room:
            _register_last(cfg, st, s, i)
    while start < end:
        taken = min(block_size, end - start)
        _new_block(st, s, i, start, taken)
        start += taken
        if taken == block_size:
            _register_last(cfg, st, s, i)
    return True


@helper
def tier_allocate_prompt(cfg, st, s, i, start, end):
    """As `allocate_prompt`, with reloads before it: for every chunk, also of a running request that owns blocks."""
    reloads = _reload(cfg, st, s, i)
    if reloads > 0:
        block_size = cfg["block_size"]
        improved = _cached_again(st, s, i, start // block_size)
        if improved * block_size > start:
            for at in range(s.req.table_len[i], min(improved, (end + block_size - 1) // block_size)):
                claim(st, s.blocks, s.blocks.cached[at])
                append_to_table(s, i, s.blocks.cached[at])
            if improved * block_size >= end:
                return True
            start = improved * block_size
            nothing_cached(st)
    allocated = _write_prompt(cfg, st, s, i, start, end)
    if not allocated and reloads == 0:
        st["tier_failures"] += 1
    return allocated


@helper
def _cached_again(st, s, i, blocks):
    """Look the prefix up once more: the result replaces `cached` only if it is longer than `blocks`."""
    b = s.blocks
    found = 0
    while found < s.req.prompt_blocks[i] and b.label[prompt_key(s, i, found)] != NONE:
        found += 1
    if found > blocks:
        cached_prefix(st, s, i)
    return found


@helper
def tier_allocate_token(cfg, st, s, i, position, clock):
    """As `allocate_token`: a request without a table reloads, which cannot help it but costs time."""
    room = (s.req.lane[i] - clock) % cfg["block_size"]
    if room > 0:
        if room == 1:
            _register_last(cfg, st, s, i)
        return True
    reloads = 0
    if s.req.table_len[i] == 0:
        nothing_cached(st)
        reloads = _reload(cfg, st, s, i)
    if st["free"] == 0:
        if cfg["rollback_leak"]:
            drop_table(s, i, position)
        if reloads == 0:
            st["tier_failures"] += 1
        return False
    _new_block(st, s, i, position, 1)
    return True


@helper
def reset_tier(st, s):
    """An empty tier."""
    s.tier.key_node[:] = NONE
    s.tier.chain_slot[:] = NONE
    st["chains"] = 0
    st["cpu_size"] = 0
    st["cpu_head"] = NONE
    st["cpu_tail"] = NONE
    st["tier_failures"] = 0
    st["transfer_us"] = 0
