"""The shared pool: taking and giving back blocks, and finding them by content.

With prefix caching off a block is a number in `free`, no more.
"""

from fastsim._jit import helper, inlined
from fastsim.engines.vllm.state import NONE


@inlined
def key_of(s, i, j, q):
    """Content of block `q` of request `i` in group `j`: shared if the hash covers shared tokens only."""
    num_groups = s.cfg["num_groups"]
    end = (q + 1) * s.grp.block_size[s.cfg["first_group"] + j] + s.cfg["hash_lookahead"]
    if end > s.req.shared_tokens[i]:
        return s.pool.own_key[i * num_groups + j] + q
    group = s.wl.prefix_group[i]
    while s.wl.group_start_tokens[group] >= end:
        group = s.wl.group_parent[group]
    place = group * num_groups + j
    return s.pool.shared_key[place] + q - s.pool.shared_first[place]


@helper
def _unlink(s, block):
    before = s.pool.prev[block]
    after = s.pool.next[block]
    if before == NONE:
        s.st["free_head"] = after
    else:
        s.pool.next[before] = after
    if after == NONE:
        s.st["free_tail"] = before
    else:
        s.pool.prev[after] = before


@helper
def share_block(s, block):
    """One more request holds a block that was found; it leaves the free list if nobody did."""
    if s.pool.references[block] == 0:
        _unlink(s, block)
        s.st["free"] -= 1
    s.pool.references[block] += 1


@helper
def take_block(s):
    """The block at the head of the free list; what it held can no longer be found."""
    s.st["free"] -= 1
    if s.st["anonymous"] > 0:
        s.st["anonymous"] -= 1
        block = s.pool.stack[s.st["anonymous"]]
    else:
        block = s.st["free_head"]
        _unlink(s, block)
        forget_content(s, block)
        if s.pool.watched[block]:
            s.st["watched_block_taken"] = 1
    s.pool.references[block] = 1
    return block


@helper
def release_block(s, block):
    """A holder gives a block back: to the head of the free list without content, to its tail with."""
    s.pool.references[block] -= 1
    if s.pool.references[block] > 0:
        return
    s.st["free"] += 1
    if s.pool.key[block] == NONE:
        s.pool.stack[s.st["anonymous"]] = block
        s.st["anonymous"] += 1
        return
    tail = s.st["free_tail"]
    s.pool.prev[block] = tail
    s.pool.next[block] = NONE
    if tail == NONE:
        s.st["free_head"] = block
    else:
        s.pool.next[tail] = block
    s.st["free_tail"] = block


@helper
def remember_content(s, block, key):
    """A block is full: it can be found from now on, after those that hold the same."""
    youngest = s.pool.youngest[key]
    s.pool.key[block] = key
    s.pool.same_prev[block] = youngest
    s.pool.same_next[block] = NONE
    if youngest == NONE:
        s.pool.oldest[key] = block
    else:
        s.pool.same_next[youngest] = block
    s.pool.youngest[key] = block
    s.pool.hashed_in[key] = s.st["call"]


@helper
def forget_content(s, block):
    """A block can no longer be found."""
    key = s.pool.key[block]
    if key == NONE:
        return
    older = s.pool.same_prev[block]
    younger = s.pool.same_next[block]
    if older == NONE:
        s.pool.oldest[key] = younger
    else:
        s.pool.same_next[older] = younger
    if younger == NONE:
        s.pool.youngest[key] = older
    else:
        s.pool.same_prev[younger] = older
    s.pool.key[block] = NONE
