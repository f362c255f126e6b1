"""The books of a run: what a step adds to the totals, once or many times over, and what the request log ends with."""

from fastsim._jit import helper
from fastsim.engines.outputs import NEVER, Status
from fastsim.engines.rlt.codes import (
    CODA,
    FINISHED,
    NONE,
    PENDING,
    PREFILL,
    PRELUDE,
    RECURRENT,
    UNSERVABLE,
    WAITING,
)
from fastsim.engines.rlt.pages import free_blocks
from fastsim.engines.rlt.queues import num_waiting

IS_PENDING = int(Status.PENDING)
IS_WAITING = int(Status.WAITING)
IS_RUNNING = int(Status.RUNNING)
IS_FINISHED = int(Status.FINISHED)
IS_UNSERVABLE = int(Status.UNSERVABLE)


@helper
def reset_log(st, wl, log):
    """Nothing has happened to any request yet."""
    for i in range(st["num_requests"]):
        log.arrival_us[i] = wl.arrival_us[i]
        log.first_scheduled_us[i] = NEVER
        log.first_token_us[i] = NEVER
        log.first_life_token_us[i] = NEVER
        log.last_token_us[i] = NEVER
        log.finish_us[i] = NEVER
        log.num_generated[i] = 0
        log.num_preemptions[i] = 0
        log.prefix_hit_tokens_first[i] = NEVER
        log.prefix_hit_tokens[i] = 0
        log.scheduled_tokens[i] = 0
        log.admission_wait_us[i] = 0
        log.admission_wait_end_us[i] = 0
        log.status[i] = IS_PENDING


@helper
def reset_totals(cfg, st, s, totals, extra, itl):
    """Zero what accumulates, and write what is known before the first step."""
    reset_log(st, s.wl, s.log)
    for k in range(itl.histogram.shape[0]):
        itl.histogram[k] = 0
    totals["steps"] = 0
    totals["empty_steps"] = 0
    totals["prefill_tokens"] = 0
    totals["decode_tokens"] = 0
    totals["preemptions"] = 0
    totals["completed"] = 0
    totals["first_arrival_us"] = s.wl.arrival_us[0] if st["num_requests"] > 0 else NEVER
    totals["recomputed_tokens"] = 0  # a swap loses nothing
    totals["discarded_tokens"] = 0
    totals["salvaged_tokens"] = 0
    totals["swapped_out_blocks"] = 0
    totals["swapped_in_blocks"] = 0
    totals["swap_fallbacks"] = 0
    totals["ineffective_preemptions"] = 0
    totals["kv_block_us"] = 0
    totals["kv_peak_blocks"] = 0
    totals["running_us"] = 0
    totals["running_peak"] = 0
    totals["waiting_peak"] = max(totals["waiting_peak"], num_waiting(st))
    totals["batch_tokens_peak"] = 0
    totals["busy_us"] = 0
    totals["waiting_peak"] = 0
    totals["rejected"] = 0
    totals["held"] = 0
    totals["timed_out"] = 0
    totals["unservable"] = 0
    totals["cap_min"] = cfg["max_num_seqs"]
    totals["cap_final"] = cfg["max_num_seqs"]
    totals["livelock_step"] = NEVER
    totals["livelock_us"] = NEVER
    totals["livelock_kind"] = 0
    totals["itl_count"] = 0
    totals["itl_sum_us"] = 0
    totals["itl_max_us"] = 0
    totals["usable_blocks"] = cfg["num_blocks"]
    totals["last_completion_us"] = max(totals["first_arrival_us"], 0)
    totals["first_completion_us"] = NEVER
    totals["first_recomputed"] = 0
    totals["prefill_tokens_then"] = 0
    totals["decode_tokens_then"] = 0
    totals["recomputed_tokens_then"] = 0
    totals["discarded_tokens_then"] = 0
    totals["starved_gap_us"] = 0
    totals["starved_at_us"] = 0
    extra["resumptions"] = 0
    extra["slot_preemptions"] = 0
    extra["grow_preemptions"] = 0
    extra["failed_growths"] = 0
    extra["blocked"] = 0
    extra["deferred"] = 0
    extra["admissions"] = 0
    extra["prefill_steps"] = 0
    extra["prelude_steps"] = 0
    extra["recurrent_steps"] = 0
    extra["coda_steps"] = 0
    extra["skipped_steps"] = 0
    extra["livelock_period"] = 0


@helper
def account_step(cfg, st, totals, extra, stage, step_us):
    """Book a step of `step_us` microseconds that has been scheduled and not yet updated."""
    used = cfg["num_blocks"] - free_blocks(cfg, st)
    totals["steps"] += 1
    if st["slot_preemptions"] + st["grow_preemptions"] > 0:
        totals["preemptions"] += st["slot_preemptions"] + st["grow_preemptions"]
    totals["swapped_out_blocks"] += st["moved_out_blocks"]
    totals["swapped_in_blocks"] += st["moved_in_blocks"]
    totals["ineffective_preemptions"] += st["ineffective_preemptions"]
    totals["kv_block_us"] += used * step_us
    totals["kv_peak_blocks"] = max(totals["kv_peak_blocks"], used)
    totals["running_us"] += st["num_active"] * step_us
    totals["running_peak"] = max(totals["running_peak"], st["num_active"])
    totals["waiting_peak"] = max(totals["waiting_peak"], num_waiting(st))
    totals["batch_tokens_peak"] = max(totals["batch_tokens_peak"], st["batch_tokens"])
    if stage == NONE:
        totals["empty_steps"] += 1
    else:
        totals["busy_us"] += step_us
    extra["resumptions"] += st["restores"]
    extra["slot_preemptions"] += st["slot_preemptions"]
    extra["grow_preemptions"] += st["grow_preemptions"]
    extra["failed_growths"] += st["failed_growths"]
    extra["blocked"] += st["blocked"]
    extra["deferred"] += st["deferred"]
    extra["admissions"] += st["admissions"]
    extra["prefill_steps"] += stage == PREFILL
    extra["prelude_steps"] += stage == PRELUDE
    extra["recurrent_steps"] += stage == RECURRENT
    extra["coda_steps"] += stage == CODA


@helper
def final_status(stage):
    """Where a request is at the end, in the words all engines share."""
    if stage == PENDING:
        return IS_PENDING
    if stage == WAITING:
        return IS_WAITING
    if stage == FINISHED:
        return IS_FINISHED
    if stage == UNSERVABLE:
        return IS_UNSERVABLE
    return IS_RUNNING


@helper
def finish_totals(cfg, st, s, totals, extra):
    """Write what is only known at the end."""
    totals["end_us"] = st["now_us"]
    totals["cap_steps"] = cfg["max_num_seqs"] * (totals["steps"] - totals["empty_steps"])
    extra["free_end_blocks"] = free_blocks(cfg, st)
    extra["snapshots_end"] = 0
    extra["max_bypasses"] = 0
    for i in range(st["num_requests"]):
        s.log.num_generated[i] = s.req.outputs[i]
        s.log.status[i] = final_status(s.req.stage[i])
        extra["snapshots_end"] += s.req.saved_stage[i] != NONE
        extra["max_bypasses"] = max(extra["max_bypasses"], s.req.bypasses[i])
