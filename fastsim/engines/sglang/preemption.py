"""Preemption for request slots: a more urgent request takes those of less urgent ones."""

from fastsim._jit import helper
from fastsim.engines.sglang.budgets import future_tokens, rest
from fastsim.engines.sglang.memory import put_back
from fastsim.engines.sglang.waiting import urgency


@helper
def least_urgent_first(cfg, s, i, j):
    """Whether `i` is a victim before `j`: less urgent, or as urgent and entered later."""
    a = urgency(cfg, s, i)
    b = urgency(cfg, s, j)
    return a < b or (a == b and s.req.stamp[i] > s.req.stamp[j])


@helper
def sort_victims(cfg, st, s):
    """Running requests in the order in which they would be victims, into `scratch`."""
    order = s.lists.scratch
    for k in range(st["num_running"]):
        i = s.lists.running[k]
        at = k
        while at > 0 and least_urgent_first(cfg, s, i, order[at - 1]):
            order[at] = order[at - 1]
            at -= 1
        order[at] = i


@helper
def preempt_for(cfg, st, s, i):
    """Free slots, and enough tokens, for request `i`; False: not possible, and nothing is done."""
    req = s.req
    order = s.lists.scratch
    sort_victims(cfg, st, s)
    need = req.tokens_at_match[i] - req.prefix[i] + min(req.limit[i], cfg["clip_max_new_tokens"]) - rest(st)
    victims = 0
    while victims < st["num_running"]:
        j = order[victims]
        if urgency(cfg, s, i) - urgency(cfg, s, j) <= cfg["priority_scheduling_preemption_threshold"]:
            break
        victims += 1
        need -= future_tokens(cfg, st, s, j)
        if need <= 0:
            break
    if victims == 0 or need > 0:
        return False
    for k in range(st["num_running"]):
        req.sort_key[s.lists.running[k]] = 0
    for k in range(victims):
        req.sort_key[order[k]] = 1
    take_slots(cfg, st, s)
    return True


@helper
def take_slots(cfg, st, s):
    """The marked ones of `running` are put back, in order; they are listed by index, as SGLang has no order there."""
    running = s.lists.running
    count = st["num_running"]
    left = count
    kept = 0
    first = st["num_preempted"]
    for k in range(count):
        i = running[k]
        if s.req.sort_key[i] == 0:
            running[kept] = i
            kept += 1
            continue
        st["reserved"] -= future_tokens(cfg, st, s, i)
        left -= 1
        put_back(cfg, st, s, i, left)
        s.req.preemptions[i] += 1
        at = st["num_preempted"]
        while at > first and s.lists.preempted[at - 1] > i:
            s.lists.preempted[at] = s.lists.preempted[at - 1]
            at -= 1
        s.lists.preempted[at] = i
        st["num_preempted"] += 1
    st["num_running"] = kept
