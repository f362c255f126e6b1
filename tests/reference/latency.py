"""The table of step times by tokens, as plainly as it can be said."""

from bisect import bisect_left, bisect_right
from types import SimpleNamespace


def captured_sizes(largest: int) -> list[int]:
    """Batch sizes for which vLLM captures a CUDA graph."""
    sizes = [1, 2, 4, *range(8, 257, 8), *range(272, 16 * 10**4, 16)]
    return [size for size in sizes if size <= largest]


def table_us(config: SimpleNamespace, prefill_tokens: int, decode_tokens: int) -> float:
    """Piecewise linear; flat before the first knot, the last slope beyond the last; a step of decodes is padded."""
    knots: list[tuple[int, float]] = list(zip(config.table_tokens, config.table_us, strict=True))
    tokens = prefill_tokens + decode_tokens
    if not knots or not tokens:
        return 0.0
    if not prefill_tokens:
        sizes = captured_sizes(config.max_cudagraph_capture_size)
        place = bisect_left(sizes, tokens)
        tokens = sizes[place] if place < len(sizes) else tokens
    knots = [(at, us * config.table_scale) for at, us in knots]
    below = max(bisect_right([at for at, _ in knots], tokens) - 1, 0)
    start, start_us = knots[below]
    if tokens <= start or len(knots) == 1:
        return start_us
    (a, a_us), (b, b_us) = knots[below : below + 2] if below + 1 < len(knots) else knots[-2:]
    return start_us + (b_us - a_us) / (b - a) * (tokens - start)
