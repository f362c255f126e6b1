"""The paged KV block allocator: by counts when prefix caching is off, by runs of content when it is on.

Rules (vLLM 0.33.0 and 0.16.0): blocks are taken from the head of the free list, where they lose their hash. A freed
request gives its blocks back in reverse; those without a hash go to the head of the list (0.16.0: to the tail), those
with one to the tail, so that they can be hit until they are taken.
"""

from fastsim._jit import helper
from fastsim.engines.vllm.free_list import (
    SHARED,
    drop_node,
    forget_run,
    full_blocks,
    link_after,
    new_node,
    push_anonymous,
    unlink,
)
from fastsim.engines.vllm.state import NONE

# --- Content --------------------------------------------------------------------------------------------------------


@helper
def slot_of(s, i, block):
    """Slot of a shared block of request `i`: the group of its last token says whose content it is."""
    last_token = (block + 1) * s.cfg["block_size"] - 1
    group = s.wl.prefix_group[i]
    while s.wl.group_start_tokens[group] > last_token:
        group = s.wl.group_parent[group]
    return s.blk.group_slot[group] + block - s.blk.group_first_block[group]


@helper
def _oldest_run(s, first, block):
    """The oldest run in a request's list that covers `block`, or NONE."""
    found = NONE
    node = first
    while node != NONE:
        if (
            block <= s.blk.last[node]
            and block > s.blk.last[node] - s.blk.length[node]
            and (found == NONE or s.blk.age[node] < s.blk.age[found])
        ):
            found = node
        node = s.blk.sibling[node]
    return found


@helper
def find_hits(s, i):
    """Longest run of cached blocks from block 0 of a waiting request, and how many of them are in the free list.

    Only full blocks count, and at least one token is always computed again: (T - 1) // block_size at most.
    """
    limit = full_blocks(s, s.req.num_tokens[i] - 1)
    shared = min(s.req.shared_blocks[i], limit)
    hits = 0
    evictable = 0
    while hits < shared:
        copy = s.blk.first_copy[slot_of(s, i, hits)]
        if copy == NONE:
            return hits, evictable
        if s.blk.references[copy] == 0:
            evictable += 1
        hits += 1
    first = s.req.cached_runs[i]
    while hits < limit:
        node = _oldest_run(s, first, hits)
        if node == NONE:
            break
        end = min(s.blk.last[node] + 1, limit)
        if s.blk.sibling[first] != NONE:
            end = hits + 1  # several runs: the oldest copy is chosen block by block
        evictable += end - hits
        hits = end
    return hits, evictable


@helper
def _hold_copy(s, i, block, copy):
    s.blk.held_copies[s.req.holding_row[i] * _row_blocks(s) + block] = copy


@helper
def held_copy(s, i, block):
    """The copy that running request `i` holds of its shared block number `block`."""
    return s.blk.held_copies[s.req.holding_row[i] * _row_blocks(s) + block]


@helper
def _row_blocks(s):
    rows = s.blk.free_rows.shape[0]
    return s.blk.held_copies.shape[0] // rows if rows > 0 else 0


@helper
def take_hits(s, i, hits):
    """Let request `i` hold its first `hits` blocks, which are all cached."""
    shared = min(s.req.shared_blocks[i], hits)
    for block in range(shared):
        copy = s.blk.first_copy[slot_of(s, i, block)]
        if s.blk.references[copy] == 0:
            unlink(s, copy)
            s.blk.length[copy] = 0
            s.st["free"] -= 1
        s.blk.references[copy] += 1
        _hold_copy(s, i, block, copy)
    block = shared
    while block < hits:
        node = _oldest_run(s, s.req.cached_runs[i], block)
        end = min(s.blk.last[node] + 1, hits)
        if s.blk.sibling[s.req.cached_runs[i]] != NONE:
            end = block + 1
        _take_from_run(s, i, node, block, end)
        s.st["free"] -= end - block
        block = end
    if s.req.cached_runs[i] == NONE:
        _drop_held_runs(s, i)  # no second copy is left, so ages no longer matter


@helper
def _take_from_run(s, i, node, start, end):
    """Cut blocks start .. end - 1 out of a run; what is left keeps its place in the free list."""
    low = s.blk.last[node] - s.blk.length[node] + 1
    high = s.blk.last[node]
    held = new_node(s)
    s.blk.owner[held] = i
    s.blk.last[held] = end - 1
    s.blk.length[held] = end - start
    s.blk.age[held] = s.blk.age[node]
    s.blk.sibling[held] = s.req.held_runs[i]
    s.req.held_runs[i] = held
    if start > low:
        if end <= high:
            # The part below goes behind the part above: a run is evicted from its highest block
            below = new_node(s)
            s.blk.owner[below] = i
            s.blk.age[below] = s.blk.age[node]
            s.blk.last[below] = start - 1
            s.blk.length[below] = start - low
            s.blk.sibling[below] = s.req.cached_runs[i]
            s.req.cached_runs[i] = below
            link_after(s, node, below)
            s.blk.length[node] = high - end + 1
        else:
            s.blk.last[node] = start - 1
            s.blk.length[node] = start - low
    elif end <= high:
        s.blk.length[node] = high - end + 1
    else:
        unlink(s, node)
        forget_run(s, node)
        drop_node(s, node)


@helper
def _drop_held_runs(s, i):
    node = s.req.held_runs[i]
    while node != NONE:
        after = s.blk.sibling[node]
        drop_node(s, node)
        node = after
    s.req.held_runs[i] = NONE


@helper
def cache_blocks(s, i, full_blocks):
    """Hash the held blocks up to `full_blocks`: from now on others can hit the shared ones."""
    cached = s.req.num_cached_blocks[i]
    if full_blocks <= cached:
        return
    shared = min(s.req.shared_blocks[i], full_blocks)
    for block in range(cached, shared):
        slot = slot_of(s, i, block)
        copy = new_node(s)
        s.blk.owner[copy] = SHARED
        s.blk.last[copy] = slot
        s.blk.length[copy] = 0
        s.blk.references[copy] = 1
        if s.blk.last_copy[slot] == NONE:
            s.blk.first_copy[slot] = copy
        else:
            s.blk.sibling[s.blk.last_copy[slot]] = copy
        s.blk.last_copy[slot] = copy
        _hold_copy(s, i, block, copy)
    s.req.num_cached_blocks[i] = full_blocks


# --- Giving back ----------------------------------------------------------------------------------------------------


@helper
def free_blocks(s, i, hittable):
    """Give back every block of request `i`, last block first. `hittable`: it may come again and hit its own content."""
    held = s.req.num_blocks[i]
    if not s.cfg["enable_prefix_caching"]:
        s.st["free"] += held
        s.req.num_blocks[i] = 0
        return
    cached = s.req.num_cached_blocks[i]
    push_anonymous(s, held - cached, s.cfg["freed_to_tail"])
    shared = min(s.req.shared_blocks[i], cached)
    _free_own(s, i, shared, cached, hittable)
    s.st["free"] += held - shared
    _free_shared(s, i, shared)
    s.req.num_blocks[i] = 0
    s.req.num_cached_blocks[i] = 0


@helper
def _free_own(s, i, start, end, hittable):
    """Append own content start .. end - 1 at the tail, highest block first, split where its age changes."""
    while end > start:
        low = start
        age = s.req.life[i]
        highest = _highest_held_run(s, i)
        if highest != NONE:
            if s.blk.last[highest] == end - 1:
                low = end - s.blk.length[highest]
                age = s.blk.age[highest]
                _drop_held_run(s, i, highest)
            else:
                low = s.blk.last[highest] + 1
        if hittable:
            run = new_node(s)
            s.blk.owner[run] = i
            s.blk.last[run] = end - 1
            s.blk.length[run] = end - low
            s.blk.age[run] = age
            s.blk.sibling[run] = s.req.cached_runs[i]
            s.req.cached_runs[i] = run
            link_after(s, s.st["free_tail"], run)
        else:
            push_anonymous(s, end - low, 1)
        end = low


@helper
def _highest_held_run(s, i):
    """The run of held own content of an older age that lies highest: it is, or bounds, the next piece to free."""
    highest = s.req.held_runs[i]
    node = highest
    while node != NONE:
        if s.blk.last[node] > s.blk.last[highest]:
            highest = node
        node = s.blk.sibling[node]
    return highest


@helper
def _drop_held_run(s, i, run):
    if s.req.held_runs[i] == run:
        s.req.held_runs[i] = s.blk.sibling[run]
    else:
        node = s.req.held_runs[i]
        while s.blk.sibling[node] != run:
            node = s.blk.sibling[node]
        s.blk.sibling[node] = s.blk.sibling[run]
    drop_node(s, run)


@helper
def _free_shared(s, i, shared):
    row = s.req.holding_row[i]
    if row == NONE:
        return
    base = row * _row_blocks(s)
    for block in range(shared - 1, -1, -1):
        copy = s.blk.held_copies[base + block]
        s.blk.references[copy] -= 1
        if s.blk.references[copy] == 0:
            s.blk.length[copy] = 1
            link_after(s, s.st["free_tail"], copy)
            s.st["free"] += 1
    s.req.holding_row[i] = NONE
    s.blk.free_rows[s.st["rows_free"]] = row
    s.st["rows_free"] += 1
