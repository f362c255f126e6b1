"""The waiting queue: a list under first come first served, a heap under every other order.

Protected requests (preempted `boost_after` times) come before all others, by (arrival, index): they are always kept in
the heap, with the least key. Under first come first served the list holds everybody else.
"""

import numpy as np

from fastsim._jit import helper, inlined
from fastsim._jit.indirect import ask
from fastsim.engines.vllm.codes import QueueOrder
from fastsim.engines.vllm.recorder import EventKind, note
from fastsim.engines.vllm.state import NONE

# --- A binary heap over (queue_key, arrival, index), with places so that members can be removed ---------------------


@helper
def precedes(s, a, b):
    """Whether `a` stands before `b` in key order."""
    if s.req.queue_key[a] != s.req.queue_key[b]:
        return s.req.queue_key[a] < s.req.queue_key[b]
    if s.log.arrival_us[a] != s.log.arrival_us[b]:
        return s.log.arrival_us[a] < s.log.arrival_us[b]
    return a < b


@helper
def _sift_up(s, heap, place, i):
    while place > 0:
        parent = (place - 1) >> 1
        other = heap[parent]
        if not precedes(s, i, other):
            break
        heap[place] = other
        s.req.heap_place[other] = place
        place = parent
    heap[place] = i
    s.req.heap_place[i] = place


@helper
def _sift_down(s, heap, size, place, i):
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and precedes(s, heap[child + 1], heap[child]):
            child += 1
        other = heap[child]
        if not precedes(s, other, i):
            break
        heap[place] = other
        s.req.heap_place[other] = place
        place = child
    heap[place] = i
    s.req.heap_place[i] = place


@helper
def _heap_push(s, heap, i):
    size = s.st["heap_size"]
    s.st["heap_size"] = size + 1
    _sift_up(s, heap, size, i)


@helper
def _heap_remove(s, heap, i):
    place = s.req.heap_place[i]
    s.req.heap_place[i] = NONE
    size = s.st["heap_size"] - 1
    s.st["heap_size"] = size
    if place == size:
        return
    moved = heap[size]
    if place > 0 and precedes(s, moved, heap[(place - 1) >> 1]):
        _sift_up(s, heap, place, moved)
    else:
        _sift_down(s, heap, size, place, moved)


# --- The list of first come first served ----------------------------------------------------------------------------


@helper
def _list_insert(s, i, at_front):
    if at_front:
        after = s.st["queue_head"]
        s.req.run_prev[i] = NONE
        s.req.run_next[i] = after
        if after == NONE:
            s.st["queue_tail"] = i
        else:
            s.req.run_prev[after] = i
        s.st["queue_head"] = i
    else:
        before = s.st["queue_tail"]
        s.req.run_next[i] = NONE
        s.req.run_prev[i] = before
        if before == NONE:
            s.st["queue_head"] = i
        else:
            s.req.run_next[before] = i
        s.st["queue_tail"] = i


@helper
def _list_remove(s, i):
    before = s.req.run_prev[i]
    after = s.req.run_next[i]
    if before == NONE:
        s.st["queue_head"] = after
    else:
        s.req.run_next[before] = after
    if after == NONE:
        s.st["queue_tail"] = before
    else:
        s.req.run_prev[after] = before


# --- The queue ------------------------------------------------------------------------------------------------------


@helper
def order_key(s, i):
    """What orders the queue, fixed for a request's life (before it is protected), but for a policy file's."""
    order = s.cfg["queue_order"]
    if order == QueueOrder.PRIORITY:
        return float(s.wl.priority[i])
    if order == QueueOrder.SJF:
        return float(s.wl.prompt_tokens[i])
    if order == QueueOrder.AGING:
        return s.wl.priority[i] + s.cfg["aging_per_s"] * (s.log.arrival_us[i] / 1e6)
    if order == QueueOrder.POLICY:
        return ask(s.cfg["policy_queue"], s, i)
    return 0.0


@helper
def compute_keys_anew(s):
    """The keys of everybody who waits may have changed: order the queue by what they are now."""
    size = s.st["heap_size"]
    s.st["heap_size"] = 0
    for place in range(size):
        i = s.q.heap[place]
        if not s.req.protected[i]:
            s.req.queue_key[i] = ask(s.cfg["policy_queue"], s, i)
        _heap_push(s, s.q.heap, i)


@helper
def enqueue(s, i, preempted):
    """Put `i` into the waiting queue: by its key, or (first come first served) at the back; preempted: at the front.

    It has been waiting since `waiting_since_us`, on which its key may depend.
    """
    s.st["waiting"] += 1
    s.st["waiting_prompt_tokens"] += s.wl.prompt_tokens[i]
    s.req.in_heap[i] = s.req.protected[i] or s.cfg["queue_order"] != QueueOrder.FCFS
    if s.req.in_heap[i]:
        s.req.queue_key[i] = -np.inf if s.req.protected[i] else order_key(s, i)
        _heap_push(s, s.q.heap, i)
    else:
        _list_insert(s, i, preempted)
    if s.cfg["record"]:
        note(s, EventKind.QUEUED, i, _count_ahead(s, i), 0, 0, 0)


@helper
def _count_ahead(s, i):
    """How many stand before `i`, those that a scan under way has set aside included."""
    if not s.req.in_heap[i] and s.req.run_prev[i] != NONE:
        return s.st["waiting"] - 1  # at the end of the list
    if not s.req.in_heap[i]:
        return s.st["heap_size"]
    ahead = 0
    for place in range(s.st["heap_size"]):
        ahead += precedes(s, s.q.heap[place], i)
    for place in range(s.st["deferred"]):
        ahead += precedes(s, s.q.deferred[place], i)
    for place in range(s.st["passed_over"]):
        ahead += precedes(s, s.q.deferred[s.q.deferred.shape[0] - 1 - place], i)
    return ahead


@helper
def requeue(s, i):
    """Put `i`, which was at the head and has been taken out, back: by its key, or at the front of the list."""
    s.st["waiting"] += 1
    s.st["waiting_prompt_tokens"] += s.wl.prompt_tokens[i]
    if s.req.in_heap[i]:
        _heap_push(s, s.q.heap, i)
    else:
        _list_insert(s, i, True)


@helper
def dequeue(s, i):
    """Take `i` out of the waiting queue, wherever it stands."""
    s.st["waiting"] -= 1
    s.st["waiting_prompt_tokens"] -= s.wl.prompt_tokens[i]
    if s.req.heap_place[i] != NONE:
        _heap_remove(s, s.q.heap, i)
    else:
        _list_remove(s, i)


@helper
def withdraw(s, i):
    """Take `i` out of the queue for good, and what it has on the host with it."""
    dequeue(s, i)
    s.st["host_blocks"] -= s.req.swapped_blocks[i]
    s.req.swapped_blocks[i] = 0


@inlined
def queue_front(s):
    """The request at the head of the waiting queue, or NONE."""
    if s.st["heap_size"] > 0:
        return s.q.heap[0]
    return s.st["queue_head"]
