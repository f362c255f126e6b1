"""The executor's loop; one call runs one configuration or many."""

from fastsim._jit import borrow, entry, helper
from fastsim.engines.outputs import Gaps, log_of_run
from fastsim.engines.trtllm.arrivals import arrive, next_arrival_us
from fastsim.engines.trtllm.capacity import pause, schedule_capacity
from fastsim.engines.trtllm.codes import DRAINED, HORIZON, MAX_STEPS, NO_LIMIT, NONE
from fastsim.engines.trtllm.fast_forward import fast_forward
from fastsim.engines.trtllm.micro_batch import schedule_micro_batch
from fastsim.engines.trtllm.state import State
from fastsim.engines.trtllm.step import run_step
from fastsim.engines.trtllm.totals import finish_run, reset_run


@helper
def run_is_over(cfg, st, s, tot):
    """Why the run ends before the next step, as a `Stop`; NONE: it goes on, if idle at the next arrival."""
    while True:
        arrive(cfg, st, s, tot)
        if st["now_us"] >= cfg["horizon_us"]:
            return HORIZON
        if tot["steps"] >= cfg["max_steps"]:
            return MAX_STEPS
        if st["num_active"] > 0:
            return NONE
        at_us = next_arrival_us(st, s)
        if at_us >= NO_LIMIT:
            return DRAINED
        st["now_us"] = at_us
        st["plain"] = 0


@helper
def iterate(cfg, st, s, tot):
    """One iteration: capacity, micro-batch, step."""
    schedule_capacity(cfg, st, s)
    for k in range(st["num_paused"]):
        pause(cfg, st, s, tot, s.lists.paused[k])
    schedule_micro_batch(cfg, st, s)
    run_step(cfg, st, s, tot)
    alone = st["num_contexts"] == 0 and st["num_decodes"] == st["num_fitting"]
    st["plain"] = 1 if alone and st["num_paused"] == 0 and st["finished"] == 0 else 0


@entry
def run(cfgs, sts, state, totals):
    """Run configuration `cfgs[0]` on the workload: fills the log, the gaps, the record and `totals[0]`."""
    s = State(  # a tuple of pointers: handed on for nothing
        borrow(state.wl),
        borrow(state.req),
        borrow(state.lists),
        borrow(state.log),
        borrow(state.gaps),
        borrow(state.record),
    )
    cfg = cfgs[0]
    st = sts[0]
    tot = totals[0]
    reset_run(cfg, st, s, tot)
    stop = run_is_over(cfg, st, s, tot)
    while stop == NONE:
        if not (cfg["fast_forward"] and fast_forward(cfg, st, s, tot)):
            iterate(cfg, st, s, tot)
        stop = run_is_over(cfg, st, s, tot)
    finish_run(cfg, st, s, tot, stop)
    return stop


@entry
def run_many(cfgs, sts, state, logs, totals, itl_histograms):
    """Run every configuration of `cfgs` on the same workload: one row of each output a configuration."""
    n = state.wl.arrival_us.shape[0]
    for k in range(cfgs.shape[0]):
        each = State(
            state.wl,
            state.req,
            state.lists,
            log_of_run(logs, k * n, n),
            Gaps(itl_histograms[k]),
            state.record,
        )
        run(cfgs[k : k + 1], sts, each, totals[k : k + 1])
