"""The paged KV block allocator: by counts when prefix caching is off, by runs of content when it is on.

Rules (vLLM 0.33.0 and 0.16.0): blocks are taken from the head of the free list, where they lose their hash. A freed
request gives its blocks back in reverse; those without a hash go to the head of the list (0.16.0: to the tail), those
with one to the tail, so that they can be hit until they are taken.
"""

from fastsim._jit import helper
from fastsim.engines.vllm.free_list import SHARED, drop_node, forget_run, link_after, new_node, push_anonymous, unlink
from fastsim.engines.vllm.state import NONE

# --- Content --------------------------------------------------------------------------------------------------------


@helper
def slot_of(cfg, wl, blk, i, block):
    """Slot of a shared block of request `i`: the group of its last token says whose content it is."""
    last_token = (block + 1) * cfg["block_size"] - 1
    group = wl.prefix_group[i]
    while wl.group_start_tokens[group] > last_token:
        group = wl.group_parent[group]
    return blk.group_slot[group] + block - blk.group_first_block[group]


@helper
def _oldest_run(blk, first, block):
    """The oldest run in a request's list that covers `block`, or NONE."""
    found = NONE
    node = first
    while node != NONE:
        if (
            block <= blk.last[node]
            and block > blk.last[node] - blk.length[node]
            and (found == NONE or blk.age[node] < blk.age[found])
        ):
            found = node
        node = blk.sibling[node]
    return found


@helper
def find_hits(cfg, wl, req, blk, i):
    """Longest run of cached blocks from block 0 of a waiting request, and how many of them are in the free list.

    Only full blocks count, and at least one token is always computed again: (T - 1) // block_size at most.
    """
    limit = (req.num_tokens[i] - 1) // cfg["block_size"]
    shared = min(req.shared_blocks[i], limit)
    hits = 0
    evictable = 0
    while hits < shared:
        copy = blk.first_copy[slot_of(cfg, wl, blk, i, hits)]
        if copy == NONE:
            return hits, evictable
        if blk.references[copy] == 0:
            evictable += 1
        hits += 1
    first = req.cached_runs[i]
    while hits < limit:
        node = _oldest_run(blk, first, hits)
        if node == NONE:
            break
        end = min(blk.last[node] + 1, limit)
        if blk.sibling[first] != NONE:
            end = hits + 1  # several runs: the oldest copy is chosen block by block
        evictable += end - hits
        hits = end
    return hits, evictable


@helper
def _hold_copy(req, blk, i, block, copy):
    blk.held_copies[req.holding_row[i] * _row_blocks(blk) + block] = copy


@helper
def held_copy(req, blk, i, block):
    """The copy that running request `i` holds of its shared block number `block`."""
    return blk.held_copies[req.holding_row[i] * _row_blocks(blk) + block]


@helper
def _row_blocks(blk):
    rows = blk.free_rows.shape[0]
    return blk.held_copies.shape[0] // rows if rows > 0 else 0


@helper
def take_hits(cfg, st, wl, req, blk, i, hits):
    """Let request `i` hold its first `hits` blocks, which are all cached."""
    shared = min(req.shared_blocks[i], hits)
    for block in range(shared):
        copy = blk.first_copy[slot_of(cfg, wl, blk, i, block)]
        if blk.references[copy] == 0:
            unlink(st, blk, copy)
            blk.length[copy] = 0
            st["free"] -= 1
        blk.references[copy] += 1
        _hold_copy(req, blk, i, block, copy)
    block = shared
    while block < hits:
        node = _oldest_run(blk, req.cached_runs[i], block)
        end = min(blk.last[node] + 1, hits)
        if blk.sibling[req.cached_runs[i]] != NONE:
            end = block + 1
        _take_from_run(st, req, blk, i, node, block, end)
        st["free"] -= end - block
        block = end
    if req.cached_runs[i] == NONE:
        _drop_held_runs(st, req, blk, i)  # no second copy is left, so ages no longer matter


@helper
def _take_from_run(st, req, blk, i, node, start, end):
    """Cut blocks start .. end - 1 out of a run; what is left keeps its place in the free list."""
    low = blk.last[node] - blk.length[node] + 1
    high = blk.last[node]
    held = new_node(st, blk)
    blk.owner[held] = i
    blk.last[held] = end - 1
    blk.length[held] = end - start
    blk.age[held] = blk.age[node]
    blk.sibling[held] = req.held_runs[i]
    req.held_runs[i] = held
    if start > low:
        if end <= high:
            # The part below goes behind the part above: a run is evicted from its highest block
            below = new_node(st, blk)
            blk.owner[below] = i
            blk.age[below] = blk.age[node]
            blk.last[below] = start - 1
            blk.length[below] = start - low
            blk.sibling[below] = req.cached_runs[i]
            req.cached_runs[i] = below
            link_after(st, blk, node, below)
            blk.length[node] = high - end + 1
        else:
            blk.last[node] = start - 1
            blk.length[node] = start - low
    elif end <= high:
        blk.length[node] = high - end + 1
    else:
        unlink(st, blk, node)
        forget_run(req, blk, node)
        drop_node(st, blk, node)


@helper
def _drop_held_runs(st, req, blk, i):
    node = req.held_runs[i]
    while node != NONE:
        after = blk.sibling[node]
        drop_node(st, blk, node)
        node = after
    req.held_runs[i] = NONE


@helper
def cache_blocks(cfg, st, wl, req, blk, i, full_blocks):
    """Hash the held blocks up to `full_blocks`: from now on others can hit the shared ones."""
    cached = req.num_cached_blocks[i]
    if full_blocks <= cached:
        return
    shared = min(req.shared_blocks[i], full_blocks)
    for block in range(cached, shared):
        slot = slot_of(cfg, wl, blk, i, block)
        copy = new_node(st, blk)
        blk.owner[copy] = SHARED
        blk.last[copy] = slot
        blk.length[copy] = 0
        blk.references[copy] = 1
        if blk.last_copy[slot] == NONE:
            blk.first_copy[slot] = copy
        else:
            blk.sibling[blk.last_copy[slot]] = copy
        blk.last_copy[slot] = copy
        _hold_copy(req, blk, i, block, copy)
    req.num_cached_blocks[i] = full_blocks


# --- Giving back ----------------------------------------------------------------------------------------------------


@helper
def free_blocks(cfg, st, req, blk, i, hittable):
    """Give back every block of request `i`, last block first. `hittable`: it may come again and hit its own content."""
    held = req.num_blocks[i]
    if not cfg["enable_prefix_caching"]:
        st["free"] += held
        req.num_blocks[i] = 0
        return
    cached = req.num_cached_blocks[i]
    push_anonymous(st, blk, held - cached, cfg["freed_to_tail"])
    shared = min(req.shared_blocks[i], cached)
    _free_own(st, req, blk, i, shared, cached, hittable)
    st["free"] += held - shared
    _free_shared(st, req, blk, i, shared)
    req.num_blocks[i] = 0
    req.num_cached_blocks[i] = 0


@helper
def _free_own(st, req, blk, i, start, end, hittable):
    """Append own content start .. end - 1 at the tail, highest block first, split where its age changes."""
    while end > start:
        low = start
        age = req.life[i]
        highest = _highest_held_run(req, blk, i)
        if highest != NONE:
            if blk.last[highest] == end - 1:
                low = end - blk.length[highest]
                age = blk.age[highest]
                _drop_held_run(st, req, blk, i, highest)
            else:
                low = blk.last[highest] + 1
        if hittable:
            run = new_node(st, blk)
            blk.owner[run] = i
            blk.last[run] = end - 1
            blk.length[run] = end - low
            blk.age[run] = age
            blk.sibling[run] = req.cached_runs[i]
            req.cached_runs[i] = run
            link_after(st, blk, st["free_tail"], run)
        else:
            push_anonymous(st, blk, end - low, 1)
        end = low


@helper
def _highest_held_run(req, blk, i):
    """The run of held own content of an older age that lies highest: it is, or bounds, the next piece to free."""
    highest = req.held_runs[i]
    node = highest
    while node != NONE:
        if blk.last[node] > blk.last[highest]:
            highest = node
        node = blk.sibling[node]
    return highest


@helper
def _drop_held_run(st, req, blk, i, run):
    if req.held_runs[i] == run:
        req.held_runs[i] = blk.sibling[run]
    else:
        node = req.held_runs[i]
        while blk.sibling[node] != run:
            node = blk.sibling[node]
        blk.sibling[node] = blk.sibling[run]
    drop_node(st, blk, run)


@helper
def _free_shared(st, req, blk, i, shared):
    row = req.holding_row[i]
    if row == NONE:
        return
    base = row * _row_blocks(blk)
    for block in range(shared - 1, -1, -1):
        copy = blk.held_copies[base + block]
        blk.references[copy] -= 1
        if blk.references[copy] == 0:
            blk.length[copy] = 1
            link_after(st, blk, st["free_tail"], copy)
            st["free"] += 1
    req.holding_row[i] = NONE
    blk.free_rows[st["rows_free"]] = row
    st["rows_free"] += 1
