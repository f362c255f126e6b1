"""The waiting loop: who is admitted in this step."""

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import NEVER, Status
from fastsim.engines.vllm.blocks import cache_blocks, find_hits, take_hits
from fastsim.engines.vllm.bypass import (
    defer_candidate,
    note_passed,
    pass_over,
    restore_deferred,
    restore_passed_over,
    stops_here,
)
from fastsim.engines.vllm.codes import Admission
from fastsim.engines.vllm.free_list import take_blocks
from fastsim.engines.vllm.lanes import lane_insert, running_append
from fastsim.engines.vllm.preemption import add_scheduled, count_scheduled, preempt_request
from fastsim.engines.vllm.projection import projection_admits
from fastsim.engines.vllm.running_cap import note_cap_bound
from fastsim.engines.vllm.scan import ScanEnd
from fastsim.engines.vllm.slots import blocks_leaving, hits_leaving, slot_victim
from fastsim.engines.vllm.state import NONE
from fastsim.engines.vllm.waiting import dequeue, queue_front

RUNNING = int(Status.RUNNING)
GREEDY = int(Admission.GREEDY)
ADMITTED = -1
SKIPPED = int(ScanEnd.SKIPPED)
EMPTY = int(ScanEnd.EMPTY)
CAP = int(ScanEnd.CAP)
BUDGET = int(ScanEnd.BUDGET)
BLOCKS = int(ScanEnd.BLOCKS)
CHUNKING = int(ScanEnd.CHUNKING)
DEFERRED = int(ScanEnd.DEFERRED)
BYPASS_LIMIT = int(ScanEnd.BYPASS_LIMIT)
SCAN_LIMIT = int(ScanEnd.SCAN_LIMIT)


@inlined
def waiting_loop(cfg, st, tot, wl, req, q, blk, log, rec):
    """VLLM's waiting loop: admit from the head of the queue until something stops it. Skipped after a preemption."""
    if st["preempted"] > 0:
        st["scan_end"] = SKIPPED
        return
    st["deferred"] = 0
    st["passed_over"] = 0
    st["scanned"] = 0
    st["scan_end"] = scan_waiting(cfg, st, tot, wl, req, q, blk, log, rec)
    if st["deferred"] > 0:
        restore_deferred(st, wl, req, q, log)
    if st["passed_over"] > 0:
        restore_passed_over(st, wl, req, q, log)
    note_cap_bound(st)


@inlined
def scan_waiting(cfg, st, tot, wl, req, q, blk, log, rec):
    """The loop itself: why it ended (ScanEnd). With `bypass`, one that does not fit is set aside, and on it goes."""
    cap = min(cfg["max_num_active_seqs"], st["cap"])
    st["scan_cap"] = st["cap"]
    while True:
        if st["token_budget"] <= 0:
            return BUDGET
        full = st["running"] >= cap
        if full and not cfg["slot_preempt"]:
            return CAP
        i = queue_front(st, q)
        while i != NONE and req.stale[i]:
            pass_over(st, wl, req, q, log, i)
            i = queue_front(st, q)
        if i == NONE:
            return EMPTY
        if cfg["bypass"] and st["scanned"] == cfg["admission_scan_limit"]:
            return SCAN_LIMIT
        st["scanned"] += 1
        if full:
            victim = slot_victim(st, wl, req, log, i)
            if victim == NONE:
                return CAP
            refusal = admit_in_place(cfg, st, tot, wl, req, q, blk, log, rec, i, victim)
        else:
            refusal = try_admit(cfg, st, tot, wl, req, q, blk, log, i, NONE)
        if refusal == ADMITTED:
            if st["deferred"] > 0 and note_passed(cfg, st, req, q, log, i):
                return BYPASS_LIMIT
        elif refusal != BLOCKS or not cfg["bypass"]:
            return refusal
        elif stops_here(cfg, req, log, i):
            return BYPASS_LIMIT
        else:
            defer_candidate(st, wl, req, q, log, i)


@helper
def admit_in_place(cfg, st, tot, wl, req, q, blk, log, rec, i, victim):
    """Give the slot of `victim` to waiting request `i`: after every other test (preflight), or before any."""
    if cfg["slot_preempt_preflight"]:
        refusal = try_admit(cfg, st, tot, wl, req, q, blk, log, i, victim)
        if refusal != ADMITTED:
            return refusal
        preempt_request(cfg, st, tot, wl, req, q, blk, log, rec, victim)
        return try_admit(cfg, st, tot, wl, req, q, blk, log, i, NONE)
    preempt_request(cfg, st, tot, wl, req, q, blk, log, rec, victim)
    refusal = try_admit(cfg, st, tot, wl, req, q, blk, log, i, NONE)
    if refusal != ADMITTED:
        tot["ineffective_preemptions"] += 1
    return refusal


@helper
def try_admit(cfg, st, tot, wl, req, q, blk, log, i, leaving):
    """Admit waiting request `i` if it passes every test; else say which one it failed (ScanEnd).

    With `leaving` (a running request), nothing is touched: the answer is what it would be once that one is preempted.
    """
    swapped = req.swapped_blocks[i] > 0
    computed = req.num_computed_tokens[i]
    hits = 0
    evictable = 0
    if cfg["enable_prefix_caching"] and not swapped:
        hits, evictable = find_hits(cfg, wl, req, blk, i)
        computed = hits * cfg["block_size"]
    if st["defer"] and computed < req.num_tokens[i] - 1:
        return DEFERRED
    tokens = req.num_tokens[i] - computed
    if 0 < st["threshold"] < tokens:
        tokens = st["threshold"]
    budget = st["token_budget"]
    running = st["running"]
    free = st["free"]
    if leaving != NONE:
        budget += req.scheduled[leaving] if req.lane[leaving] == cfg["block_size"] else 1
        running -= 1
        free += blocks_leaving(cfg, st, req, blk, leaving)
        evictable += hits_leaving(cfg, wl, req, blk, i, hits, leaving)
    if not cfg["enable_chunked_prefill"] and tokens > budget:
        return CHUNKING
    tokens = min(tokens, budget)
    if cfg["admission"] != GREEDY and not projection_admits(cfg, st, wl, req, i, leaving):
        return BLOCKS
    watermark = cfg["watermark_blocks"] if running > 0 else 0
    available = free - evictable - watermark
    if not fits(cfg, req, i, computed + tokens, hits, swapped, available):
        return BLOCKS
    if leaving == NONE:
        allocate_slots(cfg, st, wl, req, blk, i, computed + tokens, hits)
        admit(cfg, st, tot, wl, req, q, log, i, computed, tokens, swapped)
    return ADMITTED


@helper
def fits(cfg, req, i, tokens, hits, swapped, available):
    """The full-sequence gate (not for one that comes back from the host), then the blocks of this step."""
    if available < 0:
        return False
    room = (hits + available) * cfg["block_size"]
    if cfg["scheduler_reserve_full_isl"] and not swapped and req.num_tokens[i] > room:
        return False
    return tokens <= room


@helper
def allocate_slots(cfg, st, wl, req, blk, i, tokens, hits):
    """Give waiting request `i` its hits and the blocks for `tokens` computed tokens; hash what they fill at once."""
    block_size = cfg["block_size"]
    needed = max((tokens + block_size - 1) // block_size - hits, 0)
    if cfg["enable_prefix_caching"]:
        if req.shared_blocks[i] > 0:
            st["rows_free"] -= 1
            req.holding_row[i] = blk.free_rows[st["rows_free"]]
        req.life[i] += 1
        take_hits(cfg, st, wl, req, blk, i, hits)
        req.num_cached_blocks[i] = hits
    take_blocks(cfg, st, req, blk, needed)
    req.num_blocks[i] = hits + needed
    if cfg["enable_prefix_caching"]:
        cache_blocks(cfg, st, wl, req, blk, i, min(tokens, req.num_tokens[i]) // block_size)


@helper
def admit(cfg, st, tot, wl, req, q, log, i, computed, tokens, swapped):
    """Move waiting request `i` to the end of the running list and onto this step's list."""
    dequeue(st, wl, req, q, log, i)
    req.num_computed_tokens[i] = computed
    running_append(st, req, i)
    lane_insert(req, q, cfg["block_size"], i)
    st["protected"] += req.protected[i]
    st["admitted"] += 1
    if computed < req.num_tokens[i] - 1:
        st["prefill_ran"] = 1
    count_scheduled(cfg, st, wl, req, i, tokens, 1)
    add_scheduled(st, req, q, i, tokens)
    log.status[i] = RUNNING
    log.admission_wait_us[i] = max(log.admission_wait_us[i], st["now_us"] - req.waiting_since_us[i])
    if log.first_scheduled_us[i] == NEVER:
        log.first_scheduled_us[i] = st["now_us"]
    if swapped:
        blocks = req.swapped_blocks[i]
        req.swapped_blocks[i] = 0
        st["host_blocks"] -= blocks
        st["moved_blocks"] += blocks
        tot["swapped_in_blocks"] += blocks
        return
    log.prefix_hit_tokens[i] += computed
    if log.prefix_hit_tokens_first[i] == NEVER:
        log.prefix_hit_tokens_first[i] = computed
    if log.num_preemptions[i] > 0:
        tot["salvaged_tokens"] += computed
