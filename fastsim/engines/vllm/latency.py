"""The step-time model: base, per prefill token, per decode token, per context token of decoding requests."""

from fastsim._jit import inlined


@inlined
def step_us(cfg, prefill_tokens, decode_tokens, context_tokens, moved_blocks):
    """Duration of a step in integer microseconds: IEEE double, summed left to right, truncated."""
    duration = (
        cfg["b0_us"]
        + cfg["b1_us_per_prefill_token"] * prefill_tokens
        + cfg["b2_us_per_decode_token"] * decode_tokens
        + cfg["b3_us_per_context_token"] * context_tokens
    )
    if moved_blocks > 0:
        duration += cfg["swap_us_per_block"] * moved_blocks
    return int(duration)
