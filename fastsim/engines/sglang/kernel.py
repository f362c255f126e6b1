"""The engine loop, with and without overlap; one call runs one configuration or many."""

from fastsim._jit import borrow, entry, helper
from fastsim.engines.outputs import Gaps, log_of_run
from fastsim.engines.sglang.codes import (
    DRAINED,
    HORIZON,
    LIVELOCK,
    MAX_STEPS,
    MORE_ROOM,
    NONE,
    OUT_OF_MEMORY,
    UNSERVABLE,
)
from fastsim.engines.sglang.fast_forward import fast_forward
from fastsim.engines.sglang.memory import ceil_pages
from fastsim.engines.sglang.recorder import note_pass
from fastsim.engines.sglang.schedule import schedule
from fastsim.engines.sglang.state import State
from fastsim.engines.sglang.totals import finish_totals, reset_requests, reset_totals
from fastsim.engines.sglang.tree import reset_tree
from fastsim.engines.sglang.update import process, start_batch
from fastsim.engines.sglang.waiting import append_waiting


@helper
def reset_run(cfg, st, s):
    """Forget everything a run before this one left in the arrays."""
    st["now_us"] = 0
    st["next_arrival"] = 0
    st["unfinished"] = 0
    st["wait_head"] = 0
    st["wait_tail"] = 0
    st["wait_sorted"] = 0
    st["waiting_peak"] = 0
    st["num_running"] = 0
    st["num_retracted"] = 0
    st["num_preempted"] = 0
    st["finished"] = 0
    st["full"] = 0
    st["last"] = NONE
    st["flight"] = NONE
    st["chunked"] = NONE
    st["num_batches"] = 0
    st["stamps"] = 0
    st["refreshes"] = 0
    st["passes_since_prefill"] = cfg["prefill_decode_interval"]
    st["rows_free"] = cfg["max_running_requests"]
    st["free"] = cfg["pool"]
    st["rounds"] = 0
    st["more_room"] = 0
    st["plain_turns"] = 0
    st["rows"] = 0
    st["items"] = 0
    st["ratio"] = cfg["init_ratio"]
    for slot in range(2):
        s.batches.end_us[slot] = 0
    reset_tree(st, s)


@helper
def arrive(cfg, st, s, tot):
    """Requests that have arrived enter the queue, their limits clipped; a prompt that is too long is refused."""
    wl = s.wl
    longest = min(cfg["context_length"], cfg["pool"])
    while st["next_arrival"] < st["num_requests"]:
        i = wl.order[st["next_arrival"]]
        if wl.arrival_us[i] > st["now_us"]:
            return
        st["next_arrival"] += 1
        prompt = wl.prompt_tokens[i]
        if prompt >= longest - 6:
            s.req.status[i] = UNSERVABLE
            tot["unservable"] += 1
            continue
        limit = min(wl.max_new_tokens[i], longest - 1 - prompt - 1)
        limit = max(0, min(limit, cfg["pool"] - ceil_pages(cfg, prompt) - cfg["page_size"] - 1))
        s.req.limit[i] = limit
        s.req.target[i] = limit
        if wl.ignore_eos[i] == 0 and wl.output_tokens[i] < limit:
            s.req.target[i] = wl.output_tokens[i]
            s.req.stop_position[i] = prompt + wl.output_tokens[i] - 1
        st["unfinished"] += 1
        append_waiting(st, s, i, wl.arrival_us[i])


@helper
def run_is_over(cfg, st, s, tot):
    """Why the run ends before the next turn, as a `Stop`; NONE: it goes on, if idle at the next arrival."""
    while True:
        arrive(cfg, st, s, tot)
        if st["now_us"] >= cfg["horizon_us"]:
            return HORIZON
        if st["num_batches"] >= cfg["max_steps"]:
            return MAX_STEPS
        if st["last"] != NONE or st["unfinished"] > 0:
            return NONE
        if st["next_arrival"] == st["num_requests"]:
            return DRAINED
        st["ratio"] = cfg["init_ratio"]
        st["now_us"] = s.wl.arrival_us[s.wl.order[st["next_arrival"]]]


@helper
def idle_turn(cfg, st, s, was_idle):
    """Nothing is in flight and no batch was built. LIVELOCK: nothing will ever change."""
    if st["unfinished"] == 0:
        st["ratio"] = cfg["init_ratio"]
    if was_idle and st["put_off"] == 0:
        if st["next_arrival"] < st["num_requests"]:
            st["now_us"] = s.wl.arrival_us[s.wl.order[st["next_arrival"]]]
        elif st["unfinished"] > 0:
            return LIVELOCK
    return NONE


@helper
def turn(cfg, st, s, tot):
    """One pass, its batch, and the outputs that are due. Returns a `Stop` that ends the run, or NONE."""
    if not schedule(cfg, st, s):
        return OUT_OF_MEMORY
    b = s.batches
    slot = st["batch"]
    last = st["last"]
    has_batch = b.num_extends[slot] + b.num_decodes[slot] > 0
    st["finished"] = 0
    if has_batch:
        start_batch(cfg, st, s, tot)
    note_pass(cfg, st, s, has_batch)
    st["last"] = slot if has_batch else NONE
    done = st["last"]
    if cfg["disable_overlap_schedule"] == 0:
        done = st["flight"]
        st["flight"] = st["last"]
    put_back = st["num_retracted"] + st["num_preempted"]
    stop = NONE
    if done != NONE:
        process(cfg, st, s, tot, done)
    elif not has_batch:
        stop = idle_turn(cfg, st, s, last == NONE)
    if not has_batch or b.num_extends[slot] > 0 or put_back > 0 or st["finished"] > 0:
        st["plain_turns"] = 0
    elif last != NONE and b.num_extends[last] == 0 and b.num_decodes[last] == b.num_decodes[slot]:
        st["plain_turns"] += 1
    else:
        st["plain_turns"] = 1
    return stop


@entry
def run(cfgs, sts, state, totals, own_totals):
    """Run configuration `cfgs[0]` on the workload.

    Fills the log, the gaps, the record, `totals[0]`, `own_totals[0]`. Returns the `Stop`; MORE_ROOM: an array was too
    short, and what was filled is worth nothing.
    """
    s = State(  # a tuple of pointers: handed on for nothing
        borrow(state.wl),
        borrow(state.req),
        borrow(state.lists),
        borrow(state.ends),
        borrow(state.batches),
        borrow(state.tree),
        borrow(state.leaves),
        borrow(state.log),
        borrow(state.gaps),
        borrow(state.record),
    )
    cfg = cfgs[0]
    st = sts[0]
    tot = totals[0]
    own = own_totals[0]
    reset_run(cfg, st, s)
    reset_requests(st, s)
    reset_totals(cfg, st, s, tot)
    stop = run_is_over(cfg, st, s, tot)
    while stop == NONE:
        if not (cfg["fast_forward"] and fast_forward(cfg, st, s, tot)):
            stop = turn(cfg, st, s, tot)
            if st["more_room"]:
                return MORE_ROOM
        if stop == NONE:
            stop = run_is_over(cfg, st, s, tot)
    finish_totals(cfg, st, s, tot, own, stop)
    return stop


@entry
def run_many(cfgs, sts, state, logs, totals, own_totals, itl_histograms):
    """Run every configuration of `cfgs` on the same workload: one row of each output a configuration.

    `logs` holds the logs of all runs one after another, or one run's room, which each run then overwrites. Returns how
    many were run before one needed more room in the tree.
    """
    n = state.wl.arrival_us.shape[0]
    for k in range(cfgs.shape[0]):
        at = k * n if logs.arrival_us.shape[0] >= (k + 1) * n else 0
        each = State(
            state.wl,
            state.req,
            state.lists,
            state.ends,
            state.batches,
            state.tree,
            state.leaves,
            log_of_run(logs, at, n),
            Gaps(itl_histograms[k]),
            state.record,
        )
        sts[0]["num_requests"] = n
        if run(cfgs[k : k + 1], sts, each, totals[k : k + 1], own_totals[k : k + 1]) == MORE_ROOM:
            return k
    return cfgs.shape[0]
