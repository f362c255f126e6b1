"""Who arrives when: the workload's own order, and a heap of arrivals that became known during the run.

In a closed loop of N clients only the first N requests arrive by themselves; whenever a client is free it sends the
next request, after its think time.
"""

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import Status
from fastsim.engines.vllm.codes import NO_LIMIT

PENDING = int(Status.PENDING)
NEVER_ARRIVES = int(NO_LIMIT)


@helper
def _sooner(log, a, b):
    if log.arrival_us[a] != log.arrival_us[b]:
        return log.arrival_us[a] < log.arrival_us[b]
    return a < b


@helper
def push_arrival(st, q, log, i, at_us):
    """Request `i` will arrive at `at_us`."""
    log.arrival_us[i] = at_us
    heap = q.arrival_heap
    place = st["dynamic_arrivals"]
    st["dynamic_arrivals"] = place + 1
    while place > 0 and _sooner(log, i, heap[(place - 1) >> 1]):
        heap[place] = heap[(place - 1) >> 1]
        place = (place - 1) >> 1
    heap[place] = i


@helper
def _pop_arrival(st, q, log):
    heap = q.arrival_heap
    first = heap[0]
    size = st["dynamic_arrivals"] - 1
    st["dynamic_arrivals"] = size
    i = heap[size]
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _sooner(log, heap[child + 1], heap[child]):
            child += 1
        if not _sooner(log, heap[child], i):
            break
        heap[place] = heap[child]
        place = child
    if size > 0:
        heap[place] = i
    return first


@inlined
def next_arrival_us(st, q, log):
    """When the next request arrives; NEVER_ARRIVES if none will."""
    at = NEVER_ARRIVES
    cursor = st["arrival_cursor"]
    if cursor < st["own_arrivals"]:
        at = log.arrival_us[q.arrivals[cursor]]
    if st["dynamic_arrivals"] > 0:
        at = min(at, log.arrival_us[q.arrival_heap[0]])
    return at


@helper
def pop_next_arrival(st, q, log):
    """The request that arrives next, by (arrival, index)."""
    cursor = st["arrival_cursor"]
    if cursor < st["own_arrivals"]:
        i = q.arrivals[cursor]
        if st["dynamic_arrivals"] == 0 or _sooner(log, i, q.arrival_heap[0]):
            st["arrival_cursor"] = cursor + 1
            return i
    return _pop_arrival(st, q, log)


@helper
def client_sends_next(st, wl, q, log, at_us):
    """Closed loop: a client is free at `at_us`; after its think time it sends the next request that can run."""
    if st["clients"] == 0:
        return
    num_requests = wl.prompt_tokens.shape[0]
    while st["next_client"] < num_requests:
        i = st["next_client"]
        st["next_client"] = i + 1
        if log.status[i] == PENDING:
            push_arrival(st, q, log, i, at_us + wl.think_us[i])
            return
