"""Block tables: what a step asks of the pool, taking it, and giving back what a group no longer needs."""

from fastsim._jit import helper, inlined
from fastsim.engines.vllm.groups.codes import DENSE, GroupKind
from fastsim.engines.vllm.groups.hashing import hash_blocks, next_hash
from fastsim.engines.vllm.groups.pool import (
    forget_content,
    key_of,
    release_block,
    remember_content,
    share_block,
    take_block,
)
from fastsim.engines.vllm.state import NONE

NEVER_NEEDED = 2**31 - 1


@inlined
def ceil_div(a, b):
    """The quotient, rounded up."""
    return (a + b - 1) // b


@inlined
def skipped_tokens(s, g, computed):
    """Leading tokens that group `g` no longer needs once `computed` have been computed."""
    kind = s.grp.kind[g]
    if kind == GroupKind.FULL:
        return 0
    if kind == GroupKind.SLIDING:
        return max(0, computed - s.grp.parameter[g] + 1)
    if kind == GroupKind.CHUNKED:
        return computed // s.grp.parameter[g] * s.grp.parameter[g]
    return max(0, computed - 1)


@inlined
def _first_skip(s, g, entries):
    """The least number of computed tokens for which `entries` leading entries are no longer needed."""
    tokens = entries * s.grp.block_size[g]
    kind = s.grp.kind[g]
    if kind == GroupKind.FULL:
        return NEVER_NEEDED
    if kind == GroupKind.SLIDING:
        return tokens + s.grp.parameter[g] - 1
    if kind == GroupKind.CHUNKED:
        return ceil_div(tokens, s.grp.parameter[g]) * s.grp.parameter[g]
    return tokens + 1


@inlined
def slots_of(s, tokens):
    """Tokens for which there must be room: the drafter writes ahead."""
    return min(tokens + s.cfg["lookahead"], s.cfg["max_model_len"])


# --- What a step asks for -------------------------------------------------------------------------------------------


@helper
def position_of(s, g, tokens):
    """The last block boundary of group `g` before the last of `tokens`."""
    return max((tokens - 1) // s.grp.block_size[g] * s.grp.block_size[g], 0)


@helper
def can_checkpoint(s, g, start, end, position):
    """Whether a chunk from `start` to `end` can leave the state at `position`."""
    b = s.grp.block_size[g]
    return (
        s.grp.checkpoint[g] != 0
        and start % b == 0
        and ceil_div(end, b) - 2 > (start - 1) // b
        and start + b <= position
        and start < position
        and position < end
    )


@helper
def writes_checkpoint(s, i, j, start, end):
    """Whether this step takes one more block for the state at the last boundary before `end`."""
    g = s.cfg["first_group"] + j
    whole = 0
    if s.cfg["retention"] == 0:
        whole = max(s.wl.prompt_tokens[i], s.req.num_tokens[i] - 1)
    if end < whole or not can_checkpoint(s, g, start, end, position_of(s, g, end)):
        return 0
    q = ceil_div(end, s.grp.block_size[g]) - 2
    if q < 0:
        return 0
    row = s.req.row[i]
    if row == NONE:
        return 1
    place = row * s.cfg["num_groups"] + j
    size = s.tab.length[place]
    if q >= size or s.tab.entries[row * s.cfg["row_width"] + s.grp.offset[g] + q] == NONE:
        return 1
    return 1 if s.tab.allocated[place] and size - s.grp.spec_blocks[g] <= q else 0


@helper
def blocks_needed(s, i, tokens, slots, start, end, capped):
    """New blocks for a running request, or for a waiting one on top of its hits, that is to have room for `slots`.

    `tokens` without what the drafter writes ahead. `capped`: as the gate asks.
    """
    total = 0
    row = s.req.row[i]
    for j in range(s.cfg["num_groups"]):
        g = s.cfg["first_group"] + j
        size = s.tab.hit_length[j] if row == NONE else s.tab.length[row * s.cfg["num_groups"] + j]
        block_size = s.grp.block_size[g]
        if s.grp.kind[g] == GroupKind.ALIGNED:
            spec = s.grp.spec_blocks[g]
            new = ceil_div(tokens, block_size) + spec - size
            if new > 0:
                fresh = row == NONE or not s.tab.allocated[row * s.cfg["num_groups"] + j]
                new = min(new, 1 + spec if fresh else 1)
            total += new + writes_checkpoint(s, i, j, start, end)
        else:
            required = ceil_div(slots, block_size) + s.grp.spec_blocks[g]
            if capped:
                required = min(required, s.grp.cap[g])
            total += max(required - size, 0)
    return total


@helper
def count_evictable(s):
    """Hits that sit in the free list: they are about to leave it."""
    count = 0
    for j in range(s.cfg["num_groups"]):
        offset = s.grp.offset[s.cfg["first_group"] + j]
        for q in range(s.tab.hit_from[j], s.tab.hit_length[j]):
            if s.pool.references[s.tab.hits[offset + q]] == 0:
                count += 1
    return count


@helper
def hits_state_of_this_step(s):
    """Whether a hit is a state that this very step computes: nobody can start from it yet."""
    for j in range(s.cfg["num_groups"]):
        g = s.cfg["first_group"] + j
        length = s.tab.hit_length[j]
        if s.grp.kind[g] == GroupKind.ALIGNED and length > 0:
            block = s.tab.hits[s.grp.offset[g] + length - 1]
            if s.pool.hashed_in[s.pool.key[block]] == s.st["call"]:
                return True
    return False


# --- Taking ---------------------------------------------------------------------------------------------------------


@helper
def open_tables(s, i):
    """A row of empty tables for request `i`."""
    s.st["rows_free"] -= 1
    row = s.tab.free_rows[s.st["rows_free"]]
    s.req.row[i] = row
    s.req.num_blocks[i] = 0
    for place in range(row * s.cfg["num_groups"], (row + 1) * s.cfg["num_groups"]):
        s.tab.length[place] = 0
        s.tab.gone[place] = 0
        s.tab.live[place] = 0
        s.tab.hashed[place] = 0
        s.tab.allocated[place] = 0


@helper
def take_hits(s, i):
    """Put the hits into the tables of request `i`, group by group."""
    row = s.req.row[i]
    for j in range(s.cfg["num_groups"]):
        length = s.tab.hit_length[j]
        if length == 0:
            continue
        place = row * s.cfg["num_groups"] + j
        offset = s.grp.offset[s.cfg["first_group"] + j]
        entries = row * s.cfg["row_width"] + offset
        first = s.tab.hit_from[j]
        for q in range(first):
            s.tab.entries[entries + q] = NONE
        for q in range(first, length):
            share_block(s, s.tab.hits[offset + q])
            s.tab.entries[entries + q] = s.tab.hits[offset + q]
        s.tab.length[place] = length
        s.tab.gone[place] = first
        s.tab.live[place] = length - first
        s.tab.hashed[place] = length
        s.req.num_blocks[i] += length - first


@helper
def take_slots(s, i, start, end):
    """New blocks for request `i`, group by group; hash at once what the tokens of this step will fill."""
    slots = slots_of(s, end)
    row = s.req.row[i]
    checkpoints = False
    for j in range(s.cfg["num_groups"]):
        g = s.cfg["first_group"] + j
        place = row * s.cfg["num_groups"] + j
        if s.grp.kind[g] == GroupKind.ALIGNED:
            extra = writes_checkpoint(s, i, j, start, end)
            s.tab.checkpoint[j] = extra
            checkpoints = checkpoints or extra > 0
            _grow_aligned(s, i, g, place, row, end, extra)
            continue
        size = s.tab.length[place]
        required = ceil_div(slots, s.grp.block_size[g]) + s.grp.spec_blocks[g]
        new = required - size
        if new <= 0:
            continue
        if s.cfg["enable_prefix_caching"]:
            entries = row * s.cfg["row_width"] + s.grp.offset[g]
            for q in range(size, required):
                s.tab.entries[entries + q] = take_block(s)
        else:
            s.st["free"] -= new
        s.tab.length[place] = required
        s.tab.live[place] += new
        s.req.num_blocks[i] += new
    if s.cfg["enable_prefix_caching"]:
        hash_blocks(s, i, min(end, s.req.num_tokens[i]))
        if checkpoints:
            _keep_checkpoints(s, i, end)
    note_quiet(s, i)


@helper
def _grow_aligned(s, i, g, place, row, end, extra):
    """One block for the running state (and the speculative ones the first time); NULL between it and the last one."""
    entries = row * s.cfg["row_width"] + s.grp.offset[g]
    spec = s.grp.spec_blocks[g]
    before = s.tab.length[place]
    required = ceil_div(end, s.grp.block_size[g]) + spec
    if required > before:
        padded = required - spec - 1 - extra
        size = before
        while size < padded:
            s.tab.entries[entries + size] = NONE
            size += 1
        if s.tab.allocated[place]:
            for q in range(max(before - spec, 0), before):
                if q < padded:
                    s.tab.entries[entries + size] = s.tab.entries[entries + q]
                    s.tab.entries[entries + q] = NONE
                    size += 1
        new = required - size
        while size < required:
            s.tab.entries[entries + size] = take_block(s)
            size += 1
        s.tab.length[place] = size
        s.tab.live[place] += max(new, 0)
        s.req.num_blocks[i] += max(new, 0)
    s.tab.allocated[place] = 1


@helper
def _keep_checkpoints(s, i, end):
    """A state written from inside a chunk stays for a prompt's end, `retention` or a junction; else it is forgotten."""
    row = s.req.row[i]
    for j in range(s.cfg["num_groups"]):
        g = s.cfg["first_group"] + j
        if s.grp.kind[g] != GroupKind.ALIGNED or not s.tab.checkpoint[j]:
            continue
        position = position_of(s, g, end)
        q = position // s.grp.block_size[g] - 1
        block = s.tab.entries[row * s.cfg["row_width"] + s.grp.offset[g] + q]
        if block == NONE:  # drafts span the boundary, and the table was long enough without a block for it
            continue
        blocks = s.cfg["retention"] // s.grp.block_size[g]
        keeps = (
            s.cfg["retention"] == DENSE
            or position == position_of(s, g, s.wl.prompt_tokens[i])
            or position == s.req.junction[i]
            or (blocks > 0 and position // s.grp.block_size[g] % blocks == 0)
        )
        if not keeps:
            forget_content(s, block)
        elif s.pool.key[block] == NONE:
            remember_content(s, block, key_of(s, i, j, q))


@helper
def note_quiet(s, i):
    """Until when the steps of request `i` change nothing in its tables."""
    row = s.req.row[i]
    start = NEVER_NEEDED
    end = NEVER_NEEDED
    hashes = NEVER_NEEDED
    for j in range(s.cfg["num_groups"]):
        g = s.cfg["first_group"] + j
        place = row * s.cfg["num_groups"] + j
        start = min(start, _first_skip(s, g, s.tab.gone[place] + 1))
        room = (s.tab.length[place] - s.grp.spec_blocks[g]) * s.grp.block_size[g]
        if s.grp.kind[g] != GroupKind.ALIGNED and room < s.cfg["max_model_len"]:
            room -= s.cfg["lookahead"]
        end = min(end, room)
        if s.cfg["enable_prefix_caching"]:
            hashes = min(hashes, next_hash(s, g, s.tab.hashed[place]))
    s.req.quiet_start[i] = start
    s.req.quiet_end[i] = min(end, hashes - 1)
    s.req.hash_at[i] = hashes


# --- Giving back ----------------------------------------------------------------------------------------------------


@helper
def evict_skipped(s, i, computed):
    """Give back what no group of request `i` needs once `computed` tokens have been computed."""
    computed = min(computed, s.cfg["max_model_len"])
    row = s.req.row[i]
    for j in range(s.cfg["num_groups"]):
        g = s.cfg["first_group"] + j
        place = row * s.cfg["num_groups"] + j
        last = min(skipped_tokens(s, g, computed) // s.grp.block_size[g], s.tab.length[place])
        first = s.tab.gone[place]
        if last <= first:
            continue
        freed = _clear_entries(s, row * s.cfg["row_width"] + s.grp.offset[g], first, last)
        s.tab.gone[place] = last
        s.tab.live[place] -= freed
        s.req.num_blocks[i] -= freed


@helper
def _clear_entries(s, entries, first, last):
    """Give the blocks of entries first .. last - 1 back, the last one first. Returns how many there were."""
    if not s.cfg["enable_prefix_caching"]:
        s.st["free"] += last - first
        return last - first
    freed = 0
    for q in range(last - 1, first - 1, -1):
        block = s.tab.entries[entries + q]
        if block != NONE:
            release_block(s, block)
            s.tab.entries[entries + q] = NONE
            freed += 1
    return freed


@helper
def free_tables(s, i):
    """Give everything back, group by group, and the row with it. Nothing if the request has none."""
    row = s.req.row[i]
    if row == NONE:
        return
    for j in range(s.cfg["num_groups"]):
        g = s.cfg["first_group"] + j
        place = row * s.cfg["num_groups"] + j
        _clear_entries(s, row * s.cfg["row_width"] + s.grp.offset[g], s.tab.gone[place], s.tab.length[place])
    s.req.num_blocks[i] = 0
    s.req.row[i] = NONE
    s.tab.free_rows[s.st["rows_free"]] = row
    s.st["rows_free"] += 1


# --- Estimates ------------------------------------------------------------------------------------------------------


@helper
def most_blocks(s, tokens):
    """Blocks at most held by a request of so many tokens, drafts and what the drafter writes ahead included."""
    if s.cfg["k"] > 0:
        tokens = min(tokens + s.cfg["k"] + s.cfg["lookahead"], s.cfg["max_model_len"])
    total = 0
    for j in range(s.cfg["num_groups"]):
        g = s.cfg["first_group"] + j
        blocks = ceil_div(tokens, s.grp.block_size[g])
        if s.grp.kind[g] == GroupKind.ALIGNED:
            blocks = min(blocks, 2)
        total += min(blocks + s.grp.spec_blocks[g], s.grp.cap[g])
    return total


@helper
def _held_blocks(s, computed, slots):
    """Blocks held by a request with `computed` tokens that has room for `slots`."""
    total = 0
    for j in range(s.cfg["num_groups"]):
        g = s.cfg["first_group"] + j
        if s.grp.kind[g] >= GroupKind.STATE:
            total += 1 + s.grp.spec_blocks[g]
        else:
            b = s.grp.block_size[g]
            total += ceil_div(slots, b) - skipped_tokens(s, g, computed) // b
    return total


@helper
def least_blocks(s, i):
    """Blocks without which request `i` cannot run, even alone and with nothing cached.

    Those of the gate, of each chunk of its prompt, and of the step that computes its last token but one.
    """
    prompt = s.wl.prompt_tokens[i]
    total = min(prompt + s.wl.output_tokens[i], s.cfg["max_model_len"])
    least = _held_blocks(s, total - 2, slots_of(s, total - 1))
    if s.cfg["scheduler_reserve_full_isl"]:
        whole = 0
        for j in range(s.cfg["num_groups"]):
            g = s.cfg["first_group"] + j
            b = s.grp.block_size[g]
            if s.grp.kind[g] >= GroupKind.STATE:
                whole += 1 + s.grp.spec_blocks[g]
            else:
                whole += min(ceil_div(prompt, b), s.grp.cap[g])
        least = max(least, whole)
    chunk = min(s.cfg["max_num_scheduled_tokens"], s.cfg["max_num_batched_tokens"])
    start = 0
    while start < prompt:
        end = min(start + chunk, prompt)
        least = max(least, _held_blocks(s, start, slots_of(s, end)))
        start = end
    return least
