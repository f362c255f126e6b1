"""Start and end of a run: put the state back in place, and write out what is still on the clock."""

from fastsim._jit import clear, helper
from fastsim.engines.outputs import NEVER, Status
from fastsim.engines.vllm.arrivals import next_arrival_us, push_arrival
from fastsim.engines.vllm.codes import NO_LIMIT, Unservable
from fastsim.engines.vllm.free_list import ANONYMOUS
from fastsim.engines.vllm.gaps import settle_gaps
from fastsim.engines.vllm.lanes import NO_END, end_life, materialise
from fastsim.engines.vllm.latency import NEVER_FILLS
from fastsim.engines.vllm.livelock import GOING_ON
from fastsim.engines.vllm.running_cap import initial_cap
from fastsim.engines.vllm.state import NONE


@helper
def reset(s):
    """Everything as before the first step of a run of one engine."""
    reset_requests(s)
    reset_engine(s)
    reset_arrivals(s)


@helper
def reset_engine(s):
    """What each engine has, as before its first step."""
    clear(s.st)
    clear(s.tot)
    _reset_scalars(s)
    for lane in range(s.cfg["block_size"] + 1):
        s.q.lane_head[lane] = NONE
        s.q.lane_tail[lane] = NONE
        s.q.lane_size[lane] = 0
    if s.cfg["enable_prefix_caching"]:
        _reset_blocks(s)
    s.st["cap"] = initial_cap(s)
    s.tot["cap_min"] = s.st["cap"]
    outputs = 0
    num_requests = s.wl.prompt_tokens.shape[0]
    for i in range(num_requests):
        outputs += s.wl.output_tokens[i]
    s.st["mean_output_tokens"] = (outputs + num_requests - 1) // max(num_requests, 1)


@helper
def _reset_scalars(s):
    s.st["until_us"] = NO_LIMIT
    s.st["stop"] = GOING_ON
    s.st["queue_head"] = NONE
    s.st["queue_tail"] = NONE
    s.st["running_head"] = NONE
    s.st["running_tail"] = NONE
    s.st["free_head"] = NONE
    s.st["free_tail"] = NONE
    s.st["node_free"] = NONE
    s.st["cursor_explicit"] = NONE
    s.st["cursor_due"] = NONE
    s.st["usable"] = s.cfg["num_gpu_blocks"] - 1  # one block is the null block
    s.st["free"] = s.st["usable"]
    s.st["last_prefill"] = -s.cfg["prefill_schedule_interval"]
    s.st["clock_next_end"] = NO_END
    s.st["window_fill_clock"] = NEVER_FILLS
    s.tot["usable_blocks"] = s.st["usable"]
    s.tot["livelock_step"] = NEVER
    s.tot["livelock_us"] = NEVER


@helper
def reset_requests(s):
    """What belongs to requests, wherever they will run, as before the first step."""
    s.gaps.histogram[:] = 0
    s.req.num_computed_tokens[:] = 0
    s.req.num_blocks[:] = 0
    s.req.num_cached_blocks[:] = 0
    s.req.max_computed_tokens[:] = 0
    s.req.in_heap[:] = 0
    s.req.scheduled[:] = 0
    s.req.mid_prefill[:] = 0
    s.req.lane[:] = NONE
    s.req.heap_place[:] = NONE
    s.req.bypasses[:] = 0
    s.req.protected[:] = 0
    s.req.swapped_blocks[:] = 0
    s.req.flights[:] = 0
    s.req.stale[:] = 0
    s.log.first_scheduled_us[:] = NEVER
    s.log.first_token_us[:] = NEVER
    s.log.first_life_token_us[:] = NEVER
    s.log.last_token_us[:] = NEVER
    s.log.finish_us[:] = NEVER
    s.log.num_preemptions[:] = 0
    s.log.prefix_hit_tokens_first[:] = NEVER
    s.log.prefix_hit_tokens[:] = 0
    s.log.scheduled_tokens[:] = 0
    s.log.admission_wait_us[:] = 0
    s.log.admission_wait_end_us[:] = 0
    s.log.status[:] = Status.PENDING
    for i in range(s.wl.prompt_tokens.shape[0]):
        prompt = s.wl.prompt_tokens[i]
        s.req.num_tokens[i] = prompt
        s.req.max_num_tokens[i] = prompt
        s.req.final_tokens[i] = min(prompt + s.wl.output_tokens[i], s.cfg["max_model_len"])
        s.log.arrival_us[i] = s.wl.arrival_us[i]
        if outgrows_model(s, i) or (s.cfg["unservable"] == Unservable.REJECT and outgrows_pool(s, i)):
            s.log.status[i] = Status.UNSERVABLE
    if s.cfg["enable_prefix_caching"]:
        for i in range(s.wl.prompt_tokens.shape[0]):
            shared = min(s.wl.prefix_tokens[i], s.wl.prompt_tokens[i]) if s.wl.prefix_group[i] >= 0 else 0
            s.req.shared_blocks[i] = shared // s.cfg["block_size"]
            s.req.cached_runs[i] = NONE
            s.req.held_runs[i] = NONE
            s.req.life[i] = 0
            s.req.holding_row[i] = NONE


@helper
def outgrows_model(s, i):
    """Whether the prompt of request `i` leaves no room for an output token: vLLM's front door refuses it.

    So nobody in the scheduler is longer than `max_model_len`, and no count of blocks has to be cut there.
    """
    return s.wl.prompt_tokens[i] >= s.cfg["max_model_len"]


@helper
def outgrows_pool(s, i):
    """Whether request `i` could not run to its end even alone. The last token that it samples needs no KV."""
    longest = min(s.wl.prompt_tokens[i] + s.wl.output_tokens[i], s.cfg["max_model_len"]) - 1
    return longest > (s.cfg["num_gpu_blocks"] - 1) * s.cfg["block_size"]


@helper
def _reset_blocks(s):
    block_size = s.cfg["block_size"]
    slots = 0
    for group in range(s.wl.group_parent.shape[0]):
        first = s.wl.group_start_tokens[group] // block_size
        s.blk.group_slot[group] = slots
        s.blk.group_first_block[group] = first
        slots += max(s.wl.group_end_tokens[group] // block_size - first, 0)
    for slot in range(slots):
        s.blk.first_copy[slot] = NONE
        s.blk.last_copy[slot] = NONE
    rows = s.blk.free_rows.shape[0]
    for row in range(rows):
        s.blk.free_rows[row] = row
    s.st["rows_free"] = rows
    # The whole pool is one run without content
    s.blk.owner[0] = ANONYMOUS
    s.blk.length[0] = s.st["usable"]
    s.blk.next[0] = NONE
    s.blk.prev[0] = NONE
    s.blk.sibling[0] = NONE
    s.st["node_used"] = 1
    if s.st["usable"] > 0:
        s.st["free_head"] = 0
        s.st["free_tail"] = 0


@helper
def reset_arrivals(s):
    """Who arrives by themselves, and when the first of them does."""
    num_requests = s.wl.order.shape[0]
    s.st["clients"] = s.wl.clients[0]
    if s.st["clients"] == 0:
        # Only servable requests arrive; the cursor runs over `order`, which is copied without the others
        size = 0
        for k in range(num_requests):
            i = s.wl.order[k]
            if s.log.status[i] == Status.PENDING:
                s.q.arrivals[size] = i
                size += 1
        s.st["own_arrivals"] = size
    else:
        sent = 0
        while sent < s.st["clients"] and s.st["next_client"] < num_requests:
            i = s.st["next_client"]
            s.st["next_client"] = i + 1
            if s.log.status[i] == Status.PENDING:
                push_arrival(s, i, s.log.arrival_us[i])
                sent += 1
    for i in range(num_requests):
        s.tot["unservable"] += 1 if s.log.status[i] == Status.UNSERVABLE else 0
    arrival_us = next_arrival_us(s)
    s.tot["first_arrival_us"] = NEVER if arrival_us == NO_LIMIT else arrival_us
    s.tot["last_completion_us"] = max(s.tot["first_arrival_us"], 0)
    s.tot["first_completion_us"] = NEVER
    s.tot["starved_at_us"] = NEVER


@helper
def settle(s, stop):
    """The end of a run of one engine: write the counters out and total up."""
    settle_engine(s, stop)
    settle_requests(s)


@helper
def settle_requests(s):
    """What was generated, wherever."""
    for i in range(s.wl.prompt_tokens.shape[0]):
        s.log.num_generated[i] = s.req.num_tokens[i] - s.wl.prompt_tokens[i]


@helper
def settle_engine(s, stop):
    """The end of one engine."""
    materialise(s, NONE)
    settle_gaps(s)
    i = s.st["running_head"]
    while i != NONE:
        end_life(s, i)
        i = s.req.run_next[i]
    s.tot["stop"] = stop
    s.tot["end_us"] = s.st["now_us"]
    s.tot["cap_final"] = s.st["cap"]
