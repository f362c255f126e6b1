"""Bounded head-of-line bypass, after vllm-rlt: requests that do not fit are set aside while the scan goes on.

A request set aside leaves the queue for the rest of the scan and returns to its place at the end of it, so the head of
the queue is always the next candidate.
"""

from fastsim._jit import helper
from fastsim.engines.vllm.waiting import dequeue, requeue


@helper
def stops_here(cfg, req, log, i):
    """Whether a request that does not fit has been passed often enough: the scan may not go past it again."""
    if not cfg["blocked_checks_limit"] and log.num_preemptions[i] > 0:
        return False
    return req.bypasses[i] >= cfg["max_admission_bypasses"]


@helper
def defer_candidate(st, wl, req, q, log, i):
    """Set `i` aside."""
    dequeue(st, wl, req, q, log, i)
    q.deferred[st["deferred"]] = i
    st["deferred"] += 1


@helper
def note_passed(cfg, st, req, q, log, i):
    """`i` was admitted past everybody set aside. True: one of them has been passed often enough, the scan ends."""
    if not cfg["count_restores"] and log.num_preemptions[i] > 0:
        return False
    stops = False
    for k in range(st["deferred"]):
        passed = q.deferred[k]
        req.bypasses[passed] += 1
        if req.bypasses[passed] >= cfg["max_admission_bypasses"]:
            stops = True
    return stops


@helper
def restore_deferred(st, wl, req, q, log):
    """Put everybody set aside back where they stood: the last one first, each at the front."""
    for k in range(st["deferred"] - 1, -1, -1):
        requeue(st, wl, req, q, log, q.deferred[k])
    st["deferred"] = 0


@helper
def pass_over(st, wl, req, q, log, i):
    """Asynchronous: `i` was preempted in this very call and output is in flight for it. It does not count as passed."""
    dequeue(st, wl, req, q, log, i)
    st["passed_over"] += 1
    q.deferred[q.deferred.shape[0] - st["passed_over"]] = i


@helper
def restore_passed_over(st, wl, req, q, log):
    """Put them back. Only slot preemption preempts before the scan is over, and its queues are ordered by keys."""
    for k in range(st["passed_over"]):
        requeue(st, wl, req, q, log, q.deferred[q.deferred.shape[0] - 1 - k])
