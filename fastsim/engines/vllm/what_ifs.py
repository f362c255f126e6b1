"""Rules of admission that vLLM does not have: projected admission, bounded bypass, slot preemption.

Projected admission: everybody who runs must still fit when grown to the expected length.

Bounded head-of-line bypass, after vllm-rlt: requests that do not fit are set aside while the scan goes on. One set
aside leaves the queue for the rest of the scan and returns to its place at the end of it, so the head of the queue is
always the next candidate.

Slot preemption: a more urgent request may take the place of a less urgent running one.
"""

from fastsim._jit import helper
from fastsim.engines.vllm.blocks import held_copy, slot_of
from fastsim.engines.vllm.codes import Projection
from fastsim.engines.vllm.free_list import blocks_for
from fastsim.engines.vllm.lanes import delivered_on_clock, on_clock
from fastsim.engines.vllm.preemption import held_blocks
from fastsim.engines.vllm.recorder import note_refusal
from fastsim.engines.vllm.scalars import ScanEnd
from fastsim.engines.vllm.state import NONE
from fastsim.engines.vllm.waiting import dequeue, requeue


@helper
def expected_blocks(s, i):
    """Blocks of a request at its expected end. A request without declared limit may use all max_model_len leaves."""
    limit = s.cfg["max_model_len"]
    prompt = s.wl.prompt_tokens[i]
    if s.cfg["projection"] == Projection.ORACLE:
        output = s.wl.output_tokens[i]
    elif s.cfg["projection"] == Projection.MAX_TOKENS:
        output = s.wl.max_tokens[i] if s.wl.max_tokens[i] > 0 else limit - prompt
    else:
        output = s.st["mean_output_tokens"]
    length = delivered_on_clock(s, i) if on_clock(s, i) else s.req.num_tokens[i]
    total = min(max(prompt + output, length + 1), limit)
    return blocks_for(s, total)


@helper
def projected_blocks(s, i, leaving):
    """Expected blocks of everybody running, at their ends, and of the candidate; 0 when nobody runs."""
    total = expected_blocks(s, i)
    others = 0
    k = s.st["running_head"]
    while k != NONE:
        if k != leaving:
            total += expected_blocks(s, k)
            others += 1
        k = s.req.run_next[k]
    return total if others > 0 else 0


@helper
def projection_admits(s, i, leaving):
    """Whether the expected ends of running and candidate fit in `overcommit` of the pool. Nobody running: always."""
    total = projected_blocks(s, i, leaving)
    limit = s.cfg["overcommit"] * s.st["usable"]
    if total <= limit:
        return True
    if s.cfg["record"]:
        note_refusal(s, i, ScanEnd.PROJECTION, total, int(limit), 0)
    return False


@helper
def stops_here(s, i):
    """Whether a request that does not fit has been passed often enough: the scan may not go past it again."""
    if not s.cfg["blocked_checks_limit"] and s.log.num_preemptions[i] > 0:
        return False
    return s.req.bypasses[i] >= s.cfg["max_admission_bypasses"]


@helper
def defer_candidate(s, i):
    """Set `i` aside."""
    dequeue(s, i)
    s.q.deferred[s.st["deferred"]] = i
    s.st["deferred"] += 1


@helper
def note_passed(s, i):
    """`i` was admitted past everybody set aside. True: one of them has been passed often enough, the scan ends."""
    if not s.cfg["count_restores"] and s.log.num_preemptions[i] > 0:
        return False
    stops = False
    for k in range(s.st["deferred"]):
        passed = s.q.deferred[k]
        s.req.bypasses[passed] += 1
        if s.req.bypasses[passed] >= s.cfg["max_admission_bypasses"] and not stops:
            s.st["refused"] = passed
            stops = True
    return stops


@helper
def restore_deferred(s):
    """Put everybody set aside back where they stood: the last one first, each at the front."""
    for k in range(s.st["deferred"] - 1, -1, -1):
        requeue(s, s.q.deferred[k])
    s.st["deferred"] = 0


@helper
def pass_over(s, i):
    """Asynchronous: `i` was preempted in this very call and output is in flight for it. It does not count as passed."""
    if s.cfg["record"]:
        note_refusal(s, i, ScanEnd.IN_FLIGHT, 0, 0, 0)
    dequeue(s, i)
    s.st["passed_over"] += 1
    s.q.deferred[s.q.deferred.shape[0] - s.st["passed_over"]] = i


@helper
def restore_passed_over(s):
    """Put them back. Only slot preemption preempts before the scan is over, and its queues are ordered by keys."""
    for k in range(s.st["passed_over"]):
        requeue(s, s.q.deferred[s.q.deferred.shape[0] - 1 - k])
    s.st["passed_over"] = 0


@helper
def _less_urgent(s, a, b):
    """Whether `a` is less urgent than `b`: by priority, then by arrival."""
    if s.wl.priority[a] != s.wl.priority[b]:
        return s.wl.priority[a] > s.wl.priority[b]
    return s.log.arrival_us[a] > s.log.arrival_us[b]


@helper
def slot_victim(s, i):
    """Whom candidate `i` may push off a slot: unprotected, strictly less urgent; the least urgent, the latest arrival.

    The first in running order on ties, as with vLLM's priority victim. NONE: nobody.
    """
    best = NONE
    k = s.st["running_head"]
    while k != NONE:
        eligible = s.wl.priority[k] > s.wl.priority[i] and not s.req.protected[k]
        if eligible and (best == NONE or _less_urgent(s, k, best)):
            best = k
        k = s.req.run_next[k]
    return best


@helper
def _held_shared(s, i):
    """Leading shared blocks that `i` holds as hashed copies."""
    return min(s.req.shared_blocks[i], s.req.num_cached_blocks[i])


@helper
def blocks_leaving(s, leaving):
    """Blocks that become free when running request `leaving` is preempted: those nobody else holds."""
    blocks = held_blocks(s, leaving)
    if not s.cfg["enable_prefix_caching"] or s.req.shared_blocks[leaving] == 0:
        return blocks
    for block in range(_held_shared(s, leaving)):
        if s.blk.references[held_copy(s, leaving, block)] > 1:
            blocks -= 1
    return blocks


@helper
def hits_leaving(s, i, hits, leaving):
    """Hits of candidate `i` that only `leaving` holds: they come to the free list and must not be counted twice."""
    if not s.cfg["enable_prefix_caching"]:
        return 0
    count = 0
    for block in range(min(hits, s.req.shared_blocks[i], _held_shared(s, leaving))):
        copy = s.blk.first_copy[slot_of(s, i, block)]
        if s.blk.references[copy] == 1 and held_copy(s, leaving, block) == copy:
            count += 1
    return count
