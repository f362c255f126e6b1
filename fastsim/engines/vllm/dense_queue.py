"""The waiting queue of the dense loop.

First come first served: a stack of preempted requests on top of the arrivals not yet admitted. By priority: a binary
heap of ranks, the places of requests in the order (priority, arrival, index), which never changes.
"""

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import Status
from fastsim.engines.vllm.codes import QueueOrder


@inlined
def is_by_rank(s):
    """Whether the queue is ordered by rank, and the greatest rank is preempted."""
    return s.cfg["queue_order"] == QueueOrder.PRIORITY


@inlined
def let_in(s, until_us):
    """Everybody who has arrived by `until_us` is in the queue."""
    cursor = s.st["arrival_cursor"]
    while cursor < s.st["own_arrivals"]:
        i = s.q.arrivals[cursor]
        if s.log.arrival_us[i] > until_us:
            break
        s.req.waiting_since_us[i] = s.log.arrival_us[i]
        s.log.status[i] = Status.WAITING
        s.st["alive_tokens"] += s.wl.prompt_tokens[i] + s.wl.output_tokens[i]
        s.st["waiting"] += 1
        if is_by_rank(s):
            _push_rank(s, s.wl.priority_rank[i])
        cursor += 1
    s.st["arrival_cursor"] = cursor


@inlined
def queue_again(s, i):
    """Preempted request `i` is in the queue: at its front, or by its rank."""
    s.st["waiting"] += 1
    if is_by_rank(s):
        _push_rank(s, s.wl.priority_rank[i])
    else:
        s.q.heap[s.st["heap_size"]] = i
        s.st["heap_size"] += 1


@inlined
def head_of_queue(s):
    """Who would be admitted next."""
    size = s.st["heap_size"]
    if is_by_rank(s):
        return s.wl.priority_order[s.q.heap[0]]
    return s.q.heap[size - 1] if size > 0 else s.q.arrivals[s.st["admitted_arrivals"]]


@inlined
def take_head(s):
    """The head of the queue leaves it."""
    s.st["waiting"] -= 1
    if is_by_rank(s):
        _pop_rank(s)
    elif s.st["heap_size"] > 0:
        s.st["heap_size"] -= 1
    else:
        s.st["admitted_arrivals"] += 1


@helper
def _push_rank(s, rank):
    place = s.st["heap_size"]
    s.st["heap_size"] = place + 1
    while place > 0 and s.q.heap[(place - 1) >> 1] > rank:
        s.q.heap[place] = s.q.heap[(place - 1) >> 1]
        place = (place - 1) >> 1
    s.q.heap[place] = rank


@helper
def _pop_rank(s):
    size = s.st["heap_size"] - 1
    s.st["heap_size"] = size
    rank = s.q.heap[size]
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and s.q.heap[child + 1] < s.q.heap[child]:
            child += 1
        if s.q.heap[child] > rank:
            break
        s.q.heap[place] = s.q.heap[child]
        place = child
    s.q.heap[place] = rank
