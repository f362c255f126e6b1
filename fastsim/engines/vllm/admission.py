"""The waiting loop: who is admitted in this step."""

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import NEVER, Status, note_admission_wait
from fastsim.engines.vllm.blocks import cache_blocks, find_hits, take_hits
from fastsim.engines.vllm.codes import Admission
from fastsim.engines.vllm.free_list import blocks_for, full_blocks, take_blocks
from fastsim.engines.vllm.lanes import lane_insert, running_append
from fastsim.engines.vllm.policy_file.gates import cap_of_policy, gate_admits
from fastsim.engines.vllm.preemption import add_scheduled, count_scheduled, preempt_request
from fastsim.engines.vllm.recorder import EventKind, cap_reason, note, note_lack, note_refusal
from fastsim.engines.vllm.running_cap import note_cap_bound
from fastsim.engines.vllm.scalars import ScanEnd
from fastsim.engines.vllm.state import NONE
from fastsim.engines.vllm.waiting import compute_keys_anew, dequeue, queue_front
from fastsim.engines.vllm.what_ifs import (
    blocks_leaving,
    defer_candidate,
    hits_leaving,
    note_passed,
    pass_over,
    projection_admits,
    restore_deferred,
    restore_passed_over,
    slot_victim,
    stops_here,
)

ADMITTED = -1


@inlined
def waiting_loop(s):
    """VLLM's waiting loop: admit from the head of the queue until something stops it. Skipped after a preemption."""
    if s.st["preempted"] > 0:
        s.st["scan_end"] = ScanEnd.SKIPPED
        return
    s.st["deferred"] = 0
    s.st["passed_over"] = 0
    s.st["scanned"] = 0
    s.st["scan_end"] = scan_waiting(s)
    if s.st["deferred"] > 0:
        restore_deferred(s)
    if s.st["passed_over"] > 0:
        restore_passed_over(s)
    note_cap_bound(s)


@inlined
def scan_waiting(s):
    """The loop itself: why it ended (ScanEnd). With `bypass`, one that does not fit is set aside, and on it goes."""
    cap = min(s.cfg["max_num_active_seqs"], s.st["cap"])
    s.st["scan_cap"] = s.st["cap"]
    if s.cfg["policy"]:
        cap = cap_of_policy(s, cap)
        if s.cfg["policy_queue_changes"]:
            compute_keys_anew(s)
    while True:
        if s.st["token_budget"] <= 0:
            return ScanEnd.BUDGET
        full = s.st["running"] >= cap
        if full and not s.cfg["slot_preempt"]:
            return ScanEnd.CAP
        i = queue_front(s)
        while i != NONE and s.req.stale[i]:
            pass_over(s, i)
            i = queue_front(s)
        if i == NONE:
            return ScanEnd.EMPTY
        if s.cfg["bypass"] and s.st["scanned"] == s.cfg["admission_scan_limit"]:
            return ScanEnd.SCAN_LIMIT
        s.st["scanned"] += 1
        if full:
            victim = slot_victim(s, i)
            if victim == NONE:
                if s.cfg["record"]:
                    note_refusal(s, i, cap_reason(s), s.st["running"], cap, 0)
                return ScanEnd.CAP
            refusal = admit_in_place(s, i, victim)
        else:
            refusal = try_admit(s, i, NONE)
        if refusal == ADMITTED:
            if s.st["deferred"] > 0 and note_passed(s, i):
                return ScanEnd.BYPASS_LIMIT
        elif refusal != ScanEnd.BLOCKS or not s.cfg["bypass"]:
            return refusal
        elif stops_here(s, i):
            return ScanEnd.BYPASS_LIMIT
        else:
            defer_candidate(s, i)


@helper
def admit_in_place(s, i, victim):
    """Give the slot of `victim` to waiting request `i`: after every other test (preflight), or before any."""
    if s.cfg["slot_preempt_preflight"]:
        refusal = try_admit(s, i, victim)
        if refusal != ADMITTED:
            return refusal
        preempt_request(s, victim, i, 0)
        return try_admit(s, i, NONE)
    preempt_request(s, victim, i, 0)
    refusal = try_admit(s, i, NONE)
    if refusal != ADMITTED:
        s.tot["ineffective_preemptions"] += 1
    return refusal


@helper
def try_admit(s, i, leaving):
    """Admit waiting request `i` if it passes every test; else say which one it failed (ScanEnd).

    With `leaving` (a running request), nothing is touched: the answer is what it would be once that one is preempted.
    """
    swapped = s.req.swapped_blocks[i] > 0
    computed = s.req.num_computed_tokens[i]
    hits = 0
    evictable = 0
    if s.cfg["enable_prefix_caching"] and not swapped:
        hits, evictable = find_hits(s, i)
        computed = hits * s.cfg["block_size"]
    if s.st["defer"] and computed < s.req.num_tokens[i] - 1:
        if s.cfg["record"]:
            note_refusal(s, i, ScanEnd.DEFERRED, 0, 0, 0)
        return ScanEnd.DEFERRED
    tokens = s.req.num_tokens[i] - computed
    if 0 < s.st["threshold"] < tokens:
        tokens = s.st["threshold"]
    budget = s.st["token_budget"]
    running = s.st["running"]
    free = s.st["free"]
    if leaving != NONE:
        budget += s.req.scheduled[leaving] if s.req.lane[leaving] == s.cfg["block_size"] else 1
        running -= 1
        free += blocks_leaving(s, leaving)
        evictable += hits_leaving(s, i, hits, leaving)
    if not s.cfg["enable_chunked_prefill"] and tokens > budget:
        if s.cfg["record"]:
            note_refusal(s, i, ScanEnd.CHUNKING, tokens, budget, 0)
        return ScanEnd.CHUNKING
    tokens = min(tokens, budget)
    if s.cfg["admission"] != Admission.GREEDY and not projection_admits(s, i, leaving):
        return ScanEnd.BLOCKS
    watermark = s.cfg["watermark_blocks"] if running > 0 else 0
    available = free - evictable - watermark
    if not fits(s, i, computed + tokens, hits, swapped, available):
        if s.cfg["record"]:
            for_step = max(blocks_for(s, computed + tokens) - hits, 0) + evictable
            for_all = for_step
            if s.cfg["scheduler_reserve_full_isl"] and not swapped:
                for_all = blocks_for(s, s.req.num_tokens[i]) - hits + evictable
            note_lack(s, i, for_step, for_all, free, watermark)
        return ScanEnd.BLOCKS
    if s.cfg["policy_admit"] and running > 0 and not gate_admits(s, i, computed, hits, tokens):
        if s.cfg["record"]:
            note_refusal(s, i, ScanEnd.POLICY_ADMIT, 0, 0, 0)
        return ScanEnd.POLICY_ADMIT
    if leaving == NONE:
        allocate_slots(s, i, computed + tokens, hits)
        admit(s, i, computed, tokens, swapped)
    return ADMITTED


@helper
def fits(s, i, tokens, hits, swapped, available):
    """The full-sequence gate (not for one that comes back from the host), then the blocks of this step."""
    if available < 0:
        return False
    room = (hits + available) * s.cfg["block_size"]
    if s.cfg["scheduler_reserve_full_isl"] and not swapped and s.req.num_tokens[i] > room:
        return False
    return tokens <= room


@helper
def allocate_slots(s, i, tokens, hits):
    """Give waiting request `i` its hits and the blocks for `tokens` computed tokens; hash what they fill at once."""
    needed = max(blocks_for(s, tokens) - hits, 0)
    if s.cfg["enable_prefix_caching"]:
        if s.req.shared_blocks[i] > 0:
            s.st["rows_free"] -= 1
            s.req.holding_row[i] = s.blk.free_rows[s.st["rows_free"]]
        s.req.life[i] += 1
        take_hits(s, i, hits)
        s.req.num_cached_blocks[i] = hits
    take_blocks(s, needed)
    s.req.num_blocks[i] = hits + needed
    if s.cfg["enable_prefix_caching"]:
        cache_blocks(s, i, full_blocks(s, min(tokens, s.req.num_tokens[i])))


@helper
def admit(s, i, computed, tokens, swapped):
    """Move waiting request `i` to the end of the running list and onto this step's list."""
    if s.cfg["record"]:
        note(s, EventKind.ADMITTED, i, s.req.num_tokens[i], computed, swapped, 0)
    dequeue(s, i)
    s.req.num_computed_tokens[i] = computed
    running_append(s, i)
    lane_insert(s, s.cfg["block_size"], i)
    s.st["protected"] += s.req.protected[i]
    s.st["admitted"] += 1
    if computed < s.req.num_tokens[i] - 1:
        s.st["prefill_ran"] = 1
    count_scheduled(s, i, tokens, 1)
    add_scheduled(s, i, tokens)
    s.log.status[i] = Status.RUNNING
    note_admission_wait(s.log, i, s.req.waiting_since_us[i], s.st["now_us"])
    if s.log.first_scheduled_us[i] == NEVER:
        s.log.first_scheduled_us[i] = s.st["now_us"]
    if swapped:
        blocks = s.req.swapped_blocks[i]
        s.req.swapped_blocks[i] = 0
        s.st["host_blocks"] -= blocks
        s.st["moved_blocks"] += blocks
        s.tot["swapped_in_blocks"] += blocks
        return
    s.log.prefix_hit_tokens[i] += computed
    if s.log.prefix_hit_tokens_first[i] == NEVER:
        s.log.prefix_hit_tokens_first[i] = computed
    if s.log.num_preemptions[i] > 0:
        s.tot["salvaged_tokens"] += computed
