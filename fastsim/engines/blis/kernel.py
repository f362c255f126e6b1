"""The event loop, and the entry that runs many configurations over one workload."""

from fastsim._jit import borrow, entry, helper
from fastsim.engines.blis.aggregate import summarise_blis
from fastsim.engines.blis.blocks import release
from fastsim.engines.blis.clock import generated_tokens
from fastsim.engines.blis.codes import (
    DONE,
    DRAINED,
    HORIZON,
    LIVELOCK,
    MAX_STEPS,
    NO_LIMIT,
    RUNNING,
    TIMED_OUT,
    UNSERVABLE,
    WAITING,
)
from fastsim.engines.blis.fast_forward import fast_forward
from fastsim.engines.blis.preemption import stop_running
from fastsim.engines.blis.queue import push_back
from fastsim.engines.blis.reset import finish_run, reset_run
from fastsim.engines.blis.schedule import (
    can_decode_at_once,
    decode_everybody,
    schedule_running,
    schedule_waiting,
    start_step,
)
from fastsim.engines.blis.state import BlisLog, State
from fastsim.engines.blis.update import complete_requests, execute_step
from fastsim.engines.heap import heap_first, heap_first_key, heap_push, heap_remove
from fastsim.engines.outputs import NEVER, Gaps, log_of_run


@helper
def arrive(cfg, st, s):
    """The next request arrives; it joins the queue after the time its prompt takes to process."""
    i = s.wl.order[st["arrival_cursor"]]
    st["now_us"] = s.wl.arrival_us[i]
    delay_us = int(cfg["alpha0_us"] + cfg["alpha1_us"] * s.wl.prompt_tokens[i])
    heap_push(s.queueing, i, st["now_us"] + delay_us, st["arrival_cursor"])
    s.log.status[i] = WAITING
    st["arrival_cursor"] += 1
    st["injected"] += 1


@helper
def enqueue(cfg, st, s, tot):
    """A request joins the queue, unless it can never be served or comes too late. An idle engine starts a step."""
    i = heap_first(s.queueing)
    now_us = heap_first_key(s.queueing)
    heap_remove(s.queueing, i)
    st["now_us"] = now_us
    prompt = s.wl.prompt_tokens[i]
    longest = cfg["max_model_len"]
    too_long = longest > 0 and (prompt >= longest or prompt + s.wl.output_tokens[i] > longest)
    if too_long or prompt > cfg["total_kv_blocks"] * cfg["block_size"]:
        s.log.status[i] = UNSERVABLE
        tot["unservable"] += 1
        return
    st["total_input_tokens"] += prompt
    deadline_us = s.wl.deadline_us[i]
    if 0 < deadline_us <= now_us:
        s.log.status[i] = TIMED_OUT
        s.log.finish_us[i] = now_us
        tot["timed_out"] += 1
        return
    push_back(cfg, st, s, tot, i)
    st["self_evictions"] = 0
    if deadline_us > 0:
        heap_push(s.deadlines, i, deadline_us, st["enqueued"])
        st["enqueued"] += 1
    if not st["step_pending"]:
        st["step_pending"] = 1
        st["step_us"] = now_us


@helper
def time_out(cfg, st, s, tot):
    """A client gives up: its request leaves the queue or the batch."""
    i = heap_first(s.deadlines)
    st["now_us"] = heap_first_key(s.deadlines)
    st["self_evictions"] = 0
    heap_remove(s.deadlines, i)
    if s.log.status[i] == RUNNING:
        at = 0
        while s.lists.running[at] != i:
            at += 1
        s.log.num_generated[i] = generated_tokens(st, s, i)
        stop_running(st, s, tot, at)
    else:
        heap_remove(s.waiting, i)
    release(cfg, st, s, i, s.req.progress[i])
    s.log.status[i] = TIMED_OUT
    s.log.finish_us[i] = st["now_us"]
    tot["timed_out"] += 1


@helper
def run_step(cfg, st, s, tot, itl):
    """One step. True when it shows that nothing can ever change again."""
    st["now_us"] = st["step_us"]
    st["step_pending"] = 0
    if st["running"] == 0 and s.waiting.size[0] == 0:
        return False
    start_step(cfg, st)
    if can_decode_at_once(cfg, st, s):
        decode_everybody(cfg, st, s, tot)
    else:
        schedule_running(cfg, st, s, tot)
    if st["preempted"] == 0:
        schedule_waiting(cfg, st, s, tot)
    execute_step(cfg, st, s, tot)
    complete_requests(cfg, st, s, tot, itl)
    if st["finished"] > 0 and st["last_end_us"] <= cfg["horizon_us"]:
        st["end_us"] = max(st["end_us"], st["last_end_us"])
    if st["running"] == 0 and s.waiting.size[0] == 0:
        return False
    st["step_pending"] = 1
    st["step_us"] = st["now_us"] + st["step_time_us"]
    if is_livelock(cfg, st, s):
        if tot["livelock_step"] == NEVER:
            tot["livelock_step"] = tot["steps"] - 1
            tot["livelock_us"] = st["now_us"]
            tot["livelock_kind"] = 1
        if cfg["horizon_us"] == NO_LIMIT:
            st["end_us"] = max(st["end_us"], st["now_us"])
            return True
    fast_forward(cfg, st, s, tot)
    return False


@helper
def is_livelock(cfg, st, s):
    """Whether the engine is in a state that it has been in before, and nothing is to come.

    Either nothing runs and this step changed nothing; or a request that is too long has, for the third time in a row,
    alone and with nobody else joining or leaving, taken every block and evicted itself. All blocks are its own then,
    and its prompt was either computed or cached as a whole, so that after two such lives the third is like one of them.
    """
    idle = st["running"] == 0 and st["finished"] == 0
    if idle and st["preempted"] == 1 and cfg["kv_cpu_blocks"] == 0 and not cfg["rollback_leak"]:
        st["self_evictions"] += 1
    elif st["running"] != 1 or st["preempted"] > 0 or st["finished"] > 0:
        st["self_evictions"] = 0
    changed = st["admitted"] > 0 or st["preempted"] > 0 or st["reloaded"] > 0
    return (
        idle
        and (not changed or st["self_evictions"] >= 3)
        and st["arrival_cursor"] == s.wl.order.shape[0]
        and s.queueing.size[0] == 0
        and s.deadlines.size[0] == 0
    )


@helper
def run_loop(cfg, st, s, tot, itl):
    """Execute events in BLIS's order: arrivals, joins, steps, timeouts at the same microsecond. Returns the stop."""
    while st["status"] == DONE:
        arrival_us = NO_LIMIT
        if st["arrival_cursor"] < s.wl.order.shape[0]:
            arrival_us = s.wl.arrival_us[s.wl.order[st["arrival_cursor"]]]
        join_us = heap_first_key(s.queueing)
        step_us = st["step_us"] if st["step_pending"] else NO_LIMIT
        deadline_us = heap_first_key(s.deadlines)
        next_us = min(arrival_us, join_us, step_us, deadline_us)
        if next_us == NO_LIMIT:
            return DRAINED
        if next_us > cfg["horizon_us"]:
            return HORIZON
        if next_us == arrival_us:
            arrive(cfg, st, s)
        elif next_us == join_us:
            enqueue(cfg, st, s, tot)
        elif next_us == step_us:
            if tot["steps"] == cfg["max_steps"]:
                return MAX_STEPS
            if run_step(cfg, st, s, tot, itl):
                return LIVELOCK
        else:
            time_out(cfg, st, s, tot)
        st["end_us"] = max(st["end_us"], st["now_us"])
    return DRAINED


@entry
def run_many(cfgs, first, sts, s, blank_scalars, blank_totals, logs, blis_logs, totals, itl_histograms, aggregates):
    """Run configurations `cfgs[first:]` one after another over the workload of `s`.

    Parameters
    ----------
    cfgs
        CONFIG_DTYPE, shape (num_configs,).
    sts, blank_scalars
        SCALARS_DTYPE, shape (1,): the scalars of the run, and what they start from.
    s
        State for one run; modified in place. Its `log` and `blis` are not used.
    logs, blis_logs
        RequestLog and BlisLog of num_configs x num_requests entries, configuration by configuration; or of num_requests
        entries, which each run then overwrites.
    totals, blank_totals
        TOTALS_DTYPE, shapes (num_configs,) and (1,).
    itl_histograms
        int64, shape (num_configs, ITL_BINS): gaps on the clock.
    aggregates
        AGGREGATE_DTYPE, shape (num_configs,).

    Returns
    -------
    Index of the configuration that needs a larger buffer (`sts[0]["status"]` says which), or num_configs.
    """
    n = s.wl.arrival_us.shape[0]
    for k in range(first, cfgs.shape[0]):
        at = k * n if logs.arrival_us.shape[0] >= (k + 1) * n else 0
        log = log_of_run(logs, at, n)
        blis = BlisLog(
            blis_logs.ttft_us[at : at + n],
            blis_logs.e2e_us[at : at + n],
            blis_logs.scheduling_delay_us[at : at + n],
            blis_logs.itl_sum_us[at : at + n],
            blis_logs.itl_count[at : at + n],
        )
        each = State(
            borrow(s.wl),
            borrow(s.req),
            borrow(s.blocks),
            borrow(s.tier),
            borrow(s.gaps),
            borrow(s.queueing),
            borrow(s.waiting),
            borrow(s.deadlines),
            borrow(s.lists),
            borrow(log),
            borrow(blis),
        )
        sts[0] = blank_scalars[0]
        totals[k] = blank_totals[0]
        itl = borrow(Gaps(itl_histograms[k]))
        reset_run(cfgs[k], sts[0], each, itl)
        stop = run_loop(cfgs[k], sts[0], each, totals[k], itl)
        finish_run(cfgs[k], sts[0], each, totals[k], itl, stop)
        if sts[0]["status"] != DONE:
            return k
        summarise_blis(cfgs[k], sts[0], each, totals[k], aggregates[k])
    return cfgs.shape[0]
