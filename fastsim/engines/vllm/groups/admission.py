"""The waiting loop: who is admitted in this step."""

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import NEVER, Status, note_admission_wait
from fastsim.engines.vllm.admission import ADMITTED
from fastsim.engines.vllm.codes import Admission, Projection
from fastsim.engines.vllm.groups.lookup import find_hits
from fastsim.engines.vllm.groups.schedule import (
    add_scheduled,
    align_chunk,
    has_budget,
    preempt_request,
    room_in_budgets,
    running_append,
)
from fastsim.engines.vllm.groups.tables import (
    blocks_needed,
    count_evictable,
    hits_state_of_this_step,
    most_blocks,
    open_tables,
    slots_of,
    take_hits,
    take_slots,
)
from fastsim.engines.vllm.recorder import EventKind, cap_reason, note, note_lack, note_refusal
from fastsim.engines.vllm.running_cap import note_cap_bound
from fastsim.engines.vllm.scalars import ScanEnd
from fastsim.engines.vllm.state import NONE
from fastsim.engines.vllm.waiting import dequeue, queue_front
from fastsim.engines.vllm.what_ifs import (
    defer_candidate,
    note_passed,
    pass_over,
    restore_deferred,
    restore_passed_over,
    slot_victim,
    stops_here,
)


@inlined
def waiting_loop(s):
    """VLLM's waiting loop: admit from the head of the queue until something stops it. Skipped after a preemption."""
    if s.st["preempted"] > 0:
        s.st["scan_end"] = ScanEnd.SKIPPED
        return
    s.st["deferred"] = 0
    s.st["passed_over"] = 0
    s.st["scanned"] = 0
    s.st["scan_end"] = _scan_waiting(s)
    if s.st["deferred"] > 0:
        restore_deferred(s)
    if s.st["passed_over"] > 0:
        restore_passed_over(s)
    note_cap_bound(s)


@inlined
def _scan_waiting(s):
    """The loop itself: why it ended (ScanEnd). With `bypass`, one that does not fit is set aside, and on it goes."""
    cap = min(s.cfg["max_num_active_seqs"], s.st["cap"])
    s.st["scan_cap"] = s.st["cap"]
    while True:
        if not has_budget(s):
            return ScanEnd.BUDGET
        full = s.st["running"] >= cap
        if full and not s.cfg["slot_preempt"]:
            return ScanEnd.CAP
        i = queue_front(s)
        while i != NONE and s.req.stale[i] > 0:
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
            refusal = try_admit(s, i, victim)
            if refusal == ADMITTED:
                preempt_request(s, victim, i, 0)
                refusal = try_admit(s, i, NONE)
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
def try_admit(s, i, leaving):
    """Admit waiting request `i` if it passes every test; else say which one it failed (ScanEnd).

    With `leaving` (a running request), nothing is touched: the answer is what it would be once that one is preempted.
    """
    find_hits(s, i)
    computed = s.st["hit_tokens"]
    length = s.req.num_tokens[i]
    if s.st["defer"] and computed < length - 1:
        if s.cfg["record"]:
            note_refusal(s, i, ScanEnd.DEFERRED, 0, 0, 0)
        return ScanEnd.DEFERRED
    tokens = length - computed
    room = room_in_budgets(s)
    running = s.st["running"]
    if leaving != NONE:
        running -= 1
        tokens_back = s.req.scheduled[leaving]
        inputs_back = tokens_back + s.cfg["draft_slots"] if tokens_back > 0 else 0
        input_room = s.st["input_budget"] + inputs_back - s.cfg["draft_slots"]
        room = min(s.st["token_budget"] + tokens_back, input_room)
    drafts = 0
    if tokens == 1 and _pads(s, computed):
        drafts = s.cfg["k"]
        tokens += drafts
        if tokens > room:
            return _lacks_budget(s, i, ScanEnd.CHUNKING, tokens, room)
    if 0 < s.st["threshold"] < tokens:
        tokens = s.st["threshold"]
    if not s.cfg["enable_chunked_prefill"] and tokens > room:
        return _lacks_budget(s, i, ScanEnd.CHUNKING, tokens, room)
    tokens = min(tokens, room)
    if s.cfg["aligned_group"] != NONE:
        aligned = align_chunk(s, i, computed, tokens, s.st["junction"])
        if drafts > 0 and aligned < tokens:
            aligned = min(aligned, 1)
            drafts = 0
        tokens = aligned
        if tokens == 0:
            return _lacks_budget(s, i, ScanEnd.ALIGNED, 0, 0)
    if s.cfg["admission"] != Admission.GREEDY and not _projection_admits(s, i, leaving):
        return ScanEnd.BLOCKS
    if not _fits(s, i, computed, computed + tokens, s.cfg["watermark_blocks"] if running > 0 else 0, leaving):
        return ScanEnd.BLOCKS
    if leaving == NONE:
        _admit(s, i, computed, tokens, drafts)
    return ADMITTED


@helper
def _lacks_budget(s, i, reason, needed, room):
    """Request `i` asks for more tokens than there is room for: the scan ends."""
    if s.cfg["record"]:
        note_refusal(s, i, reason, needed, room, 0)
    return ScanEnd.CHUNKING


@inlined
def _pads(s, computed):
    """Whether a request that misses one token is filled up to the shape of a decode with drafts.

    So it is where the running loop scheduled nobody in the middle of a prefill.
    """
    return (
        s.cfg["k"] > 0
        and s.st["may_pad"]
        and (s.st["ran_any"] or computed > 0)
        and computed + s.cfg["k"] + 2 <= s.cfg["max_model_len"]
    )


@helper
def _fits(s, i, start, end, watermark, leaving):
    """The full-sequence gate, then the blocks of this step, beside the hits that leave the free list."""
    if s.cfg["enable_prefix_caching"] and s.cfg["aligned_group"] != NONE and hits_state_of_this_step(s):
        if s.cfg["record"]:
            note_refusal(s, i, ScanEnd.STATE, 0, 0, 0)
        return False
    free = s.st["free"]
    if leaving != NONE:
        free += _hold(s, leaving, -1)
    evictable = count_evictable(s) if s.cfg["enable_prefix_caching"] else 0
    if leaving != NONE:
        _hold(s, leaving, 1)
    for_all = 0
    if s.cfg["scheduler_reserve_full_isl"]:
        whole = s.req.num_tokens[i]
        for_all = blocks_needed(s, i, whole, whole, start, whole, True) + evictable
    for_step = blocks_needed(s, i, end, slots_of(s, end), start, end, False) + evictable
    if max(for_step, for_all) + watermark <= free:
        return True
    if s.cfg["record"]:
        note_lack(s, i, for_step, for_all, free, watermark)
    return False


@helper
def _hold(s, leaving, change):
    """Count every block of running request `leaving` once more, or less. Returns those that nobody else holds."""
    if not s.cfg["enable_prefix_caching"]:
        return s.req.num_blocks[leaving]
    row = s.req.row[leaving]
    alone = 0
    for j in range(s.cfg["num_groups"]):
        place = row * s.cfg["num_groups"] + j
        entries = row * s.cfg["row_width"] + s.grp.offset[s.cfg["first_group"] + j]
        for q in range(s.tab.gone[place], s.tab.length[place]):
            block = s.tab.entries[entries + q]
            if block != NONE:
                s.pool.references[block] += change
                alone += 1 if s.pool.references[block] == 0 else 0
    return alone


@helper
def _admit(s, i, computed, tokens, drafts):
    """Give waiting request `i` its blocks, and move it to the end of the running list and onto this step's list."""
    s.req.junction[i] = s.st["junction"]
    if s.cfg["record"]:
        note(s, EventKind.ADMITTED, i, s.req.num_tokens[i], computed, 0, 0)
    open_tables(s, i)
    if s.cfg["enable_prefix_caching"]:
        take_hits(s, i)
    take_slots(s, i, computed, computed + tokens)
    dequeue(s, i)
    s.req.num_computed_tokens[i] = computed
    running_append(s, i)
    s.st["protected"] += s.req.protected[i]
    s.st["admitted"] += 1
    if computed < s.req.num_tokens[i] - 1:
        s.st["prefill_ran"] = 1
    add_scheduled(s, i, tokens, drafts, 1 if drafts > 0 else 0)
    s.log.status[i] = Status.RUNNING
    note_admission_wait(s.log, i, s.req.waiting_since_us[i], s.st["now_us"])
    if s.log.first_scheduled_us[i] == NEVER:
        s.log.first_scheduled_us[i] = s.st["now_us"]
    s.log.prefix_hit_tokens[i] += computed
    if s.log.prefix_hit_tokens_first[i] == NEVER:
        s.log.prefix_hit_tokens_first[i] = computed
    if s.log.num_preemptions[i] > 0:
        s.tot["salvaged_tokens"] += computed


# --- Projected admission --------------------------------------------------------------------------------------------


@helper
def _expected_blocks(s, i):
    """Blocks of a request at its expected end. A request without declared limit may use all max_model_len leaves."""
    limit = s.cfg["max_model_len"]
    prompt = s.wl.prompt_tokens[i]
    if s.cfg["projection"] == Projection.ORACLE:
        output = s.wl.output_tokens[i]
    elif s.cfg["projection"] == Projection.MAX_TOKENS:
        output = s.wl.max_tokens[i] if s.wl.max_tokens[i] > 0 else limit - prompt
    else:
        output = s.st["mean_output_tokens"]
    return most_blocks(s, min(max(prompt + output, s.req.num_tokens[i] + 1), limit))


@helper
def _projection_admits(s, i, leaving):
    """Whether the expected ends of running and candidate fit in `overcommit` of the pool. Nobody running: always."""
    total = _expected_blocks(s, i)
    others = 0
    k = s.st["running_head"]
    while k != NONE:
        if k != leaving:
            total += _expected_blocks(s, k)
            others += 1
        k = s.req.run_next[k]
    limit = s.cfg["overcommit"] * s.st["usable"]
    if others == 0 or total <= limit:
        return True
    if s.cfg["record"]:
        note_refusal(s, i, ScanEnd.PROJECTION, total, int(limit), 0)
    return False
