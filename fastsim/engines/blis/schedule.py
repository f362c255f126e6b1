"""Batch formation: running requests first, in the order of their admission, then waiting ones."""

from fastsim._jit import helper
from fastsim.engines.blis.blocks import allocate_prompt, allocate_token, cached_prefix, nothing_cached, take_plain
from fastsim.engines.blis.clock import progress_of
from fastsim.engines.blis.codes import (
    BLOCKED_BLOCKS,
    BLOCKED_CAP,
    BLOCKED_EMPTY,
    NONE,
    NOT_BLOCKED,
    PREEMPTION_FCFS,
    RUNNING,
)
from fastsim.engines.blis.preemption import choose_victim, preempt
from fastsim.engines.blis.tier import tier_allocate_prompt, tier_allocate_token
from fastsim.engines.heap import heap_first, heap_remove
from fastsim.engines.outputs import note_admission_wait


@helper
def start_step(cfg, st):
    """Nothing is scheduled yet."""
    st["budget"] = cfg["max_num_batched_tokens"]
    st["cursor"] = 0
    st["preempted"] = 0
    st["admitted"] = 0
    st["reloaded"] = 0
    st["prefill_tokens"] = 0
    st["blocked"] = NOT_BLOCKED


@helper
def everybody_decodes(cfg, st):
    """Whether each running request will be given one token, and no block has to be named."""
    return (
        cfg["fast_forward"] != 0
        and cfg["kv_cpu_blocks"] == 0
        and st["prefilling"] == 0
        and st["running"] <= cfg["max_num_batched_tokens"]
    )


@helper
def can_decode_at_once(cfg, st, s):
    """Whether `decode_everybody` may stand for the walk through the running list.

    Where blocks are missing, it may if victims come from the tail: none of them has been given a block in this step.
    """
    enough = s.lists.lane_size[st["phase"]] <= st["free"]
    evicts_tail = cfg["preemption_policy"] == PREEMPTION_FCFS and not cfg["rollback_leak"]
    return everybody_decodes(cfg, st) and (enough or evicts_tail)


@helper
def decode_everybody(cfg, st, s, tot):
    """One token for each running request at once, after evicting from the tail until the blocks suffice.

    Which of them takes which new block is of no consequence, nor whether a victim's blocks reach the tail of the free
    list before or after others are taken from its head.
    """
    while s.lists.lane_size[st["phase"]] > st["free"]:
        preempt(cfg, st, s, tot, st["running"] - 1)
    blocks = s.lists.lane_size[st["phase"]]
    take_plain(st, s.blocks, blocks)
    st["misses"] += blocks
    st["budget"] -= st["running"]
    st["cursor"] = st["running"]


@helper
def chunk(cfg, tokens, budget):
    """How much of a prefill of `tokens` one step may do."""
    threshold = cfg["long_prefill_token_threshold"]
    if 0 < threshold < tokens:
        tokens = threshold
    return min(tokens, budget)


@helper
def schedule_running(cfg, st, s, tot):
    """Give running requests their tokens one by one, evicting others, or themselves, where a block is missing."""
    while True:
        if cfg["kv_cpu_blocks"] == 0:
            decode_those_with_room(st, s)
        if st["cursor"] >= st["running"] or st["budget"] <= 0:
            return
        i = s.lists.running[st["cursor"]]
        decodes = s.req.lane[i] != NONE
        n = 1 if decodes else chunk(cfg, s.wl.prompt_tokens[i] - s.req.progress[i], st["budget"])
        while not allocate_running(cfg, st, s, i, n):
            at = choose_victim(cfg, st, s)
            is_self = s.lists.running[at] == i
            preempt(cfg, st, s, tot, at)
            if is_self:
                return
        if not decodes:
            s.req.num_new_tokens[i] = n
            s.req.computed[i] = s.req.progress[i] + n
        st["budget"] -= n
        st["cursor"] += 1


@helper
def decode_those_with_room(st, s):
    """One token each for the next running requests that decode and need no block for it."""
    phase = st["phase"]
    at = st["cursor"]
    end = min(st["running"], at + st["budget"])
    while at < end:
        lane = s.req.lane[s.lists.running[at]]
        if lane in (phase, NONE):
            break
        at += 1
    st["budget"] -= at - st["cursor"]
    st["cursor"] = at


@helper
def allocate_running(cfg, st, s, i, n):
    """Blocks for the next `n` tokens of a running request; one token when it decodes."""
    tiered = cfg["kv_cpu_blocks"] > 0
    position = progress_of(st, s, i)
    if s.req.lane[i] != NONE:
        if tiered:
            return tier_allocate_token(cfg, st, s, i, position, st["clock"])
        return allocate_token(cfg, st, s, i, position, st["phase"])
    nothing_cached(st)
    if tiered:
        return tier_allocate_prompt(cfg, st, s, i, position, position + n)
    return allocate_prompt(cfg, st, s, i, position, position + n)


@helper
def schedule_waiting(cfg, st, s, tot):
    """Admit waiting requests until one does not fit: nobody passes the head of the queue."""
    while s.waiting.size[0] > 0 and st["running"] < cfg["max_num_seqs"] and st["budget"] > 0:
        i = heap_first(s.waiting)
        cached_prefix(st, s, i)
        start = st["cached"] * cfg["block_size"]
        n = chunk(cfg, s.wl.prompt_tokens[i] - start, st["budget"])
        if cfg["kv_cpu_blocks"] > 0:
            allocated = tier_allocate_prompt(cfg, st, s, i, start, start + n)
        else:
            allocated = allocate_prompt(cfg, st, s, i, start, start + n)
        if not allocated:
            st["blocked"] = BLOCKED_BLOCKS
            return
        admit(cfg, st, s, tot, i, start, n)
    st["blocked"] = BLOCKED_EMPTY if s.waiting.size[0] == 0 else BLOCKED_CAP


@helper
def admit(cfg, st, s, tot, i, hit_tokens, n):
    """The head of the queue starts to run."""
    heap_remove(s.waiting, i)
    s.lists.running[st["running"]] = i
    st["running"] += 1
    st["prefilling"] += 1
    st["admitted"] += 1
    st["budget"] -= n
    s.req.num_new_tokens[i] = n
    s.req.computed[i] = hit_tokens + n
    s.req.start_tokens[i] = hit_tokens
    s.req.plain_start[i] = s.req.prompt_blocks[i] * cfg["block_size"]
    log = s.log
    log.status[i] = RUNNING
    note_admission_wait(log, i, s.req.waiting_since_us[i], st["now_us"])
    log.prefix_hit_tokens[i] += hit_tokens
    if log.first_scheduled_us[i] < 0:
        log.first_scheduled_us[i] = st["now_us"]
        log.prefix_hit_tokens_first[i] = hit_tokens
    else:
        tot["salvaged_tokens"] += hit_tokens
    s.blis.scheduling_delay_us[i] = st["now_us"] - s.wl.arrival_us[i]
