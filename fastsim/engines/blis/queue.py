"""The waiting queue, ordered as the scheduler sorts it before a step.

Only the order at the start of a step matters: with fcfs that of arrival, preempted requests in front; otherwise a
fixed one.
"""

from fastsim._jit import helper
from fastsim.engines.blis.codes import SCHEDULER_FCFS, SCHEDULER_PRIORITY_FCFS, SCHEDULER_SJF
from fastsim.engines.heap import heap_push


@helper
def _rank(cfg, wl, i):
    if cfg["scheduler"] == SCHEDULER_SJF:
        return wl.sjf_rank[i]
    if cfg["scheduler"] == SCHEDULER_PRIORITY_FCFS:
        return wl.priority_rank[i]
    return wl.reverse_rank[i]


@helper
def _push(st, s, tot, i, key):
    heap_push(s.waiting, i, key, i)
    s.req.waiting_since_us[i] = st["now_us"]
    tot["waiting_peak"] = max(tot["waiting_peak"], s.waiting.size[0])


@helper
def push_back(cfg, st, s, tot, i):
    """A new request joins."""
    if cfg["scheduler"] == SCHEDULER_FCFS:
        key = st["back"]
        st["back"] += 1
    else:
        key = _rank(cfg, s.wl, i)
    _push(st, s, tot, i, key)


@helper
def push_front(cfg, st, s, tot, i):
    """A preempted request returns, in front of everybody until the next sort."""
    if cfg["scheduler"] == SCHEDULER_FCFS:
        st["front"] -= 1
        key = st["front"]
    else:
        key = _rank(cfg, s.wl, i)
    _push(st, s, tot, i, key)
