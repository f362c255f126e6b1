"""The free list of blocks as runs of content: an end to put at, an end to take from (see `state.Blocks`)."""

from fastsim._jit import helper, inlined
from fastsim.engines.vllm.state import NONE

ANONYMOUS = -1
SHARED = -2
UNUSED = -3


@helper
def new_node(st, blk):
    """A node that no run uses."""
    node = st["node_free"]
    if node != NONE:
        st["node_free"] = blk.next[node]
    else:
        node = st["node_used"]
        st["node_used"] = node + 1
    blk.sibling[node] = NONE
    return node


@helper
def drop_node(st, blk, node):
    """Give a node back."""
    blk.owner[node] = UNUSED
    blk.next[node] = st["node_free"]
    st["node_free"] = node


@helper
def unlink(st, blk, node):
    """Take a run out of the free list."""
    before = blk.prev[node]
    after = blk.next[node]
    if before == NONE:
        st["free_head"] = after
    else:
        blk.next[before] = after
    if after == NONE:
        st["free_tail"] = before
    else:
        blk.prev[after] = before


@helper
def link_after(st, blk, before, node):
    """Put `node` behind `before` (NONE: at the head)."""
    after = st["free_head"] if before == NONE else blk.next[before]
    blk.prev[node] = before
    blk.next[node] = after
    if before == NONE:
        st["free_head"] = node
    else:
        blk.next[before] = node
    if after == NONE:
        st["free_tail"] = node
    else:
        blk.prev[after] = node


@helper
def push_anonymous(st, blk, count, at_tail):
    """Put `count` blocks that nobody can hit at an end of the free list."""
    if count == 0:
        return
    end = st["free_tail"] if at_tail else st["free_head"]
    if end != NONE and blk.owner[end] == ANONYMOUS:
        blk.length[end] += count
        return
    node = new_node(st, blk)
    blk.owner[node] = ANONYMOUS
    blk.length[node] = count
    link_after(st, blk, end if at_tail else NONE, node)


@helper
def forget_run(req, blk, node):
    """Take a run of own content out of its request's list."""
    i = blk.owner[node]
    if req.cached_runs[i] == node:
        req.cached_runs[i] = blk.sibling[node]
        return
    other = req.cached_runs[i]
    while blk.sibling[other] != node:
        other = blk.sibling[other]
    blk.sibling[other] = blk.sibling[node]


@helper
def forget_copy(blk, copy):
    """Take a copy of shared content out of its slot's list."""
    slot = blk.last[copy]
    before = NONE
    other = blk.first_copy[slot]
    while other != copy:
        before = other
        other = blk.sibling[other]
    after = blk.sibling[copy]
    if before == NONE:
        blk.first_copy[slot] = after
    else:
        blk.sibling[before] = after
    if blk.last_copy[slot] == copy:
        blk.last_copy[slot] = before


@inlined
def take_blocks(cfg, st, req, blk, count):
    """Take `count` blocks from the head of the free list; what they carried can no longer be hit."""
    st["free"] -= count
    if not cfg["enable_prefix_caching"]:
        return
    while count > 0:
        node = st["free_head"]
        length = blk.length[node]
        if length > count:
            blk.length[node] = length - count
            if blk.owner[node] >= 0:
                blk.last[node] -= count
            return
        count -= length
        unlink(st, blk, node)
        if blk.owner[node] >= 0:
            forget_run(req, blk, node)
        elif blk.owner[node] == SHARED:
            forget_copy(blk, node)
        drop_node(st, blk, node)
