"""The waiting queue: entry, its orders, the refresh of the radix tree."""

from fastsim._jit import helper
from fastsim.engines.sglang.codes import LOF, LPM, QUEUE_LIMIT, REFRESH_EVERY, WAITING
from fastsim.engines.sglang.memory import content_tokens
from fastsim.engines.sglang.radix import match


@helper
def num_waiting(st):
    """Length of the queue."""
    return st["wait_tail"] - st["wait_head"]


@helper
def append_waiting(st, s, i, since_us):
    """Request `i` enters the queue at its end, where it waits since `since_us`."""
    waiting = s.lists.waiting
    if st["wait_tail"] == waiting.shape[0]:  # more than half is behind the head
        count = num_waiting(st)
        for k in range(count):
            waiting[k] = waiting[st["wait_head"] + k]
        st["wait_head"] = 0
        st["wait_tail"] = count
    waiting[st["wait_tail"]] = i
    st["wait_tail"] += 1
    st["stamps"] += 1
    s.req.stamp[i] = st["stamps"]
    s.req.status[i] = WAITING
    s.req.waiting_since_us[i] = since_us
    st["waiting_peak"] = max(st["waiting_peak"], num_waiting(st))


@helper
def drop_head(st, count):
    """The first `count` leave: they were admitted."""
    st["wait_head"] += count
    st["wait_sorted"] = max(st["wait_sorted"] - count, 0)


@helper
def urgency(cfg, s, i):
    """Larger is more urgent."""
    return s.wl.priority[i] * cfg["urgency_sign"]


@helper
def goes_before(cfg, s, i, j):
    """Whether `i` goes before `j` under lof and priority orders; neither: they keep their places."""
    if cfg["enable_priority_scheduling"]:
        a = urgency(cfg, s, i)
        b = urgency(cfg, s, j)
        if a != b:
            return a > b
    if cfg["schedule_policy"] == LOF:
        return s.req.limit[i] > s.req.limit[j]
    return s.req.stamp[i] < s.req.stamp[j]


@helper
def sort_waiting(cfg, st, s):
    """Put the queue in the policy's order."""
    cached = cfg["disable_radix_cache"] == 0
    if cfg["schedule_policy"] == LPM and cached and num_waiting(st) <= QUEUE_LIMIT:
        sort_by_longest_prefix(cfg, st, s)
        return
    if cfg["schedule_policy"] == LOF or cfg["enable_priority_scheduling"]:
        insert_newcomers(cfg, st, s)
    if cached and num_waiting(st) > 0:
        if st["refreshes"] % REFRESH_EVERY == 0:
            for k in range(min(num_waiting(st), QUEUE_LIMIT) - 1, -1, -1):
                i = s.lists.waiting[st["wait_head"] + k]
                match(cfg, st, s, i, content_tokens(s, i))
        st["refreshes"] += 1


@helper
def insert_newcomers(cfg, st, s):
    """Sort those behind the sorted part of the queue into it, each behind its equals."""
    waiting = s.lists.waiting
    head = st["wait_head"]
    for k in range(st["wait_sorted"], num_waiting(st)):
        i = waiting[head + k]
        low = 0
        high = k
        while low < high:
            middle = (low + high) // 2
            if goes_before(cfg, s, i, waiting[head + middle]):
                high = middle
            else:
                low = middle + 1
        for m in range(k, low, -1):
            waiting[head + m] = waiting[head + m - 1]
        waiting[head + low] = i
    st["wait_sorted"] = num_waiting(st)


@helper
def sort_by_longest_prefix(cfg, st, s):
    """Longest cached prefix first; those that share enough with one kept in this round last."""
    waiting = s.lists.waiting
    head = st["wait_head"]
    count = num_waiting(st)
    st["rounds"] += 1
    for k in range(count):
        i = waiting[head + k]
        tokens = content_tokens(s, i)
        match(cfg, st, s, i, tokens)
        hit = st["hit"]
        s.req.prefix[i] = hit
        s.req.sort_key[i] = -min(hit, tokens - 1)
        if hit <= cfg["in_batch_check_threshold"]:
            if shares_with_kept(st, s, i) >= cfg["in_batch_deprioritize_threshold"]:
                s.req.sort_key[i] = 1
            else:
                keep(st, s, i)
    for k in range(1, count):  # insertion sort: stable, and the queue is nearly sorted from the pass before
        i = waiting[head + k]
        at = k
        while at > 0 and s.req.sort_key[waiting[head + at - 1]] > s.req.sort_key[i]:
            waiting[head + at] = waiting[head + at - 1]
            at -= 1
        waiting[head + at] = i


@helper
def shares_with_kept(st, s, i):
    """Longest prefix that request `i` shares with one kept in this round."""
    longest = 0
    limit = s.wl.shared[i]
    group = s.wl.group[i]
    while group >= 0 and longest < limit:
        if s.lists.kept_group[group] == st["rounds"]:
            longest = max(longest, min(limit, s.lists.kept[group]))
        limit = min(limit, s.wl.group_start[group])
        group = s.wl.group_parent[group]
    return longest


@helper
def keep(st, s, i):
    """Request `i` is kept in this round: note what others may share with it, in each group of its chain."""
    limit = s.wl.shared[i]
    group = s.wl.group[i]
    while group >= 0:
        if s.lists.kept_group[group] != st["rounds"]:
            s.lists.kept_group[group] = st["rounds"]
            s.lists.kept[group] = 0
        s.lists.kept[group] = max(s.lists.kept[group], limit)
        limit = min(limit, s.wl.group_start[group])
        group = s.wl.group_parent[group]
