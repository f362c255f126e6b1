"""How many may run: the fixed, the KV-safe ("auto") and the fed-back cap, and the window that backpressure watches."""

from fastsim._jit import helper, inlined
from fastsim.engines.vllm.codes import FeedbackRule, RunningCap
from fastsim.engines.vllm.windows import following, oldest_preemptions, oldest_step, push

AUTO = int(RunningCap.AUTO)
FEEDBACK = int(RunningCap.FEEDBACK)
CONSECUTIVE = int(FeedbackRule.CONSECUTIVE)
PROPORTIONAL = int(FeedbackRule.PROPORTIONAL)
CONSECUTIVE_RATE = 1.0
CONSECUTIVE_STEPS = 10


@helper
def initial_cap(cfg, st, wl):
    """The cap a run starts with. `auto`: usable blocks over blocks of a mean request at full decode."""
    num_requests = wl.prompt_tokens.shape[0]
    if cfg["running_cap"] != AUTO or num_requests == 0:
        return cfg["max_num_seqs"]
    tokens = 0
    for i in range(num_requests):
        tokens += wl.prompt_tokens[i] + wl.output_tokens[i]
    size = num_requests * cfg["block_size"]
    blocks_each = (tokens + size - 1) // size
    return min(cfg["max_num_seqs"], max(1, st["usable"] // blocks_each))


@inlined
def note_cap_bound(st):
    """After a waiting scan that prefills could pass: whether it left somebody waiting."""
    if not st["defer"]:
        st["cap_bound"] = 1 if st["waiting"] > 0 else 0


@inlined
def after_steps(cfg, st, tot, q, steps, preempted):
    """What watches steps sees `steps` more non-empty ones: one, or many that neither preempt nor change."""
    st["watched"] += steps
    tot["cap_steps"] += st["cap"] * steps
    if cfg["running_cap"] == FEEDBACK:
        _feed_back(cfg, st, q, preempted)
        tot["cap_min"] = min(tot["cap_min"], st["cap"])
    if cfg["backpressure_threshold"] > 0.0:
        _watch_door(cfg, st, q, preempted)


@helper
def _feed_back(cfg, st, q, preempted):
    ring = q.cap_window
    window = cfg["feedback_window"]
    watched = st["watched"]
    if preempted > 0:
        push(ring, st["cap_window_head"], st["cap_window_size"], watched, preempted)
        st["cap_window_size"] += 1
        st["cap_preemptions"] += preempted
    while st["cap_window_size"] > 0 and oldest_step(ring, st["cap_window_head"]) <= watched - window:
        st["cap_preemptions"] -= oldest_preemptions(ring, st["cap_window_head"])
        st["cap_window_head"] = following(ring, st["cap_window_head"])
        st["cap_window_size"] -= 1
    rate = st["cap_preemptions"] / window
    full = watched - st["cap_window_start"] >= window
    st["hot_steps"] = st["hot_steps"] + 1 if full and rate > CONSECUTIVE_RATE else 0
    if cfg["feedback_rule"] == CONSECUTIVE:
        fires = st["hot_steps"] >= CONSECUTIVE_STEPS
    else:
        fires = full and rate > cfg["feedback_threshold"]
    if fires:
        target = st["running"] - 1
        if cfg["feedback_rule"] == PROPORTIONAL:
            target = int(st["running"] * (1.0 - rate) // 1.0)
        st["cap"] = max(target, 1)
        st["cap_window_size"] = 0
        st["cap_preemptions"] = 0
        st["cap_window_start"] = watched
        st["calm_start"] = watched
        st["hot_steps"] = 0
        return
    if preempted > 0:
        st["calm_start"] = watched
    while watched - st["calm_start"] >= cfg["feedback_recovery"]:
        st["cap"] = min(st["cap"] + 1, cfg["max_num_seqs"])
        st["calm_start"] += cfg["feedback_recovery"]


@helper
def steps_until_cap_changes(cfg, st):
    """Coming calm steps after which the cap may be another one."""
    window = cfg["feedback_window"]
    rate = st["cap_preemptions"] / window
    left = window - (st["watched"] - st["cap_window_start"])
    steps = 2**62
    if cfg["feedback_rule"] == CONSECUTIVE:
        if rate > CONSECUTIVE_RATE:
            steps = max(left, 1)  # hot steps are counted one by one
    elif rate > cfg["feedback_threshold"]:
        steps = max(left, 1)
    if st["cap"] < cfg["max_num_seqs"]:
        steps = min(steps, cfg["feedback_recovery"] - (st["watched"] - st["calm_start"]))
    return steps


@helper
def _watch_door(cfg, st, q, preempted):
    ring = q.door_window
    watched = st["watched"]
    if preempted > 0:
        push(ring, st["door_window_head"], st["door_window_size"], watched, preempted)
        st["door_window_size"] += 1
        st["door_preemptions"] += preempted
    while st["door_window_size"] > 0 and (
        oldest_step(ring, st["door_window_head"]) <= watched - cfg["backpressure_window"]
    ):
        st["door_preemptions"] -= oldest_preemptions(ring, st["door_window_head"])
        st["door_window_head"] = following(ring, st["door_window_head"])
        st["door_window_size"] -= 1


@inlined
def door_closed(cfg, st):
    """Whether backpressure holds: preemptions per non-empty step over the window, above the threshold."""
    threshold = cfg["backpressure_threshold"]
    return threshold > 0.0 and st["door_preemptions"] / cfg["backpressure_window"] > threshold


@helper
def forget_door(st):
    """Nothing is unfinished: the window is cleared, else every later arrival would be refused for ever."""
    st["door_window_size"] = 0
    st["door_preemptions"] = 0


@helper
def steps_until_door_opens(cfg, st, q):
    """Coming calm steps after which backpressure no longer holds."""
    ring = q.door_window
    left = st["door_preemptions"]
    head = st["door_window_head"]
    for _ in range(st["door_window_size"]):
        left -= oldest_preemptions(ring, head)
        if not left / cfg["backpressure_window"] > cfg["backpressure_threshold"]:
            return oldest_step(ring, head) + cfg["backpressure_window"] - st["watched"]
        head = following(ring, head)
    return 0
