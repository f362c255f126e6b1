"""How many blocks tokens take, and the free list as runs of content: two ends to put at and one to take from."""

from fastsim._jit import helper, inlined
from fastsim.engines.vllm.state import NONE

ANONYMOUS = -1
SHARED = -2
UNUSED = -3


@inlined
def full_blocks(s, tokens):
    """Blocks that so many tokens fill: a shift where it can be, as a division costs as much as the rest of an event."""
    if s.cfg["block_shift"] >= 0:
        return tokens >> s.cfg["block_shift"]
    return tokens // s.cfg["block_size"]


@inlined
def blocks_for(s, tokens):
    """Blocks that hold so many tokens."""
    return full_blocks(s, tokens + s.cfg["block_size"] - 1)


@inlined
def lane_of(s, offset):
    """The lane of a decoder whose C is `offset` more than the clock shows: it needs a block when the clock is there."""
    if s.cfg["block_shift"] >= 0:
        return -offset & (s.cfg["block_size"] - 1)
    return -offset % s.cfg["block_size"]


@helper
def new_node(s):
    """A node that no run uses."""
    node = s.st["node_free"]
    if node != NONE:
        s.st["node_free"] = s.blk.next[node]
    else:
        node = s.st["node_used"]
        s.st["node_used"] = node + 1
    s.blk.sibling[node] = NONE
    return node


@helper
def drop_node(s, node):
    """Give a node back."""
    s.blk.owner[node] = UNUSED
    s.blk.next[node] = s.st["node_free"]
    s.st["node_free"] = node


@helper
def unlink(s, node):
    """Take a run out of the free list."""
    before = s.blk.prev[node]
    after = s.blk.next[node]
    if before == NONE:
        s.st["free_head"] = after
    else:
        s.blk.next[before] = after
    if after == NONE:
        s.st["free_tail"] = before
    else:
        s.blk.prev[after] = before


@helper
def link_after(s, before, node):
    """Put `node` behind `before` (NONE: at the head)."""
    after = s.st["free_head"] if before == NONE else s.blk.next[before]
    s.blk.prev[node] = before
    s.blk.next[node] = after
    if before == NONE:
        s.st["free_head"] = node
    else:
        s.blk.next[before] = node
    if after == NONE:
        s.st["free_tail"] = node
    else:
        s.blk.prev[after] = node


@helper
def push_anonymous(s, count, at_tail):
    """Put `count` blocks that nobody can hit at an end of the free list."""
    if count == 0:
        return
    end = s.st["free_tail"] if at_tail else s.st["free_head"]
    if end != NONE and s.blk.owner[end] == ANONYMOUS:
        s.blk.length[end] += count
        return
    node = new_node(s)
    s.blk.owner[node] = ANONYMOUS
    s.blk.length[node] = count
    link_after(s, end if at_tail else NONE, node)


@helper
def forget_run(s, node):
    """Take a run of own content out of its request's list."""
    i = s.blk.owner[node]
    if s.req.cached_runs[i] == node:
        s.req.cached_runs[i] = s.blk.sibling[node]
        return
    other = s.req.cached_runs[i]
    while s.blk.sibling[other] != node:
        other = s.blk.sibling[other]
    s.blk.sibling[other] = s.blk.sibling[node]


@helper
def forget_copy(s, copy):
    """Take a copy of shared content out of its slot's list."""
    slot = s.blk.last[copy]
    before = NONE
    other = s.blk.first_copy[slot]
    while other != copy:
        before = other
        other = s.blk.sibling[other]
    after = s.blk.sibling[copy]
    if before == NONE:
        s.blk.first_copy[slot] = after
    else:
        s.blk.sibling[before] = after
    if s.blk.last_copy[slot] == copy:
        s.blk.last_copy[slot] = before


@inlined
def take_blocks(s, count):
    """Take `count` blocks from the head of the free list; what they carried can no longer be hit."""
    s.st["free"] -= count
    if not s.cfg["enable_prefix_caching"]:
        return
    while count > 0:
        node = s.st["free_head"]
        length = s.blk.length[node]
        if length > count:
            s.blk.length[node] = length - count
            if s.blk.owner[node] >= 0:
                s.blk.last[node] -= count
            return
        count -= length
        unlink(s, node)
        if s.blk.owner[node] >= 0:
            forget_run(s, node)
        elif s.blk.owner[node] == SHARED:
            forget_copy(s, node)
        drop_node(s, node)
