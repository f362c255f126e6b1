"""The same engine over dense arrays, for configurations in which little can happen.

Under vLLM's own rules, by arrival or by priority, without the rarer knobs (`is_plain`), at the end of a step everybody
running decodes but at most one, the last in running order. So the running list is an array, and nobody needs a link or
a lane of its own.
A step in which the head of the queue cannot be admitted is known before it is computed, and is part of a jump.

What can happen to few (a livelock under restart, an empty step, a full log) is left to the general loop: `run_dense`
then says FALL_BACK, and the run is made again.
"""

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import NEVER, Status, Stop, note_admission_wait
from fastsim.engines.vllm.admission import allocate_slots
from fastsim.engines.vllm.arrivals import next_arrival_us
from fastsim.engines.vllm.blocks import cache_blocks, find_hits
from fastsim.engines.vllm.codes import NO_LIMIT, Admission, PreemptionMode, QueueOrder, RunningCap, Victim
from fastsim.engines.vllm.dense_batch import (
    enter_dense,
    finish_decoders,
    finish_dense,
    preempt_at,
    set_back_clock,
    take_due_blocks,
    victim_place,
    write_out_dense,
)
from fastsim.engines.vllm.dense_queue import head_of_queue, is_by_rank, let_in, take_head
from fastsim.engines.vllm.fast_forward import jump_at_once, jump_by_time, steps_until_short
from fastsim.engines.vllm.free_list import blocks_for, full_blocks, take_blocks
from fastsim.engines.vllm.gaps import gap_log_has_room, tick
from fastsim.engines.vllm.intervals import (
    begin_intervals,
    note_admission,
    note_budget,
    note_cap,
    note_refusal,
    settle_intervals,
)
from fastsim.engines.vllm.lanes import advance_clock, end_life
from fastsim.engines.vllm.latency import prefill_us, step_us, tokens_us
from fastsim.engines.vllm.livelock import GOING_ON, steps_until_no_progress
from fastsim.engines.vllm.pauses import see, unless_more_comes
from fastsim.engines.vllm.preemption import count_scheduled
from fastsim.engines.vllm.reset import reset, settle_engine, settle_requests
from fastsim.engines.vllm.schedule import LATEST_CLOCK
from fastsim.engines.vllm.state import NONE
from fastsim.engines.vllm.update import deliver_token

FALL_BACK = -3


@helper
def is_plain(s):
    """Whether the dense loop knows all rules of this configuration."""
    cfg = s.cfg
    own_rules = (
        (_is_fcfs(s) or _is_priority(s))
        and cfg["boost_after"] == 0
        and cfg["preemption_mode"] != PreemptionMode.SWAP
        and cfg["admission"] == Admission.GREEDY
        and not cfg["bypass"]
        and not cfg["policy"]
        and not cfg["slot_preempt"]
        and cfg["running_cap"] != RunningCap.FEEDBACK
        and cfg["backpressure_threshold"] == 0.0
        and min(cfg["max_num_queued_reqs"], cfg["max_num_queued_tokens"], cfg["timeout_us"]) == NO_LIMIT
    )
    plain_steps = (
        cfg["enable_chunked_prefill"]
        and cfg["long_prefill_token_threshold"] == 0
        and cfg["prefill_schedule_interval"] <= 1
        and cfg["livelock_steps"] == 0
        and cfg["window_tokens"] == 0
        and _budget(s) >= min(cfg["max_num_seqs"], cfg["max_num_active_seqs"])
    )
    whole = cfg["dense"] and cfg["fast_forward"] and not cfg["record"] and not cfg["asynchronous"]
    return whole and own_rules and plain_steps and s.wl.clients[0] == 0


@inlined
def _is_fcfs(s):
    return s.cfg["queue_order"] == QueueOrder.FCFS and s.cfg["victim"] == Victim.TAIL


@inlined
def _is_priority(s):
    """Not in 0.16.0, where one that preempts itself ends the running loop, so that those behind it do not decode."""
    is_priority = s.cfg["queue_order"] == QueueOrder.PRIORITY and s.cfg["victim"] == Victim.PRIORITY
    return is_priority and not s.cfg["self_preemption_stops"]


@inlined
def _budget(s):
    return min(s.cfg["max_num_scheduled_tokens"], s.cfg["max_num_batched_tokens"])


@helper
def run_dense(s):
    """One run from the first arrival to its end. Returns 0, or FALL_BACK: the general loop has to do it."""
    reset(s)
    begin_dense(s)
    stop = advance_dense(s)
    if stop == FALL_BACK:
        return FALL_BACK
    settle_dense(s, stop)
    settle_requests(s)
    settle_intervals(s)
    return 0


@helper
def begin_dense(s):
    """Before the first step."""
    begin_intervals(s)
    s.st["dense"] = 1
    s.st["prefilling"] = NONE


@helper
def settle_dense(s, stop):
    """The end of one engine."""
    for place in range(s.st["clocked"]):
        end_life(s, write_out_dense(s, place, 0))
    if s.st["prefilling"] != NONE:
        end_life(s, s.st["prefilling"])
    s.tot["cap_steps"] = s.st["cap"] * s.tot["steps"]
    settle_engine(s, stop)


@helper
def advance_dense(s):
    """Do all steps that start before `until_us`. Returns why the run ended, GOING_ON, or FALL_BACK."""
    stop = GOING_ON
    while s.st["now_us"] < s.st["until_us"]:
        let_in(s, s.st["now_us"])
        stop = _before_step(s)
        if stop != GOING_ON:
            break
        if s.st["running"] + s.st["waiting"] == 0:
            continue
        see(s, s.st["running"])
        restart = s.cfg["preemption_mode"] == PreemptionMode.RESTART
        if restart and (not gap_log_has_room(s, s.wl.prompt_tokens.shape[0]) or steps_until_no_progress(s) <= 0):
            return FALL_BACK
        if s.st["clock"] > LATEST_CLOCK:
            set_back_clock(s)
        blocked = s.st["prefilling"] == NONE and is_blocked(s)
        if not (blocked and s.st["clocked"] > 0 and jump_dense(s)) and not step_dense(s, blocked):
            return FALL_BACK
    return unless_more_comes(s, stop)


@inlined
def _before_step(s):
    """Stop, or (idle) advance the clock to the next arrival, or go on."""
    s.st["running"] = s.st["clocked"] + (s.st["prefilling"] != NONE)
    if s.st["running"] + s.st["waiting"] == 0:
        arrival_us = next_arrival_us(s)
        if arrival_us == NO_LIMIT:
            return Stop.DRAINED
        s.st["now_us"] = arrival_us
        return Stop.HORIZON if arrival_us >= s.cfg["horizon_us"] else GOING_ON
    if s.st["now_us"] >= s.cfg["horizon_us"]:
        return Stop.HORIZON
    if s.tot["steps"] == s.cfg["max_steps"]:
        return Stop.MAX_STEPS
    return GOING_ON


# --- Waiting ----------------------------------------------------------------------------------------------------------


@inlined
def tokens_admitted(s, i, budget, running):
    """Tokens that waiting request `i` would be given in this step (0: it does not fit), and its cached blocks."""
    hits = 0
    evictable = 0
    if s.cfg["enable_prefix_caching"]:
        hits, evictable = find_hits(s, i)
    computed = hits * s.cfg["block_size"]
    length = s.req.num_tokens[i]
    tokens = min(length - computed, budget)
    # `admission.fits`, in blocks
    needed = max(blocks_for(s, length if s.cfg["scheduler_reserve_full_isl"] else computed + tokens) - hits, 0)
    watermark = s.cfg["watermark_blocks"] if running > 0 else 0
    admitted = needed <= s.st["free"] - evictable - watermark
    if not admitted:
        note_refusal(s, length - computed, tokens, needed + evictable, running, _budget(s), budget)
    return tokens if admitted else 0, hits


@inlined
def is_blocked(s):
    """Whether the coming step, and all after it until something else happens, admits nobody."""
    running = s.st["clocked"]
    if s.st["waiting"] == 0 or scan_ends(s, running, _budget(s) - running):
        return True
    return tokens_admitted(s, head_of_queue(s), _budget(s) - running, running)[0] == 0


@inlined
def scan_ends(s, running, budget):
    """Whether the waiting loop looks at nobody, though somebody waits: at the cap, or without tokens left to give."""
    if running >= min(s.cfg["max_num_active_seqs"], s.st["cap"]):
        note_cap(s, running)
        return True
    if budget <= 0:
        note_budget(s, _budget(s))
    return budget <= 0


@inlined
def admit_waiting(s, running):
    """The waiting loop of a step."""
    while s.st["waiting"] > 0 and not scan_ends(s, running, s.st["token_budget"]):
        i = head_of_queue(s)
        tokens, hits = tokens_admitted(s, i, s.st["token_budget"], running)
        if tokens == 0:
            return running
        admit_dense(s, i, tokens, hits)
        note_admission(s, i, tokens, running, _budget(s))
        running += 1
    return running


@inlined
def admit_dense(s, i, tokens, hits):
    """Move the head of the queue onto this step's list."""
    take_head(s)
    computed = hits * s.cfg["block_size"]
    allocate_slots(s, i, computed + tokens, hits)
    s.req.num_computed_tokens[i] = computed
    s.req.life_start_tokens[i] = computed
    _schedule(s, i, tokens)
    s.log.status[i] = Status.RUNNING
    note_admission_wait(s.log, i, s.req.waiting_since_us[i], s.st["now_us"])
    if s.log.first_scheduled_us[i] == NEVER:
        s.log.first_scheduled_us[i] = s.st["now_us"]
        s.log.prefix_hit_tokens_first[i] = computed
    s.log.prefix_hit_tokens[i] += computed
    if s.log.num_preemptions[i] > 0:
        s.tot["salvaged_tokens"] += computed


@inlined
def _schedule(s, i, tokens):
    count_scheduled(s, i, tokens, 1)
    s.req.scheduled[i] = tokens
    s.q.scheduled[s.st["scheduled"]] = i
    s.st["scheduled"] += 1
    s.st["token_budget"] -= tokens


# --- Steps ------------------------------------------------------------------------------------------------------------


@inlined
def step_dense(s, blocked):
    """One step. False: an empty one, which the general loop has to judge."""
    s.st["preempted"] = 0
    s.st["scheduled"] = 0
    s.st["prefill_tokens"] = 0
    s.st["decode_tokens"] = 0
    s.st["context_tokens"] = 0
    s.st["prefill_pairs_doubled"] = 0
    take_due_blocks(s)
    s.st["token_budget"] = _budget(s) - s.st["clocked"]
    running = 0
    if s.st["prefilling"] != NONE:
        running = _go_on_with_prefill(s)
    decoders = s.st["clocked"]
    running += decoders
    if s.st["preempted"] == 0 and not blocked:
        running = admit_waiting(s, running)
    decode = s.st["decode_tokens"] + decoders
    prefill = s.st["prefill_tokens"]
    if prefill + decode == 0:
        return False
    context = s.st["context_tokens"] + s.st["clock_context"] + decoders * s.st["clock"]
    attention_us = prefill_us(s.cfg, prefill, s.st["prefill_pairs_doubled"])
    duration = step_us(s.cfg, tokens_us(s, prefill, decode), context, 0, attention_us, 0)
    end_us = s.st["now_us"] + duration
    _count(s, prefill, decode, running, duration)
    _update(s, end_us)
    s.st["now_us"] = end_us
    return True


@inlined
def _go_on_with_prefill(s):
    """The next chunk of the request in prefill. Returns 1, or 0: blocks are short, and it is the one to give way."""
    i = s.st["prefilling"]
    computed = s.req.num_computed_tokens[i]
    tokens = min(s.req.num_tokens[i] - computed, s.st["token_budget"])
    needed = blocks_for(s, computed + tokens) - s.req.num_blocks[i]
    preempted = 0
    while needed > s.st["free"]:
        preempt_at(s, victim_place(s), 1)
        if s.st["prefilling"] == NONE:
            s.tot["ineffective_preemptions"] += preempted
            return 0
        preempted += 1
    if needed > 0:
        take_blocks(s, needed)
        s.req.num_blocks[i] += needed
    if s.cfg["enable_prefix_caching"]:
        cache_blocks(s, i, full_blocks(s, computed + tokens))
    _schedule(s, i, tokens)
    return 1


@inlined
def _count(s, prefill, decode, running, duration):
    held = s.st["usable"] - s.st["free"]
    s.tot["steps"] += 1
    s.tot["prefill_tokens"] += prefill
    s.tot["decode_tokens"] += decode
    s.tot["kv_block_us"] += held * duration
    s.tot["kv_peak_blocks"] = max(s.tot["kv_peak_blocks"], held)
    s.tot["running_us"] += running * duration
    s.tot["running_peak"] = max(s.tot["running_peak"], running)
    s.tot["waiting_peak"] = max(s.tot["waiting_peak"], s.st["waiting"])
    s.tot["batch_tokens_peak"] = max(s.tot["batch_tokens_peak"], prefill + decode)
    s.tot["busy_us"] += duration


@inlined
def _update(s, end_us):
    """Tokens are delivered at `end_us`; who is done finishes, whose prefill is done decodes from now on."""
    tick(s, end_us - s.st["clock_token_us"], s.st["clocked"], 1)
    if s.st["clock_next_end"] == s.st["clock"]:
        finish_decoders(s, end_us)
    advance_clock(s, 1)
    s.st["clock_token_us"] = end_us
    s.st["clock_step"] = s.tot["steps"]
    s.st["prefilling"] = NONE
    for k in range(s.st["scheduled"]):
        i = s.q.scheduled[k]
        s.req.num_computed_tokens[i] += s.req.scheduled[i]
        s.req.scheduled[i] = 0
        length = s.req.num_computed_tokens[i] + 1
        if length <= s.req.num_tokens[i]:
            s.st["prefilling"] = i
            continue
        deliver_token(s, i, length, end_us)
        left = s.req.final_tokens[i] - length
        if left > 0:
            enter_dense(s, i, left)
        else:
            finish_dense(s, i, end_us)


@inlined
def jump_dense(s):
    """Nobody can be admitted: do all steps in which everybody only decodes. Whether there were any."""
    steps = min(s.st["clock_next_end"] - s.st["clock"], s.cfg["max_steps"] - s.tot["steps"])
    restart = s.cfg["preemption_mode"] == PreemptionMode.RESTART
    if restart:
        steps = min(steps, steps_until_no_progress(s))
    if steps <= 0:
        return False
    stop_us = s.cfg["horizon_us"]
    cap = min(s.cfg["max_num_active_seqs"], s.st["cap"])
    if s.st["waiting"] == 0 or (is_by_rank(s) and s.st["clocked"] < cap):
        stop_us = min(stop_us, next_arrival_us(s))  # it may be admitted
    if s.cfg["b3_us_per_context_token"] != 0.0:
        done, last_call_us = jump_by_time(s, steps_until_short(s, steps), stop_us)
    else:
        done, last_call_us = jump_at_once(s, steps, stop_us)
    if done == 0:
        return False
    let_in(s, last_call_us)
    s.tot["waiting_peak"] = max(s.tot["waiting_peak"], s.st["waiting"])
    s.tot["batch_tokens_peak"] = max(s.tot["batch_tokens_peak"], s.st["clocked"])
    return True
