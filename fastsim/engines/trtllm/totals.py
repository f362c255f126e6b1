"""The books of a run: what they start and end with."""

from fastsim._jit import helper
from fastsim.engines.outputs import NEVER
from fastsim.engines.trtllm.capacity import blocks_of
from fastsim.engines.trtllm.codes import PENDING


@helper
def reset_run(cfg, st, s, tot):
    """Forget everything a run before this one left."""
    st["now_us"] = 0
    st["next_own"] = 0
    st["num_own"] = s.wl.order.shape[0]
    st["next_sent"] = 0
    st["num_sent"] = 0
    st["clients"] = s.wl.clients[0]
    st["next_client"] = st["num_own"]
    st["num_active"] = 0
    st["num_started"] = 0
    st["num_generating"] = 0
    st["free"] = cfg["num_blocks"]
    st["blocked"] = 0
    st["plain"] = 0
    st["step_us"] = 0
    st["waiting_peak"] = 0
    st["rows"] = 0
    reset_totals(cfg, st, s, tot)
    for i in range(st["num_requests"]):
        reset_request(cfg, s, i)
    s.gaps.histogram[:] = 0


@helper
def reset_request(cfg, s, i):
    """Nothing has happened to a request yet."""
    req = s.req
    log = s.log
    prompt = s.wl.prompt_tokens[i]
    req.status[i] = PENDING
    req.limit[i] = max(min(s.wl.max_new_tokens[i], cfg["longest"] - prompt), 0)
    req.target[i] = min(s.wl.output_tokens[i], req.limit[i])
    req.context[i] = prompt
    req.computed[i] = 0
    req.in_kv[i] = 0
    req.generated[i] = 0
    req.blocks[i] = 0
    req.whole[i] = blocks_of(cfg, prompt + req.limit[i])
    req.most_computed[i] = 0
    req.pauses[i] = 0
    req.waiting_since_us[i] = 0
    req.chunk[i] = 0
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


@helper
def reset_totals(cfg, st, s, tot):
    """Zero what accumulates, and write what is known before the first step."""
    tot["steps"] = 0
    tot["empty_steps"] = 0
    tot["prefill_tokens"] = 0
    tot["decode_tokens"] = 0
    tot["preemptions"] = 0
    tot["completed"] = 0
    tot["first_arrival_us"] = s.wl.arrival_us[s.wl.order[0]] if st["num_own"] > 0 else NEVER
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
    tot["cap_min"] = cfg["max_batch_size"]
    tot["cap_final"] = cfg["max_batch_size"]
    tot["livelock_step"] = NEVER
    tot["livelock_us"] = NEVER
    tot["livelock_kind"] = 0
    tot["itl_count"] = 0
    tot["itl_sum_us"] = 0
    tot["itl_max_us"] = 0
    tot["usable_blocks"] = cfg["num_blocks"]
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
def finish_run(cfg, st, s, tot, stop):
    """Write what is only known at the end."""
    tot["stop"] = stop
    tot["end_us"] = st["now_us"]
    tot["waiting_peak"] = st["waiting_peak"]
    tot["cap_steps"] = cfg["max_batch_size"] * tot["steps"]
    for i in range(st["num_requests"]):
        s.log.num_generated[i] = s.req.generated[i]
        s.log.num_preemptions[i] = s.req.pauses[i]
        s.log.status[i] = s.req.status[i]
