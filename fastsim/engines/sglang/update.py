"""What a batch has done once it has run, and how long that took."""

from fastsim._jit import helper
from fastsim.engines.outputs import note_admission_wait, note_completion, record_gaps
from fastsim.engines.sglang.codes import FINISHED, NONE, RUNNING
from fastsim.engines.sglang.memory import available, checkpoint, content_tokens, release
from fastsim.engines.sglang.recorder import note_finished, note_processed


@helper
def start_batch(cfg, st, s, tot):
    """Run the batch just built: its time, and what it adds to the totals."""
    b = s.batches
    slot = st["batch"]
    first = slot * st["num_requests"]
    start_us = st["now_us"]
    if st["flight"] != NONE:
        start_us = max(start_us, b.end_us[st["flight"]])
    extend_tokens = 0
    for at in range(first, first + b.num_extends[slot]):
        tokens = b.extend_tokens[at]
        extend_tokens += tokens
        note_extend(st, s, tot, b.extend[at], b.extend_start[at], tokens)
    decodes = b.num_decodes[slot]
    for at in range(first, first + decodes):
        s.log.scheduled_tokens[b.decode[at]] += 1
    step_us = int(cfg["beta0"] + cfg["beta1"] * extend_tokens + cfg["beta2"] * decodes)
    b.start_us[slot] = start_us
    b.end_us[slot] = start_us + step_us
    st["num_batches"] += 1
    tot["steps"] += 1
    tot["prefill_tokens"] += extend_tokens
    tot["decode_tokens"] += decodes
    tot["batch_tokens_peak"] = max(tot["batch_tokens_peak"], extend_tokens + decodes)
    tot["busy_us"] += step_us
    count_held(cfg, st, s, tot, slot, step_us)


@helper
def count_held(cfg, st, s, tot, slot, step_us):
    """Pages and slots that are held during a step."""
    held = (cfg["pool"] - available(st)) // cfg["page_size"]
    seats = cfg["max_running_requests"] - st["rows_free"]
    tot["kv_block_us"] += held * step_us
    tot["kv_peak_blocks"] = max(tot["kv_peak_blocks"], held)
    tot["running_us"] += seats * step_us
    tot["running_peak"] = max(tot["running_peak"], seats)
    s.batches.held_pages[slot] = held
    s.batches.seats[slot] = seats


@helper
def note_extend(st, s, tot, i, start, tokens):
    """Request `i` is prefilled from `start` on."""
    log = s.log
    if log.first_scheduled_us[i] < 0:
        log.first_scheduled_us[i] = st["now_us"]
    note_admission_wait(log, i, s.req.waiting_since_us[i], st["now_us"])
    s.req.waiting_since_us[i] = st["now_us"]  # it does not wait between its chunks
    log.scheduled_tokens[i] += tokens
    s.req.prefilled[i] += tokens
    again = min(s.req.computed_peak[i], start + tokens) - start
    if again > 0:
        tot["recomputed_tokens"] += again


@helper
def process(cfg, st, s, tot, slot):
    """The outputs of a batch, in its order. The clock goes to its end."""
    b = s.batches
    end_us = b.end_us[slot]
    st["now_us"] = max(st["now_us"], end_us)
    st["finished"] = 0
    first = slot * st["num_requests"]
    for at in range(first, first + b.num_extends[slot]):
        i = b.extend[at]
        if b.extend_ends[at] and b.extend_lives[at] == s.req.lives[i] and s.req.status[i] == RUNNING:
            give_token(cfg, st, s, tot, i, end_us)
            if s.req.status[i] == RUNNING:
                checkpoint(cfg, st, s, i, content_tokens(s, i) - 1)
    for at in range(first, first + b.num_decodes[slot]):
        i = b.decode[at]
        if b.decode_lives[at] == s.req.lives[i] and s.req.status[i] == RUNNING:
            give_token(cfg, st, s, tot, i, end_us)
    note_processed(cfg, st, s, slot)


@helper
def give_token(cfg, st, s, tot, i, end_us):
    """Request `i` has one token more; at its last it ends."""
    log = s.log
    req = s.req
    if req.generated[i] == 0:
        log.first_token_us[i] = end_us
        log.first_life_token_us[i] = end_us
    else:
        record_gaps(tot, s.gaps, end_us - log.last_token_us[i], 1)
    log.last_token_us[i] = end_us
    req.generated[i] += 1
    if req.generated[i] < req.target[i]:
        return
    req.status[i] = FINISHED
    log.finish_us[i] = end_us
    checkpoint(cfg, st, s, i, min(req.kv[i], content_tokens(s, i)))
    release(cfg, st, s, i)
    st["finished"] += 1
    st["unfinished"] -= 1
    tot["completed"] += 1
    note_completion(tot, cfg["beta1"], end_us)
    note_finished(st, s, i)
