"""The admission scan: priority order, bounded bypass of requests that do not fit, slot preemption, restores."""

from fastsim._jit import helper
from fastsim.engines.rlt.codes import (
    NONE,
    NOTE_ADMIT,
    NOTE_BLOCKED,
    NOTE_DEFER,
    NOTE_PREEMPT_SLOT,
    NOTE_RESTORE,
    NOTE_STOP,
    NOTHING,
    PREFILL,
    PRIORITY,
    STOP_BLOCKED_LIMIT,
    STOP_BYPASS_LIMIT,
    STOP_DEFER_LIMIT,
    STOP_SLOTS,
)
from fastsim.engines.rlt.pages import (
    claim_pages,
    count_hits,
    free_blocks,
    pages_for,
    pin_hits,
    required_blocks,
)
from fastsim.engines.rlt.queues import num_waiting, pop_waiting, push, push_back_deferred, sort_waiting
from fastsim.engines.rlt.swap import choose_victim, end_wait, preempt, restore
from fastsim.engines.rlt.tape import note
from fastsim.engines.rlt.wavefront import start_wave


@helper
def capacity(s, i):
    """Positions request `i` can ever hold: its last sample never enters the KV cache."""
    return s.wl.prompt_tokens[i] + s.wl.max_tokens[i] - 1


@helper
def promised_growth(cfg, st, s):
    """Blocks that active requests were admitted with and have not taken yet."""
    total = 0
    if cfg["incremental"]:
        for k in range(st["num_active"]):
            i = s.lists.active[k]
            held = s.req.held_pages[i] * cfg["planes"]
            if not cfg["enable_preemption"]:
                total += required_blocks(cfg, capacity(s, i)) - held
            elif s.req.stage[i] == PREFILL:
                total += required_blocks(cfg, s.wl.prompt_tokens[i]) - held
    return total


@helper
def admit_fresh(cfg, st, s, i, growth):
    """Admit request `i`, new to the engine, if its budget fits beside what was promised to others."""
    prompt = s.wl.prompt_tokens[i]
    hits = 0
    idle_hits = 0
    if cfg["prefix_caching"]:
        hits, idle_hits = count_hits(s, i)
    budget = prompt if cfg["incremental"] and cfg["enable_preemption"] else capacity(s, i)
    total = required_blocks(cfg, budget) + growth + (idle_hits - hits) * cfg["planes"]
    if st["num_active"] > 0:
        total += cfg["headroom_blocks"]
    if total > free_blocks(cfg, st):
        return False
    cached = hits * cfg["block_size"]
    tokens = min(prompt, cached + cfg["prefill_chunk_size"]) if cfg["incremental"] else capacity(s, i)
    if cfg["prefix_caching"]:
        pin_hits(st, s, i, hits)
    claim_pages(cfg, st, s, i, pages_for(cfg, tokens) - hits)
    s.req.prefilled[i] = cached
    s.req.stage[i] = PREFILL
    if cfg["wavefront"]:
        start_wave(cfg, s, i, cached)
    else:
        push(s.stages, PREFILL, i)
    note(st, s.tape, NOTE_ADMIT, i, cached, total, NOTHING)
    s.log.prefix_hit_tokens_first[i] = cached
    s.log.prefix_hit_tokens[i] = cached
    st["admissions"] += 1
    end_wait(st, s, i)
    return True


@helper
def free_a_slot(cfg, st, s, i):
    """Swap a request of strictly worse priority out for the head `i`, before it is known whether the head fits."""
    if cfg["policy"] != PRIORITY or not cfg["enable_preemption"]:
        return False
    victim = choose_victim(cfg, st, s, i, s.wl.priority[i])
    if victim == NONE:
        return False
    note(st, s.tape, NOTE_PREEMPT_SLOT, i, victim, NOTHING, NOTHING)
    preempt(cfg, st, s, victim)
    st["slot_preemptions"] += 1
    return True


@helper
def count_bypass(cfg, s, num_deferred):
    """Somebody was admitted behind the deferred requests: True when one of them has now been passed too often."""
    stop = False
    for k in range(num_deferred):
        passed = s.lists.deferred[k]
        s.req.bypasses[passed] += 1
        if s.req.bypasses[passed] >= cfg["max_admission_bypasses"]:
            stop = True
    return stop


@helper
def defer(cfg, st, s, i, num_deferred, slot_taken, resumes):
    """Request `i` does not fit and is passed over. True when it may not be passed any more: the scan stops."""
    s.lists.deferred[num_deferred] = i
    st["ineffective_preemptions"] += slot_taken
    note(st, s.tape, NOTE_BLOCKED if resumes else NOTE_DEFER, i, s.req.bypasses[i], NOTHING, NOTHING)
    if resumes:
        st["blocked"] += 1
    else:
        st["deferred"] += 1
    if s.req.bypasses[i] < cfg["max_admission_bypasses"] or (resumes and not cfg["blocked_checks_limit"]):
        return False
    note(st, s.tape, NOTE_STOP, STOP_BLOCKED_LIMIT if resumes else STOP_DEFER_LIMIT, NOTHING, NOTHING, NOTHING)
    return True


@helper
def admit(cfg, st, s):
    """One scan over the head of the waiting queue."""
    sort_waiting(cfg, st, s.lists, s.wl.priority)
    num_deferred = 0
    growth = NONE  # not known
    for _ in range(min(num_waiting(st), cfg["admission_scan_limit"])):
        i = s.lists.waiting[st["wait_head"]]
        slot_taken = 0
        if st["num_active"] >= cfg["max_num_seqs"]:
            if not free_a_slot(cfg, st, s, i):
                note(st, s.tape, NOTE_STOP, STOP_SLOTS, NOTHING, NOTHING, NOTHING)
                break
            slot_taken = 1
            growth = NONE
        pop_waiting(st, s.lists)
        resumes = s.req.saved_stage[i] != NONE
        if resumes:
            admitted = restore(cfg, st, s, i)
        else:
            if growth == NONE:
                growth = promised_growth(cfg, st, s)
            admitted = admit_fresh(cfg, st, s, i, growth)
        if not admitted:
            stop = defer(cfg, st, s, i, num_deferred, slot_taken, resumes)
            num_deferred += 1
            if stop:
                break
            continue
        growth = NONE
        if resumes:
            note(st, s.tape, NOTE_RESTORE, i, NOTHING, NOTHING, NOTHING)
            st["restores"] += 1
            if not cfg["count_restores"]:
                continue
        if count_bypass(cfg, s, num_deferred):
            note(st, s.tape, NOTE_STOP, STOP_BYPASS_LIMIT, NOTHING, NOTHING, NOTHING)
            break
    push_back_deferred(st, s.lists, num_deferred)
