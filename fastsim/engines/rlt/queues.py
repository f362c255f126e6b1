"""The queues: linked FIFOs of the stages, the waiting queue with its bounded scan, the list of active requests."""

from fastsim._jit import helper
from fastsim.engines.rlt.codes import NONE, PRIORITY

# --- Linked FIFOs ---


@helper
def push(links, q, x):
    """Append `x` to FIFO `q`."""
    last = links.tail[q]
    links.prev[x] = last
    links.next[x] = NONE
    if last == NONE:
        links.head[q] = x
    else:
        links.next[last] = x
    links.tail[q] = x
    links.size[q] += 1


@helper
def remove(links, q, x):
    """Take `x` out of FIFO `q`."""
    before = links.prev[x]
    after = links.next[x]
    if before == NONE:
        links.head[q] = after
    else:
        links.next[before] = after
    if after == NONE:
        links.tail[q] = before
    else:
        links.prev[after] = before
    links.size[q] -= 1


@helper
def pop(links, q):
    """Take the first element of FIFO `q`, which must not be empty."""
    x = links.head[q]
    remove(links, q, x)
    return x


@helper
def clear(links):
    """Empty every FIFO."""
    for q in range(links.head.shape[0]):
        links.head[q] = NONE
        links.tail[q] = NONE
        links.size[q] = 0


# --- The waiting queue ---


@helper
def num_waiting(st):
    """Length of the waiting queue."""
    return st["wait_tail"] - st["wait_head"]


@helper
def append_waiting(st, lists, i):
    """Put request `i` at the tail of the waiting queue.

    At the end of the array the queue moves down, not to its beginning: a scan under way may put back in front of it
    what it has popped, and both together are at most all requests.
    """
    waiting = lists.waiting
    if st["wait_tail"] == waiting.shape[0]:
        length = num_waiting(st)
        head = (waiting.shape[0] - 2) // 2 - length
        for k in range(length):
            waiting[head + k] = waiting[st["wait_head"] + k]
        st["wait_head"] = head
        st["wait_tail"] = head + length
    waiting[st["wait_tail"]] = i
    st["wait_tail"] += 1


@helper
def pop_waiting(st, lists):
    """Take the head of the waiting queue, which must not be empty."""
    i = lists.waiting[st["wait_head"]]
    st["wait_head"] += 1
    st["wait_sorted"] -= 1
    return i


@helper
def push_back_deferred(st, lists, count):
    """Put `count` deferred requests back to the front in their order. They were popped, so there is room."""
    st["wait_head"] -= count
    st["wait_sorted"] += count
    for k in range(count):
        lists.waiting[st["wait_head"] + k] = lists.deferred[k]


@helper
def sort_waiting(cfg, st, lists, priority):
    """Stable sort by priority. Only what was appended since the last sort has to move."""
    length = num_waiting(st)
    if cfg["policy"] == PRIORITY:
        waiting = lists.waiting
        head = st["wait_head"]
        for place in range(head + st["wait_sorted"], head + length):
            i = waiting[place]
            p = priority[i]
            k = place
            while k > head and priority[waiting[k - 1]] > p:
                waiting[k] = waiting[k - 1]
                k -= 1
            waiting[k] = i
    st["wait_sorted"] = length


# --- Active requests ---


@helper
def add_active(st, req, lists, i):
    """Request `i` becomes active."""
    req.active_slot[i] = st["num_active"]
    lists.active[st["num_active"]] = i
    st["num_active"] += 1


@helper
def remove_active(st, req, lists, i):
    """Request `i` is active no longer; the last of the list takes its place."""
    st["num_active"] -= 1
    last = lists.active[st["num_active"]]
    slot = req.active_slot[i]
    lists.active[slot] = last
    req.active_slot[last] = slot
