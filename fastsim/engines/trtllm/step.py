"""A step: blocks for those that run, its time, and their tokens."""

from fastsim._jit import helper
from fastsim.engines.outputs import note_admission_wait, note_completion, record_gaps
from fastsim.engines.trtllm.arrivals import client_sends_next
from fastsim.engines.trtllm.capacity import blocks_of
from fastsim.engines.trtllm.codes import FINISHED, RUNNING


@helper
def start_chunk(cfg, st, s, tot, i):
    """A chunk of a context; the first one takes the blocks of all of it."""
    req = s.req
    log = s.log
    if req.blocks[i] == 0:
        req.blocks[i] = blocks_of(cfg, req.context[i])
        st["free"] -= req.blocks[i]
        st["num_started"] += 1
        req.status[i] = RUNNING
        if log.first_scheduled_us[i] < 0:
            log.first_scheduled_us[i] = st["now_us"]
            log.prefix_hit_tokens_first[i] = 0
        note_admission_wait(log, i, req.waiting_since_us[i], st["now_us"])
    log.scheduled_tokens[i] += req.chunk[i]
    again = min(req.most_computed[i], req.computed[i] + req.chunk[i]) - req.computed[i]
    if again > 0:
        tot["recomputed_tokens"] += again


@helper
def run_step(cfg, st, s, tot):
    """Blocks, time and outputs of the batch just built."""
    st["finished"] = 0
    for k in range(st["num_contexts"]):
        start_chunk(cfg, st, s, tot, s.lists.contexts[k])
    for k in range(st["num_decodes"]):
        i = s.lists.decodes[k]
        if s.req.in_kv[i] % cfg["tokens_per_block"] == 0:
            s.req.blocks[i] += 1
            st["free"] -= 1
        s.log.scheduled_tokens[i] += 1
        if s.req.in_kv[i] < s.req.most_computed[i]:
            tot["recomputed_tokens"] += 1
    context_tokens = st["context_tokens"]
    decodes = st["num_decodes"]
    step_us = int(cfg["beta0"] + cfg["beta1"] * context_tokens + cfg["beta2"] * decodes)
    tot["steps"] += 1
    tot["prefill_tokens"] += context_tokens
    tot["decode_tokens"] += decodes
    tot["batch_tokens_peak"] = max(tot["batch_tokens_peak"], context_tokens + decodes)
    st["step_us"] = step_us
    count_held(cfg, st, tot, step_us)
    note_row(st, s)
    st["now_us"] += step_us
    for k in range(st["num_contexts"]):
        i = s.lists.contexts[k]
        s.req.computed[i] += s.req.chunk[i]
        s.req.in_kv[i] = s.req.computed[i]
        s.req.most_computed[i] = max(s.req.most_computed[i], s.req.in_kv[i])
        if s.req.computed[i] == s.req.context[i]:
            st["num_generating"] += 1
            give_token(cfg, st, s, tot, i)
    for k in range(decodes):
        i = s.lists.decodes[k]
        s.req.in_kv[i] += 1
        s.req.most_computed[i] = max(s.req.most_computed[i], s.req.in_kv[i])
        give_token(cfg, st, s, tot, i)
    if st["finished"] > 0:
        drop_finished(st, s)


@helper
def count_held(cfg, st, tot, step_us):
    """Blocks and slots that are held during a step."""
    held = cfg["num_blocks"] - st["free"]
    tot["busy_us"] += step_us
    tot["kv_block_us"] += held * step_us
    tot["kv_peak_blocks"] = max(tot["kv_peak_blocks"], held)
    tot["running_us"] += st["num_started"] * step_us
    tot["running_peak"] = max(tot["running_peak"], st["num_started"])


@helper
def note_row(st, s):
    """Write a row of the record, if there is room."""
    row = st["rows"]
    st["rows"] += 1
    if row < s.record.t_us.shape[0]:
        s.record.t_us[row] = st["now_us"]
        s.record.context_tokens[row] = st["context_tokens"]
        s.record.contexts[row] = st["num_contexts"]
        s.record.decodes[row] = st["num_decodes"]
        s.record.paused[row] = st["num_paused"]
        s.record.free_blocks[row] = st["free"]
        s.record.active[row] = st["num_active"]


@helper
def give_token(cfg, st, s, tot, i):
    """Request `i` has one token more; at its last it ends."""
    log = s.log
    req = s.req
    now_us = st["now_us"]
    if log.first_token_us[i] < 0:
        log.first_token_us[i] = now_us
        log.first_life_token_us[i] = now_us
    else:
        record_gaps(tot, s.gaps, now_us - log.last_token_us[i], 1)
    log.last_token_us[i] = now_us
    req.generated[i] += 1
    if req.generated[i] < req.target[i]:
        return
    req.status[i] = FINISHED
    log.finish_us[i] = now_us
    st["free"] += req.blocks[i]
    req.blocks[i] = 0
    st["num_started"] -= 1
    st["num_generating"] -= 1
    st["finished"] += 1
    tot["completed"] += 1
    note_completion(tot, cfg["beta1"], now_us)
    client_sends_next(st, s, now_us)


@helper
def drop_finished(st, s):
    """The finished leave `active`; the order of the others stays."""
    kept = 0
    for k in range(st["num_active"]):
        i = s.lists.active[k]
        if s.req.status[i] != FINISHED:
            s.lists.active[kept] = i
            kept += 1
    st["num_active"] = kept
