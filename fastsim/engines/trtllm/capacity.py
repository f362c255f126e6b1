"""The capacity scheduler: who may hold KV in this step, and who is paused for it."""

from fastsim._jit import helper
from fastsim.engines.trtllm.arrivals import note_waiting
from fastsim.engines.trtllm.codes import MAX_UTILIZATION, STATIC_BATCH, WAITING


@helper
def blocks_of(cfg, tokens):
    """Blocks for so many tokens."""
    return -(-tokens // cfg["tokens_per_block"])


@helper
def generates(s, i):
    """Whether all of its context is computed."""
    return s.req.blocks[i] > 0 and s.req.computed[i] == s.req.context[i]


@helper
def one_step_blocks(cfg, s, i):
    """Blocks for its next step: all of a context at its first chunk, none at later ones."""
    if s.req.blocks[i] == 0:
        return blocks_of(cfg, s.req.context[i])
    if s.req.computed[i] < s.req.context[i]:
        return 0
    return 1 if s.req.in_kv[i] % cfg["tokens_per_block"] == 0 else 0


@helper
def schedule_capacity(cfg, st, s):
    """Fill `fitting`, and pause whom the policy pauses."""
    st["num_fitting"] = 0
    st["num_paused"] = 0
    st["blocked"] = 0
    if cfg["policy"] == MAX_UTILIZATION:
        max_utilization(cfg, st, s)
    else:
        guaranteed_no_evict(cfg, st, s)


@helper
def take(st, s, i):
    """Request `i` fits."""
    s.lists.fitting[st["num_fitting"]] = i
    st["num_fitting"] += 1


@helper
def guaranteed_no_evict(cfg, st, s):
    """Everybody's end is reserved: first of those that generate, then of the others in order until one does not fit."""
    available = st["free"]
    for k in range(st["num_active"]):
        if st["num_fitting"] == st["num_generating"]:  # nobody else generates
            break
        if st["num_fitting"] >= cfg["max_batch_size"]:
            st["blocked"] = 1
            return
        i = s.lists.active[k]
        if generates(s, i):
            take(st, s, i)
            available -= s.req.whole[i] - s.req.blocks[i]
    if cfg["policy"] == STATIC_BATCH and st["num_fitting"] > 0:
        st["blocked"] = 1
        return
    for k in range(st["num_active"]):
        i = s.lists.active[k]
        if generates(s, i):
            continue
        need = s.req.whole[i] - s.req.blocks[i]
        if st["num_fitting"] >= cfg["max_batch_size"] or need > available:
            st["blocked"] = 1
            return
        take(st, s, i)
        available -= need


@helper
def max_utilization(cfg, st, s):
    """Only the next step must fit; the last of those that started makes room, and nobody behind it runs."""
    free = st["free"]
    used = 0
    started = st["num_started"]  # among those not yet looked at
    end = st["num_active"]
    k = 0
    while k < end:
        i = s.lists.active[k]
        need = one_step_blocks(cfg, s, i)
        if st["num_fitting"] < cfg["max_batch_size"] and used + need <= free:
            used += need
            started -= s.req.blocks[i] > 0
            take(st, s, i)
            k += 1
            continue
        if started == 0:
            st["blocked"] = 1
            break
        end -= 1
        while s.req.blocks[s.lists.active[end]] == 0:
            end -= 1
        victim = s.lists.active[end]
        started -= 1
        free += s.req.blocks[victim]
        s.lists.paused[st["num_paused"]] = victim
        st["num_paused"] += 1


@helper
def pause(cfg, st, s, tot, i):
    """Request `i` gives its KV back; what it generated becomes context, cut at the longest that can be computed."""
    req = s.req
    st["free"] += req.blocks[i]
    st["num_started"] -= 1
    st["num_generating"] -= req.computed[i] == req.context[i]
    tokens = s.wl.prompt_tokens[i] + req.generated[i]
    kept = min(cfg["longest_input"], tokens)
    tot["discarded_tokens"] += tokens - kept
    tot["preemptions"] += 1
    req.generated[i] = kept - s.wl.prompt_tokens[i]
    req.context[i] = kept
    req.blocks[i] = 0
    req.computed[i] = 0
    req.in_kv[i] = 0
    req.pauses[i] += 1
    req.status[i] = WAITING
    req.waiting_since_us[i] = st["now_us"]
    note_waiting(st)
