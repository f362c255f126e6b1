"""How many may run: the fixed, the KV-safe ("auto") and the fed-back cap, and the window that backpressure watches.

A window over the last non-empty steps is kept as the few of them that preempted anybody. Non-empty steps are counted
by `watched`. A ring holds (step, preemptions) of those with preemptions; a step that fell out of the window is dropped
and its preemptions with it.
"""

from fastsim._jit import helper, inlined
from fastsim.engines.vllm.codes import FeedbackRule, RunningCap

CONSECUTIVE_RATE = 1.0
CONSECUTIVE_STEPS = 10


@helper
def initial_cap(s):
    """The cap a run starts with. `auto`: usable blocks over blocks of a mean request at full decode."""
    num_requests = s.wl.prompt_tokens.shape[0]
    if s.cfg["running_cap"] != RunningCap.AUTO or num_requests == 0:
        return s.cfg["max_num_seqs"]
    tokens = 0
    for i in range(num_requests):
        tokens += s.wl.prompt_tokens[i] + s.wl.output_tokens[i]
    size = num_requests * s.cfg["block_size"]
    blocks_each = (tokens + size - 1) // size
    return min(s.cfg["max_num_seqs"], max(1, s.st["usable"] // blocks_each))


@inlined
def note_cap_bound(s):
    """After a waiting scan that prefills could pass: whether it left somebody waiting."""
    if not s.st["defer"]:
        s.st["cap_bound"] = 1 if s.st["waiting"] > 0 else 0


@inlined
def after_steps(s, steps, preempted):
    """What watches steps sees `steps` more non-empty ones: one, or many that neither preempt nor change."""
    s.st["watched"] += steps
    s.tot["cap_steps"] += s.st["cap"] * steps
    if s.cfg["running_cap"] == RunningCap.FEEDBACK:
        _feed_back(s, preempted)
        s.tot["cap_min"] = min(s.tot["cap_min"], s.st["cap"])
    if s.cfg["backpressure_threshold"] > 0.0:
        _watch_door(s, preempted)


@helper
def _feed_back(s, preempted):
    ring = s.q.cap_window
    window = s.cfg["feedback_window"]
    watched = s.st["watched"]
    if preempted > 0:
        push(ring, s.st["cap_window_head"], s.st["cap_window_size"], watched, preempted)
        s.st["cap_window_size"] += 1
        s.st["cap_preemptions"] += preempted
    while s.st["cap_window_size"] > 0 and oldest_step(ring, s.st["cap_window_head"]) <= watched - window:
        s.st["cap_preemptions"] -= oldest_preemptions(ring, s.st["cap_window_head"])
        s.st["cap_window_head"] = following(ring, s.st["cap_window_head"])
        s.st["cap_window_size"] -= 1
    rate = s.st["cap_preemptions"] / window
    full = watched - s.st["cap_window_start"] >= window
    s.st["hot_steps"] = s.st["hot_steps"] + 1 if full and rate > CONSECUTIVE_RATE else 0
    if s.cfg["feedback_rule"] == FeedbackRule.CONSECUTIVE:
        fires = s.st["hot_steps"] >= CONSECUTIVE_STEPS
    else:
        fires = full and rate > s.cfg["feedback_threshold"]
    if fires:
        target = s.st["running"] - 1
        if s.cfg["feedback_rule"] == FeedbackRule.PROPORTIONAL:
            target = int(s.st["running"] * (1.0 - rate) // 1.0)
        s.st["cap"] = max(target, 1)
        s.st["cap_window_size"] = 0
        s.st["cap_preemptions"] = 0
        s.st["cap_window_start"] = watched
        s.st["calm_start"] = watched
        s.st["hot_steps"] = 0
        return
    if preempted > 0:
        s.st["calm_start"] = watched
    while watched - s.st["calm_start"] >= s.cfg["feedback_recovery"]:
        s.st["cap"] = min(s.st["cap"] + 1, s.cfg["max_num_seqs"])
        s.st["calm_start"] += s.cfg["feedback_recovery"]


@helper
def steps_until_cap_changes(s):
    """Coming calm steps after which the cap may be another one."""
    window = s.cfg["feedback_window"]
    rate = s.st["cap_preemptions"] / window
    left = window - (s.st["watched"] - s.st["cap_window_start"])
    steps = 2**62
    if s.cfg["feedback_rule"] == FeedbackRule.CONSECUTIVE:
        if rate > CONSECUTIVE_RATE:
            steps = max(left, 1)  # hot steps are counted one by one
    elif rate > s.cfg["feedback_threshold"]:
        steps = max(left, 1)
    if s.st["cap"] < s.cfg["max_num_seqs"]:
        steps = min(steps, s.cfg["feedback_recovery"] - (s.st["watched"] - s.st["calm_start"]))
    return steps


@helper
def _watch_door(s, preempted):
    ring = s.q.door_window
    watched = s.st["watched"]
    if preempted > 0:
        push(ring, s.st["door_window_head"], s.st["door_window_size"], watched, preempted)
        s.st["door_window_size"] += 1
        s.st["door_preemptions"] += preempted
    while s.st["door_window_size"] > 0 and (
        oldest_step(ring, s.st["door_window_head"]) <= watched - s.cfg["backpressure_window"]
    ):
        s.st["door_preemptions"] -= oldest_preemptions(ring, s.st["door_window_head"])
        s.st["door_window_head"] = following(ring, s.st["door_window_head"])
        s.st["door_window_size"] -= 1


@inlined
def door_closed(s):
    """Whether backpressure holds: preemptions per non-empty step over the window, above the threshold."""
    threshold = s.cfg["backpressure_threshold"]
    return threshold > 0.0 and s.st["door_preemptions"] / s.cfg["backpressure_window"] > threshold


@helper
def forget_door(s):
    """Nothing is unfinished: the window is cleared, else every later arrival would be refused for ever."""
    s.st["door_window_size"] = 0
    s.st["door_preemptions"] = 0


@helper
def steps_until_door_opens(s):
    """Coming calm steps after which backpressure no longer holds: none when the step just done has ended it."""
    if not door_closed(s):
        return 0
    ring = s.q.door_window
    left = s.st["door_preemptions"]
    head = s.st["door_window_head"]
    for _ in range(s.st["door_window_size"]):
        left -= oldest_preemptions(ring, head)
        if not left / s.cfg["backpressure_window"] > s.cfg["backpressure_threshold"]:
            return oldest_step(ring, head) + s.cfg["backpressure_window"] - s.st["watched"]
        head = following(ring, head)
    return 0


@helper
def push(ring, head, size, step, preemptions):
    """Append a step. The ring has room: a window of W steps holds at most W of them, and the ring W + 1."""
    place = (head + size) % (ring.shape[0] // 2)
    ring[2 * place] = step
    ring[2 * place + 1] = preemptions


@helper
def oldest_step(ring, head):
    """Number of the oldest step in the ring."""
    return ring[2 * head]


@helper
def oldest_preemptions(ring, head):
    """Its preemptions."""
    return ring[2 * head + 1]


@helper
def following(ring, head):
    """Place behind `head`."""
    return (head + 1) % (ring.shape[0] // 2)
