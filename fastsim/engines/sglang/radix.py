"""Walks through the radix tree: match, split, insert. Positions are multiples of the page size."""

from fastsim._jit import helper
from fastsim.engines.heap import heap_remove
from fastsim.engines.sglang.codes import NONE
from fastsim.engines.sglang.content import common_tokens, page_key
from fastsim.engines.sglang.tree import ROOT, add_leaf, find_child, hang, new_node, tick, touch, unhang


@helper
def split(cfg, st, s, node, position):
    """Split `node` at a position; returns the upper half, a new node."""
    t = s.tree
    upper = new_node(st, s, t.source[node], t.start[node], position)
    if upper == NONE:
        return node
    unhang(s, node)
    hang(s, upper, t.parent[node], t.key[node])
    t.locks[upper] = t.locks[node]
    t.children[upper] = 1
    t.start[node] = position
    hang(s, node, upper, page_key(s, t.source[node], position + cfg["page_size"]))
    touch(s, node, tick(st))
    return upper


@helper
def end_of_match(cfg, s, i, node, limit):
    """Position, at most `limit`, up to which whole pages of request `i` are those of `node`."""
    t = s.tree
    return common_tokens(s, i, t.source[node], min(limit, t.end[node])) // cfg["page_size"] * cfg["page_size"]


@helper
def match(cfg, st, s, i, tokens):
    """Longest prefix of the first `tokens` tokens of request `i` in the tree: sets `hit` and `hit_node`."""
    size = cfg["page_size"]
    limit = tokens // size * size
    node = ROOT
    hit = 0
    while hit < limit:
        child = find_child(s, node, page_key(s, i, hit + size))
        if child == NONE:
            break
        hit = end_of_match(cfg, s, i, child, limit)
        if hit < s.tree.end[child]:
            node = split(cfg, st, s, child, hit)
            break
        node = child
    st["hit"] = hit
    st["hit_node"] = node
    now = tick(st)
    while node != ROOT:
        touch(s, node, now)
        node = s.tree.parent[node]


@helper
def insert(cfg, st, s, i, tokens):
    """Put the first `tokens` tokens of request `i`, whole pages, in: `hit` were there, `hit_node` is where they end."""
    size = cfg["page_size"]
    node = ROOT
    there = 0
    while there < tokens:
        child = find_child(s, node, page_key(s, i, there + size))
        if child == NONE:
            break
        touch(s, child, tick(st))
        there = end_of_match(cfg, s, i, child, tokens)
        if there < s.tree.end[child]:
            child = split(cfg, st, s, child, there)
        node = child
    st["hit"] = there
    if there < tokens:
        leaf = new_node(st, s, i, there, tokens)
        if leaf == NONE:
            return
        if s.leaves.place[node] != NONE:
            heap_remove(s.leaves, node)  # no leaf any more
        hang(s, leaf, node, page_key(s, i, there + size))
        s.tree.children[node] += 1
        st["evictable"] += tokens - there
        add_leaf(s, leaf)
        node = leaf
    st["hit_node"] = node
