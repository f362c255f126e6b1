# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""A fleet whose router looks at its replicas: the loop is over arrivals.

Between two decisions replicas do not know of each other. At a decision those that the router looks at are advanced to
its time (`pauses`), the request is sent, and what nobody looks at waits. At the end each replica runs to its end alone.
A request lives in one replica, so what is kept by request is shared by all; each has scalars, queues and blocks of its
own: parts of slabs (`fastsim._jit.slabs`).

The entry visits replicas, and `router` says at every turn which, and what for.
"""

from fastsim._jit import borrow, constant, entry, helper, inlined, part
from fastsim.engines.outputs import NEVER, Status
from fastsim.engines.vllm.batch_queue import advance_async
from fastsim.engines.vllm.codes import NO_LIMIT
from fastsim.engines.vllm.dense import FALL_BACK, advance_dense, begin_dense, is_plain, settle_dense
from fastsim.engines.vllm.livelock import GOING_ON
from fastsim.engines.vllm.loop import LOG_FULL, advance
from fastsim.engines.vllm.memory import State
from fastsim.engines.vllm.reset import reset_engine, reset_requests, settle_engine, settle_requests
from fastsim.engines.vllm.router import Visit, begin_router, is_visited, next_visits
from fastsim.engines.vllm.state import NONE


@entry
def run_fleet(configs, params, fleets, memory, wl, rec, draws, of_request):
    """Run one fleet. Returns 0, or FALL_BACK: the general loop has to do it.

    Parameters
    ----------
    configs, params, fleets
        CONFIG_DTYPE, PARAMS_DTYPE and FLEET_DTYPE, shape (1,).
    memory
        FleetMemory of as many replicas.
    wl, rec
        The workload, and a recorder that nobody writes.
    draws
        float64, shape (2 x requests,): two uniform draws a request.
    of_request
        int64, shape (requests,): filled with who serves each.
    """
    fleet = constant(fleets[0])
    wl = borrow(wl)
    req = borrow(memory.requests)
    log = borrow(memory.log)
    rec = borrow(rec)
    queues = borrow(memory.queues)
    blocks = borrow(memory.blocks)
    gaps = borrow(memory.gaps)
    layout = borrow(memory.layout)
    known = borrow(memory.known)
    r = borrow(memory.router[0])
    cfg = constant(configs[0])
    begin_router(r, known, fleet)
    while r["visit"] != Visit.NOBODY:
        for k in range(fleet["replicas"]):
            if not is_visited(r, fleet, k):
                continue
            st = borrow(memory.scalars[k])
            tot = borrow(memory.totals[k])
            q = part(queues, layout.queues, k)
            blk = part(blocks, layout.blocks, k)
            own_gaps = part(gaps, layout.gaps, k)
            s = borrow(State(cfg, params[0], st, tot, wl, req, q, blk, log, own_gaps, rec))
            if visit(s, r, known, k) != 0:
                return FALL_BACK
        next_visits(r, known, fleet, wl, draws, of_request)
    return 0


@helper
def visit(s, r, known, k):
    """Do at replica `k` what the router came for. Returns 0, or FALL_BACK."""
    what = r["visit"]
    if what == Visit.BEGIN:
        begin(s, k)
    elif what == Visit.SEND:
        known.sent[k] += send(s, r["request"])
    elif advance_to(s, NO_LIMIT if what == Visit.END else r["at_us"]) != 0:
        return FALL_BACK
    elif what == Visit.END:
        finish(s, k == known.sent.shape[0] - 1)
    else:
        look(s, r["at_us"])
        known.in_flight[k] = known.sent[k] - s.st["seen_gone"]
        if what == Visit.SNAPSHOT:
            known.waiting[k] = s.st["seen_waiting"]
            known.running[k] = s.st["seen_running"]
            known.kv_use[k] = (s.st["usable"] - s.st["seen_free"]) / max(s.st["usable"], 1)
    return 0


@inlined
def begin(s, k):
    """A replica before its first request."""
    if k == 0:
        reset_requests(s)
    reset_engine(s)
    s.gaps.histogram[:] = 0
    s.tot["first_arrival_us"] = NEVER
    s.tot["first_completion_us"] = NEVER
    s.tot["starved_at_us"] = NEVER
    if is_plain(s):
        begin_dense(s)


@inlined
def send(s, i):
    """Request `i` comes to this replica as it arrives. Returns how many it adds to those in flight."""
    if s.log.status[i] == Status.UNSERVABLE:  # refused at once
        s.tot["unservable"] += 1
        return 0
    if s.tot["first_arrival_us"] == NEVER:
        s.tot["first_arrival_us"] = s.log.arrival_us[i]
        s.tot["last_completion_us"] = s.log.arrival_us[i]
    s.q.arrivals[s.st["own_arrivals"]] = i
    s.st["own_arrivals"] += 1
    return 1


@inlined
def advance_to(s, until_us):
    """Do all steps that start before `until_us`. Returns 0, or FALL_BACK."""
    if s.st["stop"] != GOING_ON or s.st["now_us"] >= until_us:
        return 0
    s.st["until_us"] = until_us
    if s.st["dense"]:
        stop = advance_dense(s)
        if stop == FALL_BACK:
            return FALL_BACK
    else:
        stop = advance_async(s) if s.cfg["asynchronous"] else advance(s)
        if stop == LOG_FULL:  # a log of gaps, which only restart has
            return FALL_BACK
    s.st["stop"] = stop
    return 0


@inlined
def look(s, now_us):
    """What a router sees now: nothing of a step that goes on, but those let in as it began (`pauses.see`)."""
    if s.st["now_us"] <= now_us or s.st["stop"] != GOING_ON:
        s.st["seen_waiting"] = s.st["waiting"]
        s.st["seen_running"] = s.st["clocked"] + (s.st["prefilling"] != NONE) if s.st["dense"] else s.st["running"]
        s.st["seen_free"] = s.st["free"]
        s.st["seen_gone"] = s.tot["completed"] + s.tot["rejected"] + s.tot["timed_out"]


@inlined
def finish(s, is_last):
    """The end of a replica; that of the last one is the fleet's."""
    if s.st["dense"]:
        settle_dense(s, s.st["stop"])
    else:
        settle_engine(s, s.st["stop"])
    if is_last:
        settle_requests(s)
