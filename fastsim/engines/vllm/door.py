"""The front door, before every step: clients that give up, requests held back, arrivals."""

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import Status
from fastsim.engines.vllm.arrivals import client_sends_next, next_arrival_us, pop_next_arrival
from fastsim.engines.vllm.blocks import free_blocks
from fastsim.engines.vllm.codes import NO_LIMIT, BackpressureAction
from fastsim.engines.vllm.lanes import lane_remove, leave_clock, on_clock, running_remove
from fastsim.engines.vllm.running_cap import door_closed, forget_door
from fastsim.engines.vllm.waiting import enqueue, withdraw

WAITING = int(Status.WAITING)
RUNNING = int(Status.RUNNING)
REJECTED = int(Status.REJECTED)
TIMED_OUT = int(Status.TIMED_OUT)
HELD = int(Status.HELD)
REJECT = int(BackpressureAction.REJECT)
NO_TIMEOUT = int(NO_LIMIT)
NO_DEADLINE = int(NO_LIMIT)


@inlined
def open_door(cfg, st, tot, wl, req, q, blk, log):
    """Deadlines, then those held at the door, then everybody who has arrived by now, by (arrival, index)."""
    if cfg["timeout_us"] != NO_TIMEOUT:
        _abort_expired(cfg, st, tot, wl, req, q, blk, log)
    if st["unfinished"] == 0:
        forget_door(st)
    st["released"] = 0
    if st["held"] > 0:
        _release_held(cfg, st, wl, req, q, log)
    st["completed_since_door"] = 0
    let_arrivals_in(cfg, st, tot, wl, req, q, log, st["now_us"])


@inlined
def let_arrivals_in(cfg, st, tot, wl, req, q, log, until_us):
    """Everybody who has arrived by `until_us` comes to the door, by (arrival, index)."""
    while next_arrival_us(st, q, log) <= until_us:
        i = pop_next_arrival(st, q, log)
        _receive(cfg, st, tot, wl, req, q, log, i)


@helper
def _receive(cfg, st, tot, wl, req, q, log, i):
    """Deadline, queue limits, backpressure, in this order."""
    now_us = st["now_us"]
    if cfg["timeout_us"] != NO_TIMEOUT:
        if log.arrival_us[i] + cfg["timeout_us"] <= now_us:
            _time_out(cfg, st, tot, wl, q, log, i)
            return
        q.received[st["received"]] = i
        st["received"] += 1
    if (
        st["waiting"] >= cfg["max_num_queued_reqs"]
        or st["waiting_prompt_tokens"] >= cfg["max_num_queued_tokens"]
        or (cfg["backpressure_action"] == REJECT and door_closed(cfg, st))
    ):
        log.status[i] = REJECTED
        tot["rejected"] += 1
        client_sends_next(st, wl, q, log, now_us + cfg["retry_after_us"])
    elif door_closed(cfg, st):
        log.status[i] = HELD
        tot["held"] += 1
        q.held[(st["held_head"] + st["held"]) % q.held.shape[0]] = i
        st["held"] += 1
    else:
        _let_in(cfg, st, wl, req, q, log, i)


@helper
def _let_in(cfg, st, wl, req, q, log, i):
    st["unfinished"] += 1
    st["alive_tokens"] += wl.prompt_tokens[i] + wl.output_tokens[i]
    log.status[i] = WAITING
    enqueue(cfg, st, wl, req, q, log, i, False)
    req.waiting_since_us[i] = log.arrival_us[i]


@helper
def _release_held(cfg, st, wl, req, q, log):
    """One for each completion since, or everybody once backpressure no longer holds."""
    places = min(st["completed_since_door"], st["held"]) if door_closed(cfg, st) else st["held"]
    for _ in range(places):
        i = q.held[st["held_head"]]
        st["held_head"] = (st["held_head"] + 1) % q.held.shape[0]
        st["held"] -= 1
        st["released"] += 1
        _let_in(cfg, st, wl, req, q, log, i)


@helper
def _unhold(st, q, i):
    """Take `i` out of the ring of held requests."""
    size = q.held.shape[0]
    place = st["held_head"]
    while q.held[place] != i:
        place = (place + 1) % size
    end = (st["held_head"] + st["held"] - 1) % size
    while place != end:
        after = (place + 1) % size
        q.held[place] = q.held[after]
        place = after
    st["held"] -= 1


@helper
def _time_out(cfg, st, tot, wl, q, log, i):
    log.status[i] = TIMED_OUT
    log.finish_us[i] = log.arrival_us[i] + cfg["timeout_us"]
    tot["timed_out"] += 1
    client_sends_next(st, wl, q, log, st["now_us"])


@helper
def _is_alive(log, i):
    status = log.status[i]
    return status in (WAITING, RUNNING, HELD)


@helper
def next_deadline_us(cfg, st, q, log):
    """The earliest deadline of a request that is still here."""
    while st["deadline_cursor"] < st["received"]:
        i = q.received[st["deadline_cursor"]]
        if _is_alive(log, i):
            return log.arrival_us[i] + cfg["timeout_us"]
        st["deadline_cursor"] += 1
    return NO_DEADLINE


@helper
def _abort_expired(cfg, st, tot, wl, req, q, blk, log):
    """Abort everybody whose deadline has passed, by (deadline, index): the order of arrival."""
    while next_deadline_us(cfg, st, q, log) <= st["now_us"]:
        i = q.received[st["deadline_cursor"]]
        st["deadline_cursor"] += 1
        if log.status[i] == HELD:
            _unhold(st, q, i)
        else:
            abort_request(cfg, st, tot, wl, req, q, blk, log, i)
        _time_out(cfg, st, tot, wl, q, log, i)


@helper
def abort_request(cfg, st, tot, wl, req, q, blk, log, i):
    """Its client has gone: take `i` out of the queues and free its blocks."""
    if log.status[i] == RUNNING:
        if on_clock(cfg, req, i):
            leave_clock(cfg, st, req, q, log, i, 0)
        else:
            lane_remove(req, q, i)
        running_remove(st, tot, req, log, i)
        st["protected"] -= req.protected[i]
        free_blocks(cfg, st, req, blk, i, False)
    else:
        withdraw(st, wl, req, q, log, i)
    st["somebody_finished"] = 1
    st["unfinished"] -= 1
    st["alive_tokens"] -= wl.prompt_tokens[i] + wl.output_tokens[i]
