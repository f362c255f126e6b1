"""One schedule() call: the running loop, preemption, and what is in the batch (the waiting loop: `admission`)."""

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import Status
from fastsim.engines.vllm.groups.tables import (
    blocks_needed,
    can_checkpoint,
    evict_skipped,
    free_tables,
    position_of,
    slots_of,
    take_slots,
)
from fastsim.engines.vllm.preemption import select_victim
from fastsim.engines.vllm.recorder import note_loss, note_victim
from fastsim.engines.vllm.schedule import defers_prefill, self_preemption_stops
from fastsim.engines.vllm.state import NONE
from fastsim.engines.vllm.waiting import enqueue


@inlined
def begin_step(s):
    """Budgets and thresholds as they are at the start of a step."""
    s.st["call"] += 1
    s.st["token_budget"] = s.cfg["max_num_scheduled_tokens"]
    s.st["input_budget"] = s.cfg["max_num_batched_tokens"]
    s.st["scheduled"] = 0
    s.st["preempted"] = 0
    s.st["admitted"] = 0
    s.st["finished"] = 0
    s.st["prefill_tokens"] = 0
    s.st["decode_tokens"] = 0
    s.st["context_tokens"] = 0
    s.st["window_tokens"] = 0
    s.st["prefill_pairs_doubled"] = 0
    s.st["samplers"] = 0
    s.st["prefill_ran"] = 0
    threshold = s.cfg["long_prefill_token_threshold"]
    requests = s.st["running"] + s.st["waiting"]
    if requests <= 1:
        threshold = 0
    if threshold > 0 and s.cfg["long_prefill_token_threshold_adaptive"]:
        threshold = max(threshold, s.cfg["max_num_batched_tokens"] // requests)
    s.st["threshold"] = threshold
    s.st["defer"] = 0
    if s.cfg["prefill_schedule_interval"] > 1:
        s.st["defer"] = defers_prefill(s)


@inlined
def has_budget(s):
    """Whether anybody can be scheduled: the drafter may take an input slot for it."""
    return s.st["token_budget"] > 0 and s.st["input_budget"] > s.cfg["draft_slots"]


@inlined
def room_in_budgets(s):
    """Tokens that one more request can be given."""
    return min(s.st["token_budget"], s.st["input_budget"] - s.cfg["draft_slots"])


@inlined
def running_loop(s):
    """VLLM's loop over `running`, in admission order."""
    i = s.st["running_head"]
    s.st["may_pad"] = 1
    while i != NONE and has_budget(s):
        s.st["cursor"] = s.req.run_next[i]
        if not schedule_running(s, i):
            break
        i = s.st["cursor"]
    s.st["cursor"] = NONE
    s.st["ran_any"] = 1 if s.st["scheduled"] > 0 else 0


@inlined
def length_in_flight(s, i):
    """Tokens of request `i` once everything in flight has returned, if all drafts are right."""
    return s.req.num_tokens[i] + s.req.placeholders[i]


@inlined
def schedule_running(s, i):
    """Schedule one running request. False: the loop ends here."""
    computed = s.req.num_computed_tokens[i]
    in_flight = s.req.placeholders[i]
    if in_flight > 0 and computed + 2 - in_flight >= s.wl.prompt_tokens[i] + s.wl.output_tokens[i]:
        return True  # its last token is in flight
    if s.st["defer"] and s.req.mid_prefill[i]:
        return True
    length = length_in_flight(s, i)
    tokens = length + s.req.drafts[i] - computed
    if 0 < s.st["threshold"] < tokens:
        tokens = s.st["threshold"]
    tokens = min(tokens, room_in_budgets(s), s.cfg["max_model_len"] - computed - 1)
    if s.cfg["aligned_group"] != NONE:
        tokens = align_chunk(s, i, computed, tokens, s.req.junction[i])
    if tokens <= 0:
        return True
    end = computed + tokens
    if end > s.req.quiet_end[i] or computed - s.req.inflight[i] >= s.req.quiet_start[i]:
        others = 0
        while not allocate_running(s, i, computed, end):
            lacked = 0
            if s.cfg["record"]:
                lacked = blocks_needed(s, i, end, slots_of(s, end), computed, end, False) - s.st["free"]
            victim = select_victim(s)
            preempt_request(s, victim, i, lacked)
            if victim == i:
                s.tot["ineffective_preemptions"] += others
                return not self_preemption_stops(s)
            others += 1
    if s.req.mid_prefill[i]:
        s.st["prefill_ran"] = 1
        s.st["may_pad"] = 0
    drafts = max(min(s.req.drafts[i], end - length), 0)
    s.req.drafts[i] = 0
    add_scheduled(s, i, tokens, drafts, 0)
    return True


@helper
def allocate_running(s, i, start, end):
    """Give back what is no longer needed, then take blocks for the tokens up to `end`. False: there are not enough."""
    evict_skipped(s, i, start - s.req.inflight[i])
    if blocks_needed(s, i, end, slots_of(s, end), start, end, False) > s.st["free"]:
        return False
    take_slots(s, i, start, end)
    return True


@helper
def align_chunk(s, i, start, tokens, junction):
    """How many of `tokens` may be scheduled, so that states are left at block boundaries."""
    prompt = s.wl.prompt_tokens[i]
    length = s.req.num_tokens[i]
    whole = max(prompt, length - 1)
    if start >= whole:
        return tokens
    g = s.cfg["first_group"] + s.cfg["aligned_group"]
    b = s.grp.block_size[g]
    end = start + tokens
    checkpoint = end >= whole and can_checkpoint(s, g, start, end, position_of(s, g, whole))
    if end < whole:
        most = s.cfg["max_num_scheduled_tokens"]
        if s.cfg["long_prefill_token_threshold"] > 0:
            most = min(most, s.cfg["long_prefill_token_threshold"])
        rounded = end // b * b
        if rounded > start or b <= most:
            end = rounded
    stop = end
    if not checkpoint:
        last = length // b * b - b if s.cfg["drops_block"] else (length - 1) // b * b
        if start < last and last < end:
            stop = min(stop, last)
        following = start // b * b + b
        if start % b != 0 and following < end:
            stop = min(stop, following)
    if start < junction and junction < end:
        at_junction = start + (junction - start) // b * b
        if start < at_junction:
            stop = min(stop, at_junction)
    return max(stop - start, 0)


@inlined
def add_scheduled(s, i, tokens, drafts, padded):
    """Put request `i` on this step's list; `drafts` of its tokens are to be verified."""
    s.req.scheduled[i] = tokens
    s.req.scheduled_drafts[i] = drafts
    s.req.padded[i] = padded
    s.q.scheduled[s.st["scheduled"]] = i
    s.st["scheduled"] += 1
    s.st["token_budget"] -= tokens
    s.st["input_budget"] -= tokens + s.cfg["draft_slots"]


@helper
def _unschedule(s, i):
    """Take request `i` out of this step again; its tokens return to both budgets."""
    if s.req.scheduled[i] == 0:
        return
    s.st["token_budget"] += s.req.scheduled[i]
    s.st["input_budget"] += s.req.scheduled[i] + s.cfg["draft_slots"]
    s.req.scheduled[i] = 0
    size = s.st["scheduled"] - 1
    place = size
    while s.q.scheduled[place] != i:
        place -= 1
    for k in range(place, size):
        s.q.scheduled[k] = s.q.scheduled[k + 1]
    s.st["scheduled"] = size


@helper
def running_append(s, i):
    """Append `i` to the running list."""
    tail = s.st["running_tail"]
    s.req.run_prev[i] = tail
    s.req.run_next[i] = NONE
    if tail == NONE:
        s.st["running_head"] = i
    else:
        s.req.run_next[tail] = i
    s.st["running_tail"] = i
    s.req.admission_number[i] = s.st["admissions"]
    s.st["admissions"] += 1
    s.st["running"] += 1


@helper
def running_remove(s, i):
    """Take `i` out of the running list, wherever it stands."""
    before = s.req.run_prev[i]
    after = s.req.run_next[i]
    if before == NONE:
        s.st["running_head"] = after
    else:
        s.req.run_next[before] = after
    if after == NONE:
        s.st["running_tail"] = before
    else:
        s.req.run_prev[after] = before
    s.st["running"] -= 1
    s.st["protected"] -= s.req.protected[i]


@helper
def preempt_request(s, i, evictor, lacked):
    """Preempt running request `i`: un-schedule it, free its blocks, put it back into the waiting queue.

    For `evictor`, who lacks `lacked` blocks; 0: who takes its slot.
    """
    if s.cfg["record"]:
        note_victim(s, i, evictor, lacked, s.req.num_computed_tokens[i], length_in_flight(s, i))
    if i == s.st["cursor"]:
        s.st["cursor"] = s.req.run_next[i]
    _unschedule(s, i)
    running_remove(s, i)
    free_tables(s, i)
    s.req.num_computed_tokens[i] = 0
    s.req.drafts[i] = 0
    s.req.mid_prefill[i] = 0
    s.req.stale[i] = s.req.inflight[i]
    s.req.placeholders[i] = 0
    s.log.status[i] = Status.WAITING
    s.log.num_preemptions[i] += 1
    s.tot["preemptions"] += 1
    if s.cfg["boost_after"] > 0 and s.log.num_preemptions[i] >= s.cfg["boost_after"]:
        s.req.protected[i] = 1
    if s.cfg["record"]:
        note_loss(s, i)
    s.st["preempted"] += 1
    s.req.waiting_since_us[i] = s.st["now_us"]
    enqueue(s, i, True)


@inlined
def close_batch(s, base):
    """After schedule(): count the tokens, let C grow, see who samples, and write the batch down from `base` on."""
    for k in range(s.st["scheduled"]):
        i = s.q.scheduled[k]
        tokens = s.req.scheduled[i]
        drafts = s.req.scheduled_drafts[i]
        computed = s.req.num_computed_tokens[i]
        length = length_in_flight(s, i)
        if computed + 1 == length and computed >= s.wl.prompt_tokens[i]:
            s.st["decode_tokens"] += tokens
            s.st["context_tokens"] += computed
            s.st["window_tokens"] += min(computed, s.cfg["window_tokens"])
        else:
            s.st["prefill_tokens"] += tokens
            s.st["prefill_pairs_doubled"] += tokens * (2 * computed + tokens)
        end = computed + tokens
        highest = s.req.max_computed_tokens[i]
        if computed < highest:
            s.tot["recomputed_tokens"] += min(end - drafts, highest) - computed
        if s.cfg["k"] == 0:
            s.req.max_computed_tokens[i] = max(highest, end)
        s.log.scheduled_tokens[i] += tokens
        s.req.num_computed_tokens[i] = end
        samples = end >= length
        s.req.mid_prefill[i] = 0 if samples else 1
        s.st["samplers"] += samples
        s.q.batch_request[base + k] = i
        s.q.batch_tokens[base + k] = tokens
        s.q.batch_drafts[base + k] = drafts
        s.q.batch_padded[base + k] = s.req.padded[i]
        s.q.batch_samples[base + k] = samples
        s.req.scheduled[i] = 0
        if s.cfg["asynchronous"]:
            s.req.inflight[i] += tokens
            if samples:
                s.req.placeholders[i] += 1 + drafts
                s.req.drafts[i] = s.cfg["k"]
