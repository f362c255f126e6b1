"""Start and end of a run: put the state back in place, and write out what is still on the clock."""

from fastsim._jit import helper
from fastsim.engines.outputs import NEVER, Status
from fastsim.engines.vllm.arrivals import NEVER_ARRIVES, next_arrival_us, push_arrival
from fastsim.engines.vllm.codes import Unservable
from fastsim.engines.vllm.free_list import ANONYMOUS
from fastsim.engines.vllm.gaps import settle_gaps
from fastsim.engines.vllm.lanes import NO_END, end_life, materialise
from fastsim.engines.vllm.running_cap import initial_cap
from fastsim.engines.vllm.state import NONE

PENDING = int(Status.PENDING)
UNSERVABLE = int(Status.UNSERVABLE)
REJECT = int(Unservable.REJECT)


@helper
def reset(cfg, st, tot, flat, wl, req, q, blk, log, itl):
    """Everything as before the first step. `flat` are the scalars and the totals as plain arrays."""
    _clear(flat.scalars)
    _clear(flat.totals)
    _clear(itl.histogram)
    _reset_scalars(cfg, st, tot)
    for lane in range(cfg["block_size"] + 1):
        q.lane_head[lane] = NONE
        q.lane_tail[lane] = NONE
        q.lane_size[lane] = 0
    _reset_requests(cfg, wl, req, log)
    if cfg["enable_prefix_caching"]:
        _reset_blocks(cfg, st, wl, req, blk)
    _reset_arrivals(st, tot, wl, q, log)
    st["cap"] = initial_cap(cfg, st, wl)
    tot["cap_min"] = st["cap"]
    outputs = 0
    num_requests = wl.prompt_tokens.shape[0]
    for i in range(num_requests):
        outputs += wl.output_tokens[i]
    st["mean_output_tokens"] = (outputs + num_requests - 1) // max(num_requests, 1)


@helper
def _clear(values):
    for k in range(values.shape[0]):
        values[k] = 0


@helper
def _reset_scalars(cfg, st, tot):
    st["queue_head"] = NONE
    st["queue_tail"] = NONE
    st["running_head"] = NONE
    st["running_tail"] = NONE
    st["free_head"] = NONE
    st["free_tail"] = NONE
    st["node_free"] = NONE
    st["cursor_explicit"] = NONE
    st["cursor_due"] = NONE
    st["usable"] = cfg["num_gpu_blocks"] - 1  # one block is the null block
    st["free"] = st["usable"]
    st["last_prefill"] = -cfg["prefill_schedule_interval"]
    st["clock_next_end"] = NO_END
    tot["usable_blocks"] = st["usable"]
    tot["livelock_step"] = NEVER
    tot["livelock_us"] = NEVER


@helper
def _reset_requests(cfg, wl, req, log):
    req.num_computed_tokens[:] = 0
    req.num_blocks[:] = 0
    req.num_cached_blocks[:] = 0
    req.max_computed_tokens[:] = 0
    req.in_heap[:] = 0
    req.scheduled[:] = 0
    req.mid_prefill[:] = 0
    req.lane[:] = NONE
    req.heap_place[:] = NONE
    req.bypasses[:] = 0
    req.protected[:] = 0
    req.swapped_blocks[:] = 0
    req.flights[:] = 0
    req.stale[:] = 0
    log.first_scheduled_us[:] = NEVER
    log.first_token_us[:] = NEVER
    log.first_life_token_us[:] = NEVER
    log.last_token_us[:] = NEVER
    log.finish_us[:] = NEVER
    log.num_preemptions[:] = 0
    log.prefix_hit_tokens_first[:] = NEVER
    log.prefix_hit_tokens[:] = 0
    log.scheduled_tokens[:] = 0
    log.admission_wait_us[:] = 0
    log.status[:] = PENDING
    for i in range(wl.prompt_tokens.shape[0]):
        prompt = wl.prompt_tokens[i]
        req.num_tokens[i] = prompt
        req.max_num_tokens[i] = prompt
        req.final_tokens[i] = min(prompt + wl.output_tokens[i], cfg["max_model_len"])
        log.arrival_us[i] = wl.arrival_us[i]
        if outgrows_model(cfg, wl, i) or (cfg["unservable"] == REJECT and outgrows_pool(cfg, wl, i)):
            log.status[i] = UNSERVABLE


@helper
def outgrows_model(cfg, wl, i):
    """Whether the prompt of request `i` leaves no room for an output token: vLLM's front door refuses it.

    So nobody in the scheduler is longer than `max_model_len`, and no count of blocks has to be cut there.
    """
    return wl.prompt_tokens[i] >= cfg["max_model_len"]


@helper
def outgrows_pool(cfg, wl, i):
    """Whether request `i` could not run to its end even alone. The last token that it samples needs no KV."""
    longest = min(wl.prompt_tokens[i] + wl.output_tokens[i], cfg["max_model_len"]) - 1
    return longest > (cfg["num_gpu_blocks"] - 1) * cfg["block_size"]


@helper
def _reset_blocks(cfg, st, wl, req, blk):
    block_size = cfg["block_size"]
    slots = 0
    for group in range(wl.group_parent.shape[0]):
        first = wl.group_start_tokens[group] // block_size
        blk.group_slot[group] = slots
        blk.group_first_block[group] = first
        slots += max(wl.group_end_tokens[group] // block_size - first, 0)
    for slot in range(slots):
        blk.first_copy[slot] = NONE
        blk.last_copy[slot] = NONE
    for i in range(wl.prompt_tokens.shape[0]):
        shared = min(wl.prefix_tokens[i], wl.prompt_tokens[i]) if wl.prefix_group[i] >= 0 else 0
        req.shared_blocks[i] = shared // block_size
        req.cached_runs[i] = NONE
        req.held_runs[i] = NONE
        req.life[i] = 0
        req.holding_row[i] = NONE
    rows = blk.free_rows.shape[0]
    for row in range(rows):
        blk.free_rows[row] = row
    st["rows_free"] = rows
    # The whole pool is one run without content
    blk.owner[0] = ANONYMOUS
    blk.length[0] = st["usable"]
    blk.next[0] = NONE
    blk.prev[0] = NONE
    blk.sibling[0] = NONE
    st["node_used"] = 1
    if st["usable"] > 0:
        st["free_head"] = 0
        st["free_tail"] = 0


@helper
def _reset_arrivals(st, tot, wl, q, log):
    num_requests = wl.order.shape[0]
    st["clients"] = wl.clients[0]
    if st["clients"] == 0:
        # Only servable requests arrive; the cursor runs over `order`, which is copied without the others
        size = 0
        for k in range(num_requests):
            i = wl.order[k]
            if log.status[i] == PENDING:
                q.arrivals[size] = i
                size += 1
        st["own_arrivals"] = size
    else:
        sent = 0
        while sent < st["clients"] and st["next_client"] < num_requests:
            i = st["next_client"]
            st["next_client"] = i + 1
            if log.status[i] == PENDING:
                push_arrival(st, q, log, i, log.arrival_us[i])
                sent += 1
    for i in range(num_requests):
        tot["unservable"] += 1 if log.status[i] == UNSERVABLE else 0
    arrival_us = next_arrival_us(st, q, log)
    tot["first_arrival_us"] = NEVER if arrival_us == NEVER_ARRIVES else arrival_us
    tot["last_completion_us"] = max(tot["first_arrival_us"], 0)
    tot["last_preemption_us"] = NEVER
    tot["starved_at_us"] = NEVER


@helper
def settle(cfg, st, tot, wl, req, q, log, itl, stop):
    """The end of a run: write the counters out and total up."""
    materialise(cfg, st, req, q, log, NONE)
    settle_gaps(cfg, st, tot, req, log, itl)
    i = st["running_head"]
    while i != NONE:
        end_life(tot, req, log, i)
        i = req.run_next[i]
    for i in range(wl.prompt_tokens.shape[0]):
        log.num_generated[i] = req.num_tokens[i] - wl.prompt_tokens[i]
    tot["stop"] = stop
    tot["end_us"] = st["now_us"]
    tot["cap_final"] = st["cap"]
