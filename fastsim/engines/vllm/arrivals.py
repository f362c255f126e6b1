"""Who arrives when, and the front door, before every step: clients that give up, requests held back, arrivals.

Arrivals are the workload's own order, and a heap of those that became known during the run. In a closed loop of N
clients only the first N requests arrive by themselves; whenever a client is free it sends the next request, after its
think time and not before the request's own arrival: open arrivals with at most N requests out, as load generators have
them, are the same rule.
"""

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import Status
from fastsim.engines.vllm.blocks import free_blocks
from fastsim.engines.vllm.codes import NO_LIMIT, BackpressureAction
from fastsim.engines.vllm.lanes import lane_remove, leave_clock, on_clock, running_remove
from fastsim.engines.vllm.recorder import EventKind, note
from fastsim.engines.vllm.running_cap import door_closed, forget_door
from fastsim.engines.vllm.waiting import enqueue, withdraw


@helper
def _sooner(s, a, b):
    if s.log.arrival_us[a] != s.log.arrival_us[b]:
        return s.log.arrival_us[a] < s.log.arrival_us[b]
    return a < b


@helper
def push_arrival(s, i, at_us):
    """Request `i` will arrive at `at_us`."""
    s.log.arrival_us[i] = at_us
    heap = s.q.arrival_heap
    place = s.st["dynamic_arrivals"]
    s.st["dynamic_arrivals"] = place + 1
    while place > 0 and _sooner(s, i, heap[(place - 1) >> 1]):
        heap[place] = heap[(place - 1) >> 1]
        place = (place - 1) >> 1
    heap[place] = i


@helper
def _pop_arrival(s):
    heap = s.q.arrival_heap
    first = heap[0]
    size = s.st["dynamic_arrivals"] - 1
    s.st["dynamic_arrivals"] = size
    i = heap[size]
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _sooner(s, heap[child + 1], heap[child]):
            child += 1
        if not _sooner(s, heap[child], i):
            break
        heap[place] = heap[child]
        place = child
    if size > 0:
        heap[place] = i
    return first


@inlined
def next_arrival_us(s):
    """When the next request arrives; NEVER_ARRIVES if none will."""
    at = NO_LIMIT
    cursor = s.st["arrival_cursor"]
    if cursor < s.st["own_arrivals"]:
        at = s.log.arrival_us[s.q.arrivals[cursor]]
    if s.st["dynamic_arrivals"] > 0:
        at = min(at, s.log.arrival_us[s.q.arrival_heap[0]])
    return at


@helper
def pop_next_arrival(s):
    """The request that arrives next, by (arrival, index)."""
    cursor = s.st["arrival_cursor"]
    if cursor < s.st["own_arrivals"]:
        i = s.q.arrivals[cursor]
        if s.st["dynamic_arrivals"] == 0 or _sooner(s, i, s.q.arrival_heap[0]):
            s.st["arrival_cursor"] = cursor + 1
            return i
    return _pop_arrival(s)


@helper
def client_sends_next(s, at_us):
    """Closed loop: a client is free at `at_us`; after its think time it sends the next request that can run."""
    if s.st["clients"] == 0:
        return
    num_requests = s.wl.prompt_tokens.shape[0]
    while s.st["next_client"] < num_requests:
        i = s.st["next_client"]
        s.st["next_client"] = i + 1
        if s.log.status[i] == Status.PENDING:
            push_arrival(s, i, max(at_us + s.wl.think_us[i], s.wl.arrival_us[i]))
            return


@inlined
def open_door(s):
    """Deadlines, then those held at the door, then everybody who has arrived by now, by (arrival, index)."""
    if s.cfg["timeout_us"] != NO_LIMIT:
        _abort_expired(s)
    receive_arrivals(s)


@inlined
def receive_arrivals(s):
    """Those held at the door, then everybody who has arrived by now."""
    if s.st["unfinished"] == 0:
        forget_door(s)
    s.st["released"] = 0
    if s.st["held"] > 0:
        _release_held(s)
    s.st["completed_since_door"] = 0
    let_arrivals_in(s, s.st["now_us"])


@inlined
def let_arrivals_in(s, until_us):
    """Everybody who has arrived by `until_us` comes to the door, by (arrival, index)."""
    while next_arrival_us(s) <= until_us:
        i = pop_next_arrival(s)
        _receive(s, i)


@helper
def _receive(s, i):
    """Deadline, queue limits, backpressure, in this order."""
    now_us = s.st["now_us"]
    if s.cfg["timeout_us"] != NO_LIMIT:
        if s.log.arrival_us[i] + s.cfg["timeout_us"] <= now_us:
            time_out(s, i)
            return
        s.q.received[s.st["received"]] = i
        s.st["received"] += 1
    if (
        s.st["waiting"] >= s.cfg["max_num_queued_reqs"]
        or s.st["waiting_prompt_tokens"] >= s.cfg["max_num_queued_tokens"]
        or (s.cfg["backpressure_action"] == BackpressureAction.REJECT and door_closed(s))
    ):
        if s.cfg["record"]:
            _note_rejected(s, i)
        s.log.status[i] = Status.REJECTED
        s.tot["rejected"] += 1
        client_sends_next(s, now_us + s.cfg["retry_after_us"])
    elif door_closed(s):
        if s.cfg["record"]:
            note(s, EventKind.HELD, i, 0, 0, 0, 0)
        s.log.status[i] = Status.HELD
        s.tot["held"] += 1
        s.q.held[(s.st["held_head"] + s.st["held"]) % s.q.held.shape[0]] = i
        s.st["held"] += 1
    else:
        _let_in(s, i)


@helper
def _note_rejected(s, i):
    """The first of the limits, in the order of LIMITS, and what it found."""
    if s.st["waiting"] >= s.cfg["max_num_queued_reqs"]:
        note(s, EventKind.REJECTED, i, 0, s.st["waiting"], 0, 0)
    elif s.st["waiting_prompt_tokens"] >= s.cfg["max_num_queued_tokens"]:
        note(s, EventKind.REJECTED, i, 1, s.st["waiting_prompt_tokens"], 0, 0)
    else:
        note(s, EventKind.REJECTED, i, 2, s.st["door_preemptions"], 0, 0)


@helper
def _let_in(s, i):
    s.st["unfinished"] += 1
    s.st["alive_tokens"] += s.wl.prompt_tokens[i] + s.wl.output_tokens[i]
    s.log.status[i] = Status.WAITING
    s.req.waiting_since_us[i] = s.log.arrival_us[i]
    enqueue(s, i, False)


@helper
def _release_held(s):
    """One for each completion since, or everybody once backpressure no longer holds."""
    places = min(s.st["completed_since_door"], s.st["held"]) if door_closed(s) else s.st["held"]
    for _ in range(places):
        i = s.q.held[s.st["held_head"]]
        s.st["held_head"] = (s.st["held_head"] + 1) % s.q.held.shape[0]
        s.st["held"] -= 1
        s.st["released"] += 1
        _let_in(s, i)


@helper
def unhold(s, i):
    """Take `i` out of the ring of held requests."""
    size = s.q.held.shape[0]
    place = s.st["held_head"]
    while s.q.held[place] != i:
        place = (place + 1) % size
    end = (s.st["held_head"] + s.st["held"] - 1) % size
    while place != end:
        after = (place + 1) % size
        s.q.held[place] = s.q.held[after]
        place = after
    s.st["held"] -= 1


@helper
def time_out(s, i):
    """Request `i` is past its deadline."""
    s.log.status[i] = Status.TIMED_OUT
    s.log.finish_us[i] = s.log.arrival_us[i] + s.cfg["timeout_us"]
    s.tot["timed_out"] += 1
    client_sends_next(s, s.st["now_us"])


@helper
def _is_alive(s, i):
    status = s.log.status[i]
    return status in (Status.WAITING, Status.RUNNING, Status.HELD)


@helper
def next_deadline_us(s):
    """The earliest deadline of a request that is still here."""
    while s.st["deadline_cursor"] < s.st["received"]:
        i = s.q.received[s.st["deadline_cursor"]]
        if _is_alive(s, i):
            return s.log.arrival_us[i] + s.cfg["timeout_us"]
        s.st["deadline_cursor"] += 1
    return NO_LIMIT


@helper
def _abort_expired(s):
    """Abort everybody whose deadline has passed, by (deadline, index): the order of arrival."""
    while next_deadline_us(s) <= s.st["now_us"]:
        i = s.q.received[s.st["deadline_cursor"]]
        s.st["deadline_cursor"] += 1
        if s.log.status[i] == Status.HELD:
            unhold(s, i)
        else:
            abort_request(s, i)
        time_out(s, i)


@helper
def abort_request(s, i):
    """Its client has gone: take `i` out of the queues and free its blocks."""
    if s.log.status[i] == Status.RUNNING:
        if on_clock(s, i):
            leave_clock(s, i, 0)
        else:
            lane_remove(s, i)
        running_remove(s, i)
        s.st["protected"] -= s.req.protected[i]
        free_blocks(s, i, False)
    else:
        withdraw(s, i)
    s.st["somebody_finished"] = 1
    s.st["unfinished"] -= 1
    s.st["alive_tokens"] -= s.wl.prompt_tokens[i] + s.wl.output_tokens[i]
