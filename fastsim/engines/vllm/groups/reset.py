"""Start and end of a run: put the state back in place, and write the results out."""

from fastsim._jit import clear, helper
from fastsim.engines.outputs import NEVER, Status
from fastsim.engines.vllm.codes import NO_LIMIT, RunningCap, Unservable
from fastsim.engines.vllm.groups.tables import ceil_div, least_blocks, most_blocks
from fastsim.engines.vllm.reset import outgrows_model, reset_arrivals
from fastsim.engines.vllm.state import NONE


@helper
def reset(s):
    """Everything as before the first step."""
    clear(s.st)
    clear(s.tot)
    s.gaps.histogram[:] = 0
    _reset_scalars(s)
    _reset_requests(s)
    if s.cfg["enable_prefix_caching"]:
        _reset_pool(s)
    reset_arrivals(s)
    outputs = 0
    tokens = 0
    num_requests = s.wl.prompt_tokens.shape[0]
    for i in range(num_requests):
        outputs += s.wl.output_tokens[i]
        tokens += s.wl.prompt_tokens[i] + s.wl.output_tokens[i]
    s.st["mean_output_tokens"] = ceil_div(outputs, max(num_requests, 1))
    s.st["cap"] = s.cfg["max_num_seqs"]
    if s.cfg["running_cap"] == RunningCap.AUTO and num_requests > 0:
        each = most_blocks(s, ceil_div(tokens, num_requests))
        s.st["cap"] = min(s.st["cap"], max(1, s.st["usable"] // each))
    s.tot["cap_min"] = s.st["cap"]


@helper
def _reset_scalars(s):
    s.st["until_us"] = NO_LIMIT
    s.st["queue_head"] = NONE
    s.st["queue_tail"] = NONE
    s.st["running_head"] = NONE
    s.st["running_tail"] = NONE
    s.st["free_head"] = NONE
    s.st["free_tail"] = NONE
    s.st["cursor"] = NONE
    s.st["usable"] = s.cfg["num_gpu_blocks"] - 1  # one block is the null block
    s.st["free"] = s.st["usable"]
    s.st["last_prefill"] = -s.cfg["prefill_schedule_interval"]
    s.tot["usable_blocks"] = s.st["usable"]
    s.tot["livelock_step"] = NEVER
    s.tot["livelock_us"] = NEVER
    rows = s.tab.free_rows.shape[0]
    for row in range(rows):
        s.tab.free_rows[row] = row
    s.st["rows_free"] = rows


@helper
def _reset_requests(s):
    s.req.num_computed_tokens[:] = 0
    s.req.num_blocks[:] = 0
    s.req.max_computed_tokens[:] = 0
    s.req.drafts[:] = 0
    s.req.junction[:] = 0
    s.req.scheduled[:] = 0
    s.req.scheduled_drafts[:] = 0
    s.req.padded[:] = 0
    s.req.mid_prefill[:] = 0
    s.req.row[:] = NONE
    s.req.placeholders[:] = 0
    s.req.inflight[:] = 0
    s.req.stale[:] = 0
    s.req.lane[:] = s.cfg["block_size"]
    s.req.in_heap[:] = 0
    s.req.heap_place[:] = NONE
    s.req.bypasses[:] = 0
    s.req.protected[:] = 0
    s.req.swapped_blocks[:] = 0
    s.req.verified_drafts[:] = 0
    s.req.accepted_drafts[:] = 0
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
        s.req.shared_tokens[i] = min(s.wl.prefix_tokens[i], prompt) if s.wl.prefix_group[i] >= 0 else 0
        s.log.arrival_us[i] = s.wl.arrival_us[i]
        if outgrows_model(s, i) or (s.cfg["unservable"] == Unservable.REJECT and least_blocks(s, i) > s.st["usable"]):
            s.log.status[i] = Status.UNSERVABLE


@helper
def _reset_pool(s):
    """All blocks free and without content; the keys of all contents, in the order of requests and prefix groups."""
    for block in range(s.st["usable"]):
        s.pool.references[block] = 0
        s.pool.key[block] = NONE
        s.pool.watched[block] = 0
        s.pool.stack[block] = block
    s.st["anonymous"] = s.st["usable"]
    num_groups = s.cfg["num_groups"]
    key = 0
    for i in range(s.wl.prompt_tokens.shape[0]):
        for j in range(num_groups):
            s.pool.own_key[i * num_groups + j] = key
            key += ceil_div(s.req.final_tokens[i], s.grp.block_size[s.cfg["first_group"] + j])
    lookahead = s.cfg["hash_lookahead"]
    for group in range(s.wl.group_parent.shape[0]):
        for j in range(num_groups):
            block_size = s.grp.block_size[s.cfg["first_group"] + j]
            first = max(s.wl.group_start_tokens[group] - lookahead, 0) // block_size
            s.pool.shared_key[group * num_groups + j] = key
            s.pool.shared_first[group * num_groups + j] = first
            key += max((s.wl.group_end_tokens[group] - lookahead) // block_size - first, 0)
    for k in range(key):
        s.pool.oldest[k] = NONE
        s.pool.youngest[k] = NONE
        s.pool.hashed_in[k] = 0


@helper
def settle(s, stop):
    """The end of a run: write the results out."""
    for i in range(s.wl.prompt_tokens.shape[0]):
        s.log.num_generated[i] = s.req.num_tokens[i] - s.wl.prompt_tokens[i]
    s.tot["stop"] = stop
    s.tot["end_us"] = s.st["now_us"]
    s.tot["cap_final"] = s.st["cap"]
