"""A binary heap with removal from the middle: waiting requests, events, leaves of a radix tree."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim._jit import helper

NONE = -1
"""Marks what is not in the heap."""

NO_LIMIT = 2**62
"""Key of the first of an empty heap."""


class Heap(NamedTuple):
    """Requests ordered by (key, tie); least first. Arrays of shape (num_requests,) unless said otherwise.

    =====  =====  ===========================================================
    array  dtype  meaning
    =====  =====  ===========================================================
    items  int64  the heap: requests by place
    place  int64  place of each request; -1 not in the heap
    key    int64  by request
    tie    int64  by request; the second key
    size   int64  (1,)
    =====  =====  ===========================================================
    """

    items: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]
    key: npt.NDArray[np.int64]
    tie: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]


def new_heap(num_requests: int) -> Heap:
    """An empty heap over `num_requests` requests."""
    return Heap(**{name: np.zeros(1 if name == "size" else num_requests, np.int64) for name in Heap._fields})


@helper
def heap_reset(h):
    """Empty the heap."""
    h.place[:] = NONE
    h.size[0] = 0


@helper
def _before(h, i, j):
    return h.key[i] < h.key[j] or (h.key[i] == h.key[j] and h.tie[i] < h.tie[j])


@helper
def _sift_up(h, at, i):
    while at > 0:
        parent = (at - 1) >> 1
        j = h.items[parent]
        if not _before(h, i, j):
            break
        h.items[at] = j
        h.place[j] = at
        at = parent
    h.items[at] = i
    h.place[i] = at


@helper
def _sift_down(h, at, i):
    size = h.size[0]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _before(h, h.items[child + 1], h.items[child]):
            child += 1
        j = h.items[child]
        if not _before(h, j, i):
            break
        h.items[at] = j
        h.place[j] = at
        at = child
    h.items[at] = i
    h.place[i] = at


@helper
def heap_push(h, i, key, tie):
    """Add request `i`."""
    h.key[i] = key
    h.tie[i] = tie
    at = h.size[0]
    h.size[0] = at + 1
    _sift_up(h, at, i)


@helper
def heap_remove(h, i):
    """Take request `i` out, wherever it stands."""
    at = h.place[i]
    last = h.size[0] - 1
    h.size[0] = last
    h.place[i] = NONE
    moved = h.items[last]
    if moved == i:
        return
    if at > 0 and _before(h, moved, h.items[(at - 1) >> 1]):
        _sift_up(h, at, moved)
    else:
        _sift_down(h, at, moved)


@helper
def heap_first(h):
    """The least request."""
    return h.items[0]


@helper
def heap_first_key(h):
    """Key of the least request; NO_LIMIT when there is none."""
    return h.key[h.items[0]] if h.size[0] > 0 else NO_LIMIT
