"""Nodes of the radix tree: a hash table from (parent, first page) to child, locks, and unlocked leaves by last use."""

from fastsim._jit import helper
from fastsim.engines.heap import heap_first, heap_push, heap_remove, heap_reset
from fastsim.engines.sglang.codes import NONE

ROOT = 0


@helper
def reset_tree(st, s):
    """An empty tree."""
    t = s.tree
    t.bucket[:] = NONE
    heap_reset(s.leaves)
    t.children[ROOT] = 0
    t.locks[ROOT] = 0
    t.end[ROOT] = 0
    t.used[ROOT] = 0
    st["num_nodes"] = 1
    st["unused_node"] = NONE
    st["uses"] = 0
    st["evictable"] = 0
    st["locked"] = 0


@helper
def tick(st):
    """The next time of use."""
    st["uses"] += 1
    return st["uses"]


@helper
def bucket_of(t, parent, key):
    """Bucket of the child of `parent` whose first page is `key`."""
    mixed = parent * 1000003 + key * 7919
    return (mixed ^ (mixed >> 15)) & (t.bucket.shape[0] - 1)


@helper
def find_child(s, parent, key):
    """The child of `parent` whose first page is `key`; NONE."""
    t = s.tree
    node = t.bucket[bucket_of(t, parent, key)]
    while node != NONE and (t.parent[node] != parent or t.key[node] != key):
        node = t.next[node]
    return node


@helper
def hang(s, node, parent, key):
    """Put `node` below `parent`."""
    t = s.tree
    t.parent[node] = parent
    t.key[node] = key
    bucket = bucket_of(t, parent, key)
    t.next[node] = t.bucket[bucket]
    t.bucket[bucket] = node


@helper
def unhang(s, node):
    """Take `node` out of the table."""
    t = s.tree
    bucket = bucket_of(t, t.parent[node], t.key[node])
    other = t.bucket[bucket]
    if other == node:
        t.bucket[bucket] = t.next[node]
        return
    while t.next[other] != node:
        other = t.next[other]
    t.next[other] = t.next[node]


@helper
def new_node(st, s, source, start, end):
    """A node that hangs nowhere yet. Without room for it `more_room` is set, and the run is worth nothing."""
    t = s.tree
    node = st["unused_node"]
    if node != NONE:
        st["unused_node"] = t.next[node]
    elif st["num_nodes"] < t.source.shape[0]:
        node = st["num_nodes"]
        st["num_nodes"] += 1
    else:
        st["more_room"] = 1
        return NONE
    t.source[node] = source
    t.start[node] = start
    t.end[node] = end
    t.children[node] = 0
    t.locks[node] = 0
    t.used[node] = tick(st)
    return node


@helper
def touch(s, node, time):
    """Set the time of last use."""
    s.tree.used[node] = time
    if s.leaves.place[node] != NONE:
        heap_remove(s.leaves, node)
        heap_push(s.leaves, node, time, node)


@helper
def add_leaf(s, node):
    """If `node` is an unlocked leaf, it may be evicted from now on."""
    t = s.tree
    if node != ROOT and t.children[node] == 0 and t.locks[node] == 0:
        heap_push(s.leaves, node, t.used[node], node)


@helper
def lock(st, s, node):
    """Hold `node` and all above it."""
    t = s.tree
    while node > ROOT:
        if t.locks[node] == 0:
            size = t.end[node] - t.start[node]
            st["evictable"] -= size
            st["locked"] += size
            if s.leaves.place[node] != NONE:
                heap_remove(s.leaves, node)
        t.locks[node] += 1
        node = t.parent[node]


@helper
def unlock(st, s, node):
    """Let `node` and all above it go."""
    t = s.tree
    while node > ROOT:
        t.locks[node] -= 1
        if t.locks[node] == 0:
            size = t.end[node] - t.start[node]
            st["evictable"] += size
            st["locked"] -= size
            add_leaf(s, node)
        node = t.parent[node]


@helper
def evict_until(st, s, tokens):
    """Evict leaves, least recently used first, until so many tokens are free. Whether they are."""
    t = s.tree
    while st["free"] < tokens and s.leaves.size[0] > 0:
        node = heap_first(s.leaves)
        heap_remove(s.leaves, node)
        unhang(s, node)
        size = t.end[node] - t.start[node]
        st["free"] += size
        st["evictable"] -= size
        parent = t.parent[node]
        t.children[parent] -= 1
        add_leaf(s, parent)
        t.next[node] = st["unused_node"]
        st["unused_node"] = node
    return st["free"] >= tokens
