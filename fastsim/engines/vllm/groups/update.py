"""update_from_output(): drafts are verified, tokens delivered, blocks hashed, requests finish."""

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import NEVER, Status, note_completion, record_gaps
from fastsim.engines.vllm.arrivals import client_sends_next
from fastsim.engines.vllm.groups.hashing import hash_blocks
from fastsim.engines.vllm.groups.schedule import running_remove
from fastsim.engines.vllm.groups.speculation import accepted_drafts, next_drafts
from fastsim.engines.vllm.groups.tables import free_tables, note_quiet
from fastsim.engines.vllm.waiting import withdraw


@inlined
def update_from_output(s, base, size, end_us):
    """The output of the batch of `size` entries from `base` on is there."""
    s.st["finished"] = 0
    for k in range(base, base + size):
        _receive_entry(s, k, end_us)


@inlined
def _receive_entry(s, k, end_us):
    """Tokens of one request return. A request preempted meanwhile gets them all the same; one that is gone does not."""
    i = s.q.batch_request[k]
    stale = False
    if s.cfg["asynchronous"]:
        status = s.log.status[i]
        if status in (Status.TIMED_OUT, Status.FINISHED):
            return
        tokens = s.q.batch_tokens[k]
        s.req.inflight[i] -= tokens
        stale = s.req.stale[i] > 0
        if stale:
            s.req.stale[i] -= tokens
    if not s.q.batch_samples[k]:
        if not s.cfg["asynchronous"]:
            s.req.drafts[i] = 0
        if not stale:
            note_computed(s, i)
        return
    drafts = s.q.batch_drafts[k]
    accepted = _verify(s, i, drafts, s.q.batch_padded[k])
    left = s.req.final_tokens[i] - s.req.num_tokens[i]
    delivered = max(min(accepted + 1, left), 1)
    deliver_tokens(s, i, delivered, end_us)
    if not stale:
        s.req.num_computed_tokens[i] -= drafts - delivered + 1
        if s.cfg["asynchronous"]:
            s.req.placeholders[i] -= drafts + 1
        if s.cfg["enable_prefix_caching"]:
            computed = s.req.num_computed_tokens[i] - s.req.inflight[i]
            if min(computed, s.req.num_tokens[i] - s.cfg["hash_lookahead"]) >= s.req.hash_at[i]:
                hash_blocks(s, i, computed)
                note_quiet(s, i)
        note_computed(s, i)
    if s.req.num_tokens[i] >= s.req.final_tokens[i]:
        finish_request(s, i, end_us)
    elif not s.cfg["asynchronous"]:
        s.req.drafts[i] = next_drafts(s, i)


@inlined
def note_computed(s, i):
    """With drafts, what counts as computed is known when they have been verified."""
    if s.cfg["k"] > 0:
        verified = s.req.num_computed_tokens[i] - s.req.inflight[i]
        s.req.max_computed_tokens[i] = max(s.req.max_computed_tokens[i], verified)


@inlined
def _verify(s, i, drafts, padded):
    """How many of the drafts of request `i` are right, which is counted. Those that only fill up never are."""
    if drafts == 0:
        return 0
    accepted = 0
    if not padded:
        accepted = accepted_drafts(s, i, s.req.num_tokens[i], drafts)
    s.tot["drafts"] += drafts
    s.tot["accepted"] += accepted
    s.req.verified_drafts[i] += drafts
    s.req.accepted_drafts[i] += accepted
    if s.cfg["record"]:
        place = s.st["rec_verified"]
        s.rec.verified[place, 0] = i
        s.rec.verified[place, 1] = drafts
        s.rec.verified[place, 2] = accepted
        s.st["rec_verified"] += 1
        s.rec.steps_verified[s.st["rec_steps"]] += 1
    return accepted


@inlined
def deliver_tokens(s, i, count, end_us):
    """Output tokens reach the client in one piece, so there is one gap between it and the piece before."""
    if s.log.first_token_us[i] == NEVER:
        s.log.first_token_us[i] = end_us
        s.log.first_life_token_us[i] = end_us
    else:
        record_gaps(s.tot, s.gaps, end_us - s.log.last_token_us[i], 1)
    s.log.last_token_us[i] = end_us
    length = s.req.num_tokens[i] + count
    s.req.num_tokens[i] = length
    if length > s.req.max_num_tokens[i]:
        s.st["progress_step"] = s.tot["steps"]
        s.req.max_num_tokens[i] = length


@helper
def finish_request(s, i, end_us):
    """Request `i` has its last token. It may have been preempted while that was in flight; then it is in the queue."""
    if s.log.status[i] == Status.RUNNING:
        running_remove(s, i)
    else:
        withdraw(s, i)
    free_tables(s, i)
    s.log.status[i] = Status.FINISHED
    s.log.finish_us[i] = end_us
    s.st["unfinished"] -= 1
    s.st["alive_tokens"] -= s.wl.prompt_tokens[i] + s.wl.output_tokens[i]
    s.st["completed_since_door"] += 1
    s.tot["completed"] += 1
    note_completion(s.tot, s.cfg["b1_us_per_prefill_token"], end_us)
    client_sends_next(s, end_us)
    s.st["finished"] += 1
    if s.cfg["record"]:
        s.rec.finished[s.st["rec_finished"]] = i
        s.st["rec_finished"] += 1
