"""The step-time model: a base, terms by tokens, a table by tokens, terms by context.

    int(b0 + b1*prefill + b2*decode + table(tokens) + b3*context + b6*window + [b5 + b4*pairs, with prefill] + swap)

in IEEE doubles, left to right, truncated. `pairs` counts a prefill token with each token before it, and half with
itself: chunk * (computed before + chunk / 2), summed over chunks. It is accumulated doubled, as an integer.
"""

from fastsim._jit import helper, inlined
from fastsim.engines.step_table import find_knot, graph_tokens, us_from_knot

NEVER_FILLS = 2**62
"""`window_fill_clock` when nobody on the clock has less than a window of context."""


@inlined
def scheduled_step_us(s):
    """Duration of the step that schedule() has just decided, in integer microseconds."""
    prefill = s.st["prefill_tokens"]
    by_tokens_us = tokens_us(s, prefill, s.st["decode_tokens"])
    attention_us = prefill_us(s.cfg, prefill, s.st["prefill_pairs_doubled"])
    return step_us(
        s.cfg, by_tokens_us, s.st["context_tokens"], s.st["window_tokens"], attention_us, s.st["moved_blocks"]
    )


@inlined
def step_us(cfg, tokens_us, context_tokens, window_tokens, prefill_us, moved_blocks):
    """The sum of what a step takes, in integer microseconds."""
    duration = tokens_us + cfg["b3_us_per_context_token"] * context_tokens
    if window_tokens > 0:
        duration += cfg["b6_us_per_window_token"] * window_tokens
    duration += prefill_us
    if moved_blocks > 0:
        duration += cfg["swap_us_per_block"] * moved_blocks
    return int(duration)


@inlined
def tokens_us(s, prefill_tokens, decode_tokens):
    """The part that only the numbers of tokens decide."""
    cfg = s.cfg
    us = cfg["b0_us"] + cfg["b1_us_per_prefill_token"] * prefill_tokens + cfg["b2_us_per_decode_token"] * decode_tokens
    if cfg["table_knots"] > 0:
        tokens = prefill_tokens + decode_tokens if prefill_tokens > 0 else graph_tokens(s.table, decode_tokens)
        knot = find_knot(s.table, tokens, s.st["table_knot"])
        s.st["table_knot"] = knot
        us += us_from_knot(s.table, tokens, knot)
    return us


@inlined
def prefill_us(cfg, prefill_tokens, pairs_doubled):
    """What prefilling takes besides its tokens: a fixed time, and attention to what was computed before."""
    if prefill_tokens == 0:
        return 0.0
    return cfg["b5_us_per_prefill_step"] + cfg["b4_us_per_prefill_pair"] * (0.5 * pairs_doubled)


# --- Context within a window: what a layer of sliding-window attention reads ----------------------------------------
#
# The sum of min(C, window) over decoding requests. On the clock those below the window are counted, with their
# offsets, so that the sum is known without a look at any of them; it grows by their number in every step until the
# first of them fills its window (`window_fill_clock`).


@inlined
def clock_window_tokens(s):
    """The sum over everybody on the clock, at the clock as it stands."""
    below = s.st["window_below"]
    return s.st["window_below_context"] + below * s.st["clock"] + (s.st["clocked"] - below) * s.cfg["window_tokens"]


@inlined
def enter_window(s, offset):
    """Somebody starts to decode on the clock with C = `offset` + clock. Call `fill_windows` before it."""
    if s.cfg["window_tokens"] > 0 and offset + s.st["clock"] < s.cfg["window_tokens"]:
        s.st["window_below"] += 1
        s.st["window_below_context"] += offset
        s.st["window_fill_clock"] = min(s.st["window_fill_clock"], s.cfg["window_tokens"] - offset)


@inlined
def leave_window(s, offset):
    """Somebody leaves the clock. Call `fill_windows` before it."""
    if s.cfg["window_tokens"] > 0 and offset + s.st["clock"] < s.cfg["window_tokens"]:
        s.st["window_below"] -= 1
        s.st["window_below_context"] -= offset


@inlined
def fill_windows(s):
    """Count anew who is below the window, when somebody has filled it since."""
    if s.st["clock"] >= s.st["window_fill_clock"]:
        _count_below(s)


@helper
def _count_below(s):
    below = context = 0
    fill_clock = NEVER_FILLS
    for slot in range(s.st["clocked"]):
        offset = s.req.num_computed_tokens[s.q.clock_request[slot]]
        if offset + s.st["clock"] < s.cfg["window_tokens"]:
            below += 1
            context += offset
            fill_clock = min(fill_clock, s.cfg["window_tokens"] - offset)
    s.st["window_below"] = below
    s.st["window_below_context"] = context
    s.st["window_fill_clock"] = fill_clock
