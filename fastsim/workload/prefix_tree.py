"""Prefixes that extend one another: chains of content blocks turned into a tree of prefix groups."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.errors import InputError

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


class PrefixTree(NamedTuple):
    """Prefix groups as a tree.

    ==============  =====  ======  ====================  ==============================================================
    array           dtype  unit    shape                 meaning
    ==============  =====  ======  ====================  ==============================================================
    parent          int32  index   (num_groups,)         group whose prefix this one extends; -1: none; below its own
    start_tokens    int32  tokens  (num_groups,)         where its own tokens start: what it takes over from its parent
    ==============  =====  ======  ====================  ==============================================================
    """

    parent: Int32Array
    start_tokens: Int32Array

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return len(self.parent)

    @property
    def is_flat(self) -> bool:
        """Whether no group extends another."""
        return bool((self.parent < 0).all())

    def end_tokens(self, own: Int32Array) -> Int32Array:
        """Longest prefix taken from each group: by its own users (`own`, 0: none), or up to where a child starts."""
        ends = own.copy()
        for group in np.flatnonzero(self.parent >= 0)[::-1].tolist():  # children have higher numbers than parents
            if ends[group] > 0:
                parent = self.parent[group]
                ends[parent] = max(ends[parent], self.start_tokens[group])
        return ends


def flat_tree(count: int) -> PrefixTree:
    """`count` groups that stand alone."""
    return _frozen(np.full(count, -1, np.int32), np.zeros(count, np.int32))


def check_tree(tree: PrefixTree, highest: int) -> PrefixTree:
    """The tree, as read-only int32 arrays.

    Raises
    ------
    InputError
        When a group used has no entry, a parent does not come before its child, or tokens do not start further on.
    """
    parent, start = np.asarray(tree.parent, np.int32), np.asarray(tree.start_tokens, np.int32)
    if parent.shape != start.shape or len(parent) <= highest:
        raise InputError(
            f"workload: groups has arrays of shapes {parent.shape} and {start.shape}, "
            f"but one entry for each of {highest + 1} prefix groups was expected"
        )
    index = np.arange(len(parent))
    before = np.where(parent >= 0, start[np.maximum(parent, 0)], -1)
    wrong = (parent < -1) | (parent >= index) | (start <= before) | ((parent < 0) & (start != 0))
    if wrong.any():
        group = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f"workload: prefix group {group} has parent {parent[group]} and starts at token {start[group]}, but a "
            "parent with a smaller number and an earlier start was expected (-1 and 0 for a group that extends none)"
        )
    return _frozen(parent, start)


class Grouped(NamedTuple):
    """`group` (-1: none) and shared `tokens` of each request, int32 of shape (count,), and the tree of groups."""

    group: Int32Array
    tokens: Int32Array
    tree: PrefixTree


def groups_of_chains(ids: Int64Array, ends: Int64Array, lengths: Sequence[int] | Int64Array, block: int) -> Grouped:
    """Prefix groups of requests whose prompts are given as chains of content ids, one for each `block` tokens.

    Two prompts share content as long as their chains are equal from the start. Content that only one request has
    forms no group.

    Parameters
    ----------
    ids
        All chains, one after the other, int64 of shape (sum of their lengths,).
    ends
        Where each request's chain ends in `ids`, int64 of shape (count,).
    lengths
        Prompt tokens of each request, shape (count,); the last block may be partial.
    block
        Tokens of a block.
    """
    count = len(ends)
    starts = np.concatenate([[0], ends[:-1]]) if count else ends
    sizes = ends - starts
    leaf = np.full(count, -1, np.int64)  # group so far
    depth = np.zeros(count, np.int64)  # shared blocks so far
    parents: list[Int64Array] = []
    group_starts: list[Int64Array] = []
    users = np.zeros(0, np.int64)  # by group
    alive = np.flatnonzero(sizes > 0)
    level = num_groups = 0
    while len(alive):
        here = ids[starts[alive] + level]
        order = np.lexsort((here, leaf[alive]))
        new = np.ones(len(alive), bool)
        new[1:] = np.diff(here[order]) != 0
        new[1:] |= np.diff(leaf[alive][order]) != 0
        node_of = np.empty(len(alive), np.int64)
        node_of[order] = np.cumsum(new) - 1
        node_users = np.bincount(node_of)
        before = np.full(len(node_users), -1, np.int64)
        before[node_of] = leaf[alive]
        shared = node_users > 1
        # A node with all users of the group before it continues that group
        same = shared & (before >= 0)
        same[same] = users[before[same]] == node_users[same]
        fresh = np.flatnonzero(shared & ~same)
        group = np.where(same, before, -1)
        group[fresh] = num_groups + np.arange(len(fresh))
        parents.append(before[fresh])
        group_starts.append(np.full(len(fresh), level * block))
        users = np.concatenate([users, node_users[fresh]])
        num_groups += len(fresh)
        stays = shared[node_of]
        alive, node_of = alive[stays], node_of[stays]
        leaf[alive] = group[node_of]
        depth[alive] = level + 1
        level += 1
        alive = alive[sizes[alive] > level]
    tokens = np.minimum(depth * block, np.asarray(lengths, np.int64))
    tree = _frozen(_joined(parents), _joined(group_starts))
    return Grouped(leaf.astype(np.int32), tokens.astype(np.int32), tree)


def pruned(grouped: Grouped) -> Grouped:
    """The same prefixes without the groups that fewer than two requests use, after requests were left out."""
    group, tokens, tree = grouped
    users = np.bincount(group[group >= 0], minlength=tree.num_groups)
    for child in np.flatnonzero(tree.parent >= 0)[::-1].tolist():
        users[tree.parent[child]] += users[child]
    # Where each group's users belong: itself, or the nearest ancestor with two users
    home = np.arange(tree.num_groups)
    for child in np.flatnonzero(users < 2).tolist():
        home[child] = -1 if tree.parent[child] < 0 else home[tree.parent[child]]
    limit = np.full(tree.num_groups, np.iinfo(np.int32).max, np.int64)  # tokens that still count, by old group
    for child in np.flatnonzero(users < 2).tolist():
        parent = tree.parent[child]
        limit[child] = 0 if parent < 0 else min(tree.start_tokens[child], limit[parent])
    kept = np.flatnonzero(users >= 2)
    number = np.full(tree.num_groups + 1, -1, np.int64)
    number[kept] = np.arange(len(kept))
    has = group >= 0
    new_group = np.where(has, number[home[group * has]] if tree.num_groups else -1, -1)
    new_tokens = np.where(has, np.minimum(tokens, limit[group * has]) if tree.num_groups else 0, 0)
    parent = np.where(tree.parent[kept] < 0, -1, number[tree.parent[kept]])
    return Grouped(
        new_group.astype(np.int32),
        new_tokens.astype(np.int32),
        _frozen(parent.astype(np.int32), tree.start_tokens[kept]),
    )


def _joined(parts: list[Int64Array]) -> Int32Array:
    return np.concatenate(parts).astype(np.int32) if parts else np.zeros(0, np.int32)


def _frozen(parent: Int32Array, start_tokens: Int32Array) -> PrefixTree:
    tree = PrefixTree(np.ascontiguousarray(parent), np.ascontiguousarray(start_tokens))
    for array in tree:
        array.flags.writeable = False
    return tree
