"""The step-time model: vLLM's (`fastsim.engines.vllm.latency`), and the drafter's time."""

from fastsim._jit import inlined
from fastsim.engines.vllm.latency import prefill_us, tokens_us


@inlined
def scheduled_step_us(s):
    """Duration of the step just scheduled, in integer microseconds: IEEE double, summed left to right, truncated."""
    prefill = s.st["prefill_tokens"]
    duration = tokens_us(s, prefill, s.st["decode_tokens"])
    duration += s.cfg["b3_us_per_context_token"] * s.st["context_tokens"]
    if s.st["window_tokens"] > 0:
        duration += s.cfg["b6_us_per_window_token"] * s.st["window_tokens"]
    duration += prefill_us(s.cfg, prefill, s.st["prefill_pairs_doubled"])
    return int(duration + draft_us(s, s.st["samplers"]))


@inlined
def decode_step_us(s, by_tokens_us, context_tokens, samplers):
    """The same of a step without prefill and windows, what its number of tokens decides being known."""
    return int(by_tokens_us + s.cfg["b3_us_per_context_token"] * context_tokens + draft_us(s, samplers))


@inlined
def draft_us(s, samplers):
    """The drafter works where a token is sampled: for each of the `samplers` it makes k drafts."""
    if s.cfg["k"] == 0 or samplers == 0:
        return 0.0
    return s.cfg["draft_us"] + s.cfg["draft_us_per_token"] * (s.cfg["k"] * samplers)
