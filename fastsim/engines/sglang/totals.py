"""The books of a run: what they start and end with."""

from fastsim._jit import helper
from fastsim.engines.outputs import NEVER
from fastsim.engines.sglang.codes import ABORTED, LIVELOCK, NO_PROGRESS, NONE, PENDING


@helper
def reset_requests(st, s):
    """Nothing has happened to any request yet."""
    req = s.req
    log = s.log
    for i in range(st["num_requests"]):
        req.status[i] = PENDING
        req.limit[i] = 0
        req.target[i] = 0
        req.stop_position[i] = NONE
        req.generated[i] = 0
        req.prefix[i] = 0
        req.kv[i] = 0
        req.protected[i] = 0
        req.node[i] = NONE
        req.chunk_end[i] = NONE
        req.has_row[i] = 0
        req.tokens_at_match[i] = 0
        req.lives[i] = 0
        req.token_batch[i] = NONE
        req.computed_peak[i] = 0
        req.prefilled[i] = 0
        req.retractions[i] = 0
        req.preemptions[i] = 0
        log.arrival_us[i] = s.wl.arrival_us[i]
        log.first_scheduled_us[i] = NEVER
        log.first_token_us[i] = NEVER
        log.first_life_token_us[i] = NEVER
        log.last_token_us[i] = NEVER
        log.finish_us[i] = NEVER
        log.prefix_hit_tokens_first[i] = NEVER
        log.prefix_hit_tokens[i] = 0
        log.scheduled_tokens[i] = 0
        log.admission_wait_us[i] = 0
        log.admission_wait_end_us[i] = 0
    s.lists.kept_group[:] = 0
    s.gaps.histogram[:] = 0


@helper
def reset_totals(cfg, st, s, tot):
    """Zero what accumulates, and write what is known before the first step."""
    tot["steps"] = 0
    tot["empty_steps"] = 0
    tot["prefill_tokens"] = 0
    tot["decode_tokens"] = 0
    tot["preemptions"] = 0
    tot["completed"] = 0
    tot["first_arrival_us"] = s.wl.arrival_us[s.wl.order[0]] if st["num_requests"] > 0 else NEVER
    tot["recomputed_tokens"] = 0
    tot["discarded_tokens"] = 0
    tot["salvaged_tokens"] = 0
    tot["swapped_out_blocks"] = 0
    tot["swapped_in_blocks"] = 0
    tot["swap_fallbacks"] = 0
    tot["ineffective_preemptions"] = 0
    tot["kv_block_us"] = 0
    tot["kv_peak_blocks"] = 0
    tot["running_us"] = 0
    tot["running_peak"] = 0
    tot["batch_tokens_peak"] = 0
    tot["busy_us"] = 0
    tot["rejected"] = 0
    tot["held"] = 0
    tot["timed_out"] = 0
    tot["unservable"] = 0
    tot["cap_min"] = cfg["max_running_requests"]
    tot["cap_final"] = cfg["max_running_requests"]
    tot["livelock_step"] = NEVER
    tot["livelock_us"] = NEVER
    tot["livelock_kind"] = 0
    tot["itl_count"] = 0
    tot["itl_sum_us"] = 0
    tot["itl_max_us"] = 0
    tot["usable_blocks"] = cfg["pool"] // cfg["page_size"]
    tot["last_completion_us"] = max(tot["first_arrival_us"], 0)
    tot["first_completion_us"] = NEVER
    tot["first_recomputed"] = 0
    tot["prefill_tokens_then"] = 0
    tot["decode_tokens_then"] = 0
    tot["recomputed_tokens_then"] = 0
    tot["discarded_tokens_then"] = 0
    tot["starved_gap_us"] = 0
    tot["starved_at_us"] = 0


@helper
def finish_totals(cfg, st, s, tot, own, stop):
    """Write what is only known at the end."""
    tot["stop"] = stop
    tot["end_us"] = st["now_us"]
    b = s.batches
    for slot in range(2):  # what is in flight when the run ends goes on behind it
        beyond_us = b.end_us[slot] - max(b.start_us[slot], st["now_us"])
        if beyond_us > 0:
            tot["busy_us"] -= beyond_us
            tot["kv_block_us"] -= beyond_us * b.held_pages[slot]
            tot["running_us"] -= beyond_us * b.seats[slot]
    tot["waiting_peak"] = st["waiting_peak"]
    if stop == LIVELOCK:
        tot["livelock_step"] = tot["steps"]
        tot["livelock_us"] = st["now_us"]
        tot["livelock_kind"] = NO_PROGRESS
    tot["cap_steps"] = cfg["max_running_requests"] * tot["steps"]
    own["retractions"] = 0
    own["preemptions"] = 0
    own["aborted"] = 0
    for i in range(st["num_requests"]):
        own["retractions"] += s.req.retractions[i]
        own["preemptions"] += s.req.preemptions[i]
        own["aborted"] += s.req.status[i] == ABORTED
        s.log.num_generated[i] = s.req.generated[i]
        s.log.num_preemptions[i] = s.req.retractions[i] + s.req.preemptions[i]
        s.log.status[i] = s.req.status[i]
    tot["preemptions"] = own["retractions"] + own["preemptions"]
    tot["rejected"] = own["aborted"]
