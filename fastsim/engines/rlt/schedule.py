"""What a step runs: the stage, and the batch taken from its queue."""

from fastsim._jit import helper
from fastsim.engines.rlt.codes import (
    CODA,
    NONE,
    NOTE_ITEM,
    PHASE_CODA,
    PHASE_CORE,
    PHASE_FILL,
    PREFILL,
    PRELUDE,
    RECURRENT,
    REFILL,
)
from fastsim.engines.rlt.queues import pop, push
from fastsim.engines.rlt.swap import grow, position
from fastsim.engines.rlt.tape import note
from fastsim.engines.rlt.wavefront import is_ready, range_tokens


@helper
def coda_ready(cfg, stages):
    """CODA waits for a batch worth running while RECURRENT has work."""
    size = stages.size[CODA]
    return size > 0 and (size >= cfg["min_coda_batch_size"] or stages.size[RECURRENT] == 0)


@helper
def decode_stage(cfg, st, stages):
    """The decode stage that goes before any admission; NONE: the step begins with an admission scan."""
    decode_due = st["prefills_since_recurrent"] >= cfg["max_prefill_batches_before_decode"]
    if cfg["mode"] == REFILL:
        if stages.size[PRELUDE] > 0:
            return PRELUDE
        if coda_ready(cfg, stages):
            return CODA
        return RECURRENT if decode_due and stages.size[RECURRENT] > 0 else NONE
    if st["phase"] == PHASE_CORE:  # drain the cohort's loops, then its coda, then fill
        if stages.size[RECURRENT] > 0:
            return RECURRENT
        st["phase"] = PHASE_CODA
    if st["phase"] == PHASE_CODA:
        if stages.size[CODA] > 0:
            return CODA
        st["phase"] = PHASE_FILL
    if decode_due:
        if stages.size[PRELUDE] > 0:
            return PRELUDE
        if stages.size[RECURRENT] > 0:
            st["phase"] = PHASE_CORE
            return RECURRENT
    return NONE


@helper
def stage_after_admission(cfg, st, stages):
    """Stage of a step that has run its admission scan; NONE: no queue has work."""
    if stages.size[PREFILL] > 0:
        return PREFILL
    if cfg["mode"] == REFILL:
        if stages.size[PRELUDE] > 0:
            return PRELUDE
        if coda_ready(cfg, stages):
            return CODA
        return RECURRENT if stages.size[RECURRENT] > 0 else NONE
    if stages.size[CODA] > 0:
        return CODA
    if stages.size[PRELUDE] > 0:
        return PRELUDE
    if stages.size[RECURRENT] > 0:
        st["phase"] = PHASE_CORE
        return RECURRENT
    return NONE


@helper
def select(st, s, i, start, count, depth, element):
    """Put an item into the batch. Its request cannot be a victim any more."""
    k = st["batch_size"]
    s.batch.request[k] = i
    s.batch.start[k] = start
    s.batch.tokens[k] = count
    s.batch.depth[k] = depth
    s.batch.element[k] = element
    s.req.selected[i] = 1
    st["batch_size"] = k + 1
    st["batch_tokens"] += count
    note(st, s.tape, NOTE_ITEM, i, start, count, depth)


@helper
def form_batch(cfg, st, s, stage):
    """Batch from a stage's queue: as many pops as it has elements now; who cannot run goes to the tail.

    A victim taken out of this queue does not lower the number of pops, so a request may be tried twice. A wavefront
    task larger than what is left of the budget is passed over, a chunk is cut to it.
    """
    wave = stage == PREFILL and cfg["wavefront"] == 1
    for _ in range(s.stages.size[stage]):
        budget = cfg["max_num_batched_tokens"] - st["batch_tokens"]
        if st["batch_size"] >= cfg["max_num_seqs"] or budget <= 0 or s.stages.size[stage] == 0:
            break
        element = pop(s.stages, stage)
        i = element
        count = 1
        depth = NONE
        runs = True
        if wave:
            task = element - s.req.stage.shape[0]
            i = s.wave.request[task]
            start = s.wave.start[task]
            count = range_tokens(cfg, s, task)
            depth = s.wave.depth[task]
            runs = count <= budget and is_ready(cfg, s, task)
        elif stage == PREFILL:
            start = s.req.prefilled[i]
            count = min(budget, cfg["prefill_chunk_size"], s.wl.prompt_tokens[i] - start)
        else:
            start = position(s, i)
            if stage == RECURRENT:
                depth = s.req.loops_done[i]
        if runs and (stage == CODA or grow(cfg, st, s, i, start + count)):
            select(st, s, i, start, count, depth, element)
        else:
            push(s.stages, stage, element)
