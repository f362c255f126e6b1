"""Preemption: who is evicted, and what it loses. BLIS restarts a preempted request from nothing."""

from fastsim._jit import helper
from fastsim.engines.blis.blocks import release
from fastsim.engines.blis.clock import find_next_end, generated_tokens, leave_clock, progress_of
from fastsim.engines.blis.codes import NONE, PREEMPTION_FCFS, WAITING
from fastsim.engines.blis.queue import push_front
from fastsim.engines.outputs import NEVER


@helper
def choose_victim(cfg, st, s):
    """Place in the running list of the request to evict."""
    victim = st["running"] - 1
    if cfg["preemption_policy"] == PREEMPTION_FCFS:
        return victim
    for at in range(st["running"] - 2, -1, -1):
        i = s.lists.running[at]
        j = s.lists.running[victim]
        if s.wl.priority[i] > s.wl.priority[j] or (
            s.wl.priority[i] == s.wl.priority[j] and s.wl.arrival_us[i] > s.wl.arrival_us[j]
        ):
            victim = at
    return victim


@helper
def end_life(s, tot, i):
    """Account for the tokens of a life that is over, whose progress is written out."""
    progress = s.req.progress[i]
    start = s.req.start_tokens[i]
    s.log.scheduled_tokens[i] += progress - start
    tot["recomputed_tokens"] += max(0, min(progress, s.req.highest_tokens[i]) - start)
    s.req.highest_tokens[i] = max(s.req.highest_tokens[i], progress)


@helper
def remove_running(st, s, at):
    """Take the request at place `at` off the running list; it keeps its order."""
    st["running"] -= 1
    for place in range(at, st["running"]):
        s.lists.running[place] = s.lists.running[place + 1]


@helper
def stop_running(st, s, tot, at):
    """The request at place `at` leaves the running list unfinished: progress written out, blocks still held."""
    i = s.lists.running[at]
    remove_running(st, s, at)
    if s.req.lane[i] == NONE:
        st["prefilling"] -= 1
    else:
        leave_clock(st, s, i)
        if s.req.end_clock[i] == st["next_end"]:
            find_next_end(st, s)
    end_life(s, tot, i)


@helper
def preempt(cfg, st, s, tot, at):
    """Evict the request at place `at`: it gives back its blocks, its tokens and what this step had given it."""
    i = s.lists.running[at]
    given = 0
    if at < st["cursor"]:
        given = 1 if s.req.lane[i] != NONE else s.req.num_new_tokens[i]
        st["cursor"] -= 1
        st["budget"] += given
    tokens = progress_of(st, s, i) + given
    tot["discarded_tokens"] += generated_tokens(st, s, i)
    stop_running(st, s, tot, at)
    release(cfg, st, s, i, tokens)
    s.req.progress[i] = 0
    s.log.status[i] = WAITING
    s.log.num_preemptions[i] += 1
    s.log.first_token_us[i] = NEVER
    s.log.last_token_us[i] = NEVER
    st["preempted"] += 1
    tot["preemptions"] += 1
    push_front(cfg, st, s, tot, i)
