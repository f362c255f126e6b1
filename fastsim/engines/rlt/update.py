"""What a batch has done once it has run, and how long that took."""

from fastsim._jit import helper
from fastsim.engines.outputs import note_completion, record_gaps
from fastsim.engines.rlt.codes import (
    CODA,
    FINISHED,
    NONE,
    NOTE_FINISHED,
    NOTE_TOKEN,
    NOTHING,
    PREFILL,
    PRELUDE,
    RECURRENT,
)
from fastsim.engines.rlt.pages import register_prefix, release_pages
from fastsim.engines.rlt.queues import push, remove_active
from fastsim.engines.rlt.tape import note
from fastsim.engines.rlt.wavefront import advance_task


@helper
def step_time_us(cfg, st, stage):
    """Duration of the step just scheduled: its stage's base and per-token cost, and the swaps."""
    swaps = st["restores"] + st["slot_preemptions"] + st["grow_preemptions"]
    moved = st["moved_out_blocks"] + st["moved_in_blocks"]
    swap_us = cfg["swap_us"] * swaps + cfg["swap_us_per_block"] * moved
    tokens = st["batch_tokens"]
    if stage == NONE:
        time_us = cfg["empty_us"] + swap_us
    elif stage == PREFILL and cfg["wavefront"]:
        time_us = cfg["wavefront_us"] + cfg["wavefront_us_per_token"] * tokens + swap_us
    elif stage == PREFILL:
        time_us = cfg["prefill_us"] + cfg["prefill_us_per_token"] * tokens + swap_us
    elif stage == PRELUDE:
        time_us = cfg["prelude_us"] + cfg["prelude_us_per_token"] * tokens + swap_us
    elif stage == RECURRENT:
        time_us = cfg["recurrent_us"] + cfg["recurrent_us_per_token"] * tokens + swap_us
    else:
        time_us = cfg["coda_us"] + cfg["coda_us_per_token"] * tokens + swap_us
    return max(1, int(time_us))


@helper
def exit_depth(cfg, wl, i, output):
    """Loops that output number `output` of request `i` runs through."""
    at = wl.depth_start[i] + output
    if at < wl.depth_start[i + 1]:
        return wl.depths[at]
    return cfg["max_loops"]


@helper
def move(s, i, stage):
    """Request `i` joins the tail of a stage's queue."""
    s.req.stage[i] = stage
    push(s.stages, stage, i)


@helper
def finish_chunk(cfg, st, s, i, end):
    """The prompt's KV is complete up to `end`: register its pages, and go to CODA when that is all of it."""
    s.req.prefilled[i] = end
    if cfg["prefix_caching"]:
        register_prefix(cfg, st, s, i, end)
    if end == s.wl.prompt_tokens[i]:
        move(s, i, CODA)
    elif not cfg["wavefront"]:
        move(s, i, PREFILL)


@helper
def deliver_token(cfg, st, s, totals, itl, i, end_us):
    """CODA sampled a token of request `i`: it finishes, or starts the next one at PRELUDE."""
    log = s.log
    if s.req.outputs[i] == 0:
        log.first_token_us[i] = end_us
        log.first_life_token_us[i] = end_us
    else:
        record_gaps(totals, itl, end_us - log.last_token_us[i], 1)
        log.scheduled_tokens[i] += 1
        totals["decode_tokens"] += 1
    log.last_token_us[i] = end_us
    s.req.outputs[i] += 1
    note(st, s.tape, NOTE_TOKEN, i, NOTHING, NOTHING, NOTHING)
    if s.req.outputs[i] < s.wl.output_tokens[i]:
        move(s, i, PRELUDE)
        return
    release_pages(cfg, st, s, i)
    remove_active(st, s.req, s.lists, i)
    s.req.stage[i] = FINISHED
    log.finish_us[i] = end_us
    st["unfinished"] -= 1
    totals["completed"] += 1
    note_completion(totals, 0.0, end_us)  # a swap loses nothing: nothing is computed again
    note(st, s.tape, NOTE_FINISHED, i, NOTHING, NOTHING, NOTHING)


@helper
def update_from_output(cfg, st, s, totals, itl, stage, end_us):
    """Move every request of the batch on, in batch order."""
    for k in range(st["batch_size"]):
        i = s.batch.request[k]
        s.req.selected[i] = 0
        if stage == PREFILL:
            end = s.batch.start[k] + s.batch.tokens[k]
            if s.batch.depth[k] <= 0:  # a whole chunk (NONE), or a range at its first depth
                totals["prefill_tokens"] += s.batch.tokens[k]
                s.log.scheduled_tokens[i] += s.batch.tokens[k]
            if not cfg["wavefront"] or advance_task(cfg, s, s.batch.element[k] - s.req.stage.shape[0], end):
                finish_chunk(cfg, st, s, i, end)
        elif stage == PRELUDE:
            s.req.loops_done[i] = 0
            move(s, i, RECURRENT)
        elif stage == RECURRENT:
            s.req.loops_done[i] += 1
            done = s.req.loops_done[i] >= exit_depth(cfg, s.wl, i, s.req.outputs[i])
            move(s, i, CODA if done else RECURRENT)
        else:
            deliver_token(cfg, st, s, totals, itl, i, end_us)
    if stage == PREFILL:
        st["prefills_since_recurrent"] += 1
    elif stage == RECURRENT:
        st["prefills_since_recurrent"] = 0
