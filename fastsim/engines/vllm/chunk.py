# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""The kernel's entry: configurations over one workload, each run and judged in one memory."""

from fastsim._jit import borrow, constant, entry
from fastsim.engines.vllm.batch_queue import run_configuration
from fastsim.engines.vllm.loop import LOG_FULL
from fastsim.engines.vllm.memory import State
from fastsim.metrics.summary import summarise


@entry
def run_chunk(configs, params, memory, wl, rec, scratch, floats, ints):
    """Run configurations over one workload and fill their rows. Returns how many: the next one needs larger logs."""
    wl = borrow(wl)
    req = borrow(memory.requests)
    q = borrow(memory.queues)
    blk = borrow(memory.blocks)
    log = borrow(memory.log)
    gaps = borrow(memory.gaps)
    rec = borrow(rec)
    scratch = borrow(scratch)
    st = borrow(memory.scalars[0])
    totals = memory.totals[0]
    for c in range(configs.shape[0]):
        state = State(constant(configs[c]), params[c], st, borrow(totals), wl, req, q, blk, log, gaps, rec)
        if run_configuration(state) == LOG_FULL:
            return c
        summarise(
            log, wl.prompt_tokens, wl.output_tokens, totals, gaps.histogram, params[c], scratch, floats[c], ints[c]
        )
    return configs.shape[0]
