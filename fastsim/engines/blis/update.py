"""What a step does once its batch is formed: its time, the tokens, the completions."""

from fastsim._jit import helper
from fastsim.engines.blis.blocks import allocate_token, release
from fastsim.engines.blis.clock import enter_clock, find_next_end, generated_tokens, pass_over, progress_of
from fastsim.engines.blis.codes import FINISHED, NONE
from fastsim.engines.blis.gaps import count_gaps, log_steps
from fastsim.engines.blis.lru import mirror
from fastsim.engines.blis.preemption import end_life
from fastsim.engines.blis.tier import tier_allocate_token
from fastsim.engines.heap import heap_remove
from fastsim.engines.outputs import note_completion


@helper
def step_time(cfg, prefill_tokens, decode_tokens):
    """Duration of a step in microseconds, truncated, at least 1."""
    return max(1, int(cfg["beta0_us"] + cfg["beta1_us"] * prefill_tokens + cfg["beta2_us"] * decode_tokens))


@helper
def execute_step(cfg, st, s, tot):
    """Give the batch its tokens. Their effects are immediate; only the next step is later."""
    known = st["running"] - st["admitted"]  # running before this step
    st["decode_tokens"] = st["cursor"]
    st["prefill_tokens"] = 0
    explicit = 0 if st["prefilling"] > st["admitted"] else known  # first place that may hold a prefill
    for at in range(explicit, st["running"]):
        i = s.lists.running[at]
        if s.req.lane[i] == NONE and (at < st["cursor"] or at >= known):
            st["prefill_tokens"] += s.req.num_new_tokens[i]
            st["decode_tokens"] -= at < known
    step_us = step_time(cfg, st["prefill_tokens"], st["decode_tokens"]) + st["transfer_us"]
    st["transfer_us"] = 0
    st["step_time_us"] = step_us
    st["count"] = 1
    end_us = st["now_us"] + step_us
    if st["cursor"] < known:
        st["sealed"] = 1
    segment = st["segments"]
    if st["decode_tokens"] > 0:
        log_steps(st, s.gaps)
    st["skipped"] = 0
    for at in range(st["cursor"], known):
        i = s.lists.running[at]
        if s.req.lane[i] != NONE:
            pass_over(cfg, st, s, i, segment)
            st["skipped"] += 1
    if st["skipped"] > 0:
        find_next_end(st, s)
    st["block_steps"] = cfg["total_kv_blocks"] - st["free"]
    count_steps(cfg, st, tot, st["now_us"])
    advance_clock(cfg, st, end_us)
    for at in range(explicit, st["running"]):
        i = s.lists.running[at]
        if s.req.lane[i] == NONE:
            s.req.progress[i] = s.req.computed[i]
            if s.req.progress[i] == s.wl.prompt_tokens[i]:
                enter_clock(cfg, st, s, i, end_us)
    if cfg["kv_cpu_blocks"] > 0:
        mirror(cfg, st, s)


@helper
def advance_clock(cfg, st, end_us):
    """`count` steps of `step_time_us` have run; the last one ends at `end_us`."""
    st["clock"] += st["count"]
    st["phase"] = (st["phase"] + st["count"]) % cfg["block_size"]
    st["decoded_us"] += st["count"] * st["step_time_us"]
    st["last_end_us"] = end_us


@helper
def count_steps(cfg, st, tot, start_us):
    """Totals of `count` equal steps, the first of which starts at `start_us`; the last one stays open."""
    count = st["count"]
    running = st["running"]
    tokens = st["prefill_tokens"] + st["decode_tokens"]
    step_us = st["step_time_us"]
    held = cfg["total_kv_blocks"] - st["free"]
    close_step(st, tot, start_us)
    tot["steps"] += count
    tot["prefill_tokens"] += count * st["prefill_tokens"]
    tot["decode_tokens"] += count * st["decode_tokens"]
    if tokens == 0:
        tot["empty_steps"] += count
    else:
        tot["busy_us"] += (count - 1) * step_us
    tot["kv_block_us"] += (st["block_steps"] - held) * step_us
    tot["kv_peak_blocks"] = max(tot["kv_peak_blocks"], held)
    tot["running_us"] += (count - 1) * running * step_us
    tot["running_peak"] = max(tot["running_peak"], running)
    tot["batch_tokens_peak"] = max(tot["batch_tokens_peak"], tokens)
    st["open_since_us"] = start_us + (count - 1) * step_us
    st["open_until_us"] = max(st["open_until_us"], start_us + count * step_us)
    st["open_blocks"] = held
    st["open_running"] = running
    st["open_busy"] = tokens > 0


@helper
def close_step(st, tot, now_us):
    """Count the time of the latest step, which is over by now or overtaken by another (BLIS's steps may overlap).

    No moment counts twice, and none behind the end of the run: a moment is the latest step's, until all are over.
    """
    us = min(st["open_until_us"], now_us) - st["open_since_us"]
    tot["busy_us"] += us * st["open_busy"]
    tot["kv_block_us"] += us * st["open_blocks"]
    tot["running_us"] += us * st["open_running"]


@helper
def complete_requests(cfg, st, s, tot, itl):
    """Requests whose last step this was leave, in running order."""
    st["finished"] = 0
    if st["clock"] < st["next_end"]:
        return
    kept = 0
    for at in range(st["running"]):
        i = s.lists.running[at]
        if s.req.lane[i] != NONE and s.req.end_clock[i] == st["clock"]:
            finish(cfg, st, s, tot, itl, i)
        else:
            s.lists.running[kept] = i
            kept += 1
    st["finished"] = st["running"] - kept
    st["running"] = kept
    find_next_end(st, s)


@helper
def finish(cfg, st, s, tot, itl, i):
    """`i` has its last token. BLIS takes a slot for it although nothing will read it, and needs none to complete."""
    end_us = st["last_end_us"]
    progress = progress_of(st, s, i)
    slots = progress
    if s.wl.output_tokens[i] > 0:
        if cfg["kv_cpu_blocks"] > 0:
            allocated = tier_allocate_token(cfg, st, s, i, progress, st["clock"])
        else:
            allocated = allocate_token(cfg, st, s, i, progress, st["phase"])
        slots += allocated
        st["kv_allocation_failures"] += not allocated
    gaps = progress - s.wl.prompt_tokens[i]
    itl_sum_us = st["decoded_us"] - s.req.decode_start_us[i] + gaps * cfg["output_token_us"]
    s.blis.itl_sum_us[i] = itl_sum_us
    s.blis.itl_count[i] = gaps
    s.blis.e2e_us[i] = s.blis.ttft_us[i] + itl_sum_us
    generated = generated_tokens(st, s, i)
    count_gaps(st, s, tot, itl, i)
    s.lists.lane_size[s.req.lane[i]] -= 1
    s.req.lane[i] = NONE
    s.req.progress[i] = progress
    end_life(s, tot, i)
    release(cfg, st, s, i, slots)
    st["total_output_tokens"] += generated
    tot["completed"] += 1
    note_completion(tot, cfg["beta1_us"], end_us)
    log = s.log
    log.status[i] = FINISHED
    log.finish_us[i] = end_us
    log.last_token_us[i] = end_us
    log.num_generated[i] = generated
    if s.deadlines.place[i] != NONE:
        heap_remove(s.deadlines, i)
