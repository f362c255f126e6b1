"""Slot preemption: a more urgent request may take the place of a less urgent running one."""

from fastsim._jit import helper
from fastsim.engines.vllm.blocks import held_copy, slot_of
from fastsim.engines.vllm.preemption import held_blocks
from fastsim.engines.vllm.state import NONE


@helper
def _less_urgent(wl, log, a, b):
    """Whether `a` is less urgent than `b`: by priority, then by arrival."""
    if wl.priority[a] != wl.priority[b]:
        return wl.priority[a] > wl.priority[b]
    return log.arrival_us[a] > log.arrival_us[b]


@helper
def slot_victim(st, wl, req, log, i):
    """Whom candidate `i` may push off a slot: unprotected, strictly less urgent; the least urgent, the latest arrival.

    The first in running order on ties, as with vLLM's priority victim. NONE: nobody.
    """
    best = NONE
    k = st["running_head"]
    while k != NONE:
        eligible = wl.priority[k] > wl.priority[i] and not req.protected[k]
        if eligible and (best == NONE or _less_urgent(wl, log, k, best)):
            best = k
        k = req.run_next[k]
    return best


@helper
def _held_shared(req, i):
    """Leading shared blocks that `i` holds as hashed copies."""
    return min(req.shared_blocks[i], req.num_cached_blocks[i])


@helper
def blocks_leaving(cfg, st, req, blk, leaving):
    """Blocks that become free when running request `leaving` is preempted: those nobody else holds."""
    blocks = held_blocks(cfg, st, req, leaving)
    if not cfg["enable_prefix_caching"] or req.shared_blocks[leaving] == 0:
        return blocks
    for block in range(_held_shared(req, leaving)):
        if blk.references[held_copy(req, blk, leaving, block)] > 1:
            blocks -= 1
    return blocks


@helper
def hits_leaving(cfg, wl, req, blk, i, hits, leaving):
    """Hits of candidate `i` that only `leaving` holds: they come to the free list and must not be counted twice."""
    if not cfg["enable_prefix_caching"]:
        return 0
    count = 0
    for block in range(min(hits, req.shared_blocks[i], _held_shared(req, leaving))):
        copy = blk.first_copy[slot_of(cfg, wl, blk, i, block)]
        if blk.references[copy] == 1 and held_copy(req, blk, leaving, block) == copy:
            count += 1
    return count
