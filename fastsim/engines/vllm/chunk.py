# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""The kernel's entry: configurations over one workload, each run and judged in one memory."""

from fastsim._jit import borrow, constant, entry, helper
from fastsim.engines.vllm.batch_queue import run_configuration
from fastsim.engines.vllm.intervals import as_if_run, decides_alike
from fastsim.engines.vllm.loop import LOG_FULL
from fastsim.engines.vllm.memory import State
from fastsim.metrics.summary import summarise

RAN, REUSED = 1, 2


@entry
def run_chunk(configs, params, knobs, done, memory, wl, rec, scratch, floats, ints):
    """Run configurations over one workload and fill their rows. Returns how many: the next one needs larger logs.

    A configuration that decides as one before it (`intervals`) is not run: its row is made of what that one left.
    `done` says of each what became of it (0: nothing yet), and is written to.
    """
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
    knobs = borrow(knobs)
    for c in range(configs.shape[0]):
        if done[c] != 0:
            continue
        state = State(constant(configs[c]), params[c], st, borrow(totals), wl, req, q, blk, log, gaps, rec)
        if run_configuration(state) == LOG_FULL:
            return c
        done[c] = RAN
        d = c
        while d < configs.shape[0]:
            summarise(
                log, wl.prompt_tokens, wl.output_tokens, totals, gaps.histogram, params[d], scratch, floats[d], ints[d]
            )
            d = _next_alike(st, knobs, done, c, d + 1)
            if d < configs.shape[0]:
                done[d] = REUSED
                as_if_run(borrow(totals), configs[d])
    return configs.shape[0]


@helper
def _next_alike(st, knobs, done, ran, number):
    """The first configuration from `number` on that decides as the one that `ran`; behind the last: none."""
    count = done.shape[0]
    if not st["intervals"] or knobs.kind[ran] < 0:
        return count
    while number < count and (done[number] != 0 or not decides_alike(st, knobs, ran, number)):
        number += 1
    return number
