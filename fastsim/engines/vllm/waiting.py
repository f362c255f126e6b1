"""The waiting queue: a list under first come first served, a heap under every other order.

Protected requests (preempted `boost_after` times) come before all others, by (arrival, index): they are always kept in
the heap, with the least key. Under first come first served the list holds everybody else.
"""

import numpy as np

from fastsim._jit import helper, inlined
from fastsim.engines.vllm.codes import QueueOrder
from fastsim.engines.vllm.state import NONE

FCFS = int(QueueOrder.FCFS)
PRIORITY = int(QueueOrder.PRIORITY)
SJF = int(QueueOrder.SJF)
AGING = int(QueueOrder.AGING)


# --- A binary heap over (queue_key, arrival, index), with places so that members can be removed ---------------------


@helper
def precedes(req, log, a, b):
    """Whether `a` stands before `b` in key order."""
    if req.queue_key[a] != req.queue_key[b]:
        return req.queue_key[a] < req.queue_key[b]
    if log.arrival_us[a] != log.arrival_us[b]:
        return log.arrival_us[a] < log.arrival_us[b]
    return a < b


@helper
def _sift_up(req, log, heap, place, i):
    while place > 0:
        parent = (place - 1) >> 1
        other = heap[parent]
        if not precedes(req, log, i, other):
            break
        heap[place] = other
        req.heap_place[other] = place
        place = parent
    heap[place] = i
    req.heap_place[i] = place


@helper
def _sift_down(req, log, heap, size, place, i):
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and precedes(req, log, heap[child + 1], heap[child]):
            child += 1
        other = heap[child]
        if not precedes(req, log, other, i):
            break
        heap[place] = other
        req.heap_place[other] = place
        place = child
    heap[place] = i
    req.heap_place[i] = place


@helper
def _heap_push(st, req, log, heap, i):
    size = st["heap_size"]
    st["heap_size"] = size + 1
    _sift_up(req, log, heap, size, i)


@helper
def _heap_remove(st, req, log, heap, i):
    place = req.heap_place[i]
    req.heap_place[i] = NONE
    size = st["heap_size"] - 1
    st["heap_size"] = size
    if place == size:
        return
    moved = heap[size]
    if place > 0 and precedes(req, log, moved, heap[(place - 1) >> 1]):
        _sift_up(req, log, heap, place, moved)
    else:
        _sift_down(req, log, heap, size, place, moved)


# --- The list of first come first served ----------------------------------------------------------------------------


@helper
def _list_insert(st, req, i, at_front):
    if at_front:
        after = st["queue_head"]
        req.run_prev[i] = NONE
        req.run_next[i] = after
        if after == NONE:
            st["queue_tail"] = i
        else:
            req.run_prev[after] = i
        st["queue_head"] = i
    else:
        before = st["queue_tail"]
        req.run_next[i] = NONE
        req.run_prev[i] = before
        if before == NONE:
            st["queue_head"] = i
        else:
            req.run_next[before] = i
        st["queue_tail"] = i


@helper
def _list_remove(st, req, i):
    before = req.run_prev[i]
    after = req.run_next[i]
    if before == NONE:
        st["queue_head"] = after
    else:
        req.run_next[before] = after
    if after == NONE:
        st["queue_tail"] = before
    else:
        req.run_prev[after] = before


# --- The queue ------------------------------------------------------------------------------------------------------


@helper
def order_key(cfg, wl, log, i):
    """What orders the queue, fixed for a request's life (before it is protected)."""
    order = cfg["queue_order"]
    if order == PRIORITY:
        return float(wl.priority[i])
    if order == SJF:
        return float(wl.prompt_tokens[i])
    if order == AGING:
        return wl.priority[i] + cfg["aging_per_s"] * (log.arrival_us[i] / 1e6)
    return 0.0


@helper
def enqueue(cfg, st, wl, req, q, log, i, preempted):
    """Put `i` into the waiting queue: by its key, or (first come first served) at the back; preempted: at the front."""
    st["waiting"] += 1
    st["waiting_prompt_tokens"] += wl.prompt_tokens[i]
    req.waiting_since_us[i] = st["now_us"]
    req.in_heap[i] = req.protected[i] or cfg["queue_order"] != FCFS
    if req.in_heap[i]:
        req.queue_key[i] = -np.inf if req.protected[i] else order_key(cfg, wl, log, i)
        _heap_push(st, req, log, q.heap, i)
    else:
        _list_insert(st, req, i, preempted)


@helper
def requeue(st, wl, req, q, log, i):
    """Put `i`, which was at the head and has been taken out, back: by its key, or at the front of the list."""
    st["waiting"] += 1
    st["waiting_prompt_tokens"] += wl.prompt_tokens[i]
    if req.in_heap[i]:
        _heap_push(st, req, log, q.heap, i)
    else:
        _list_insert(st, req, i, True)


@helper
def dequeue(st, wl, req, q, log, i):
    """Take `i` out of the waiting queue, wherever it stands."""
    st["waiting"] -= 1
    st["waiting_prompt_tokens"] -= wl.prompt_tokens[i]
    if req.heap_place[i] != NONE:
        _heap_remove(st, req, log, q.heap, i)
    else:
        _list_remove(st, req, i)


@helper
def withdraw(st, wl, req, q, log, i):
    """Take `i` out of the queue for good, and what it has on the host with it."""
    dequeue(st, wl, req, q, log, i)
    st["host_blocks"] -= req.swapped_blocks[i]
    req.swapped_blocks[i] = 0


@inlined
def queue_front(st, q):
    """The request at the head of the waiting queue, or NONE."""
    if st["heap_size"] > 0:
        return q.heap[0]
    return st["queue_head"]
