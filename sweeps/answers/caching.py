"""What a prefix cache finds, by its size: mooncake.toml."""

import math

import polars as pl

from sweeps.answers.common import Section, Setup, rows_of, section
from sweeps.answers.text import listed, pct

BLOCKS, SCALE, CACHING = "engine.num_gpu_blocks", "workload.rate_scale", "engine.enable_prefix_caching"
FOUND, TTFT = "prefix_hit_share", "ttft_served_mean_ms"
OWN_POOL = 28_000
"""About what `--model llama-3.1-8b --gpu h100` gives: 28,241."""
BLOCK_GIB = 16 * 131_072 / 2**30
"""KV of a block of 16 tokens of Llama-3.1-8B."""


def answer_mooncake(setup: Setup) -> Section:
    """Hit share and first token against KV blocks, for two loads."""
    frame = rows_of("mooncake", setup, [f"{BLOCKS}=8000,{OWN_POOL},450000,1280000"])
    means = frame.group_by(SCALE, BLOCKS, CACHING).agg(pl.col(FOUND, TTFT).mean())
    cell = {tuple(row[:3]): row[3:] for row in means.iter_rows()}
    scales, sizes = sorted(frame[SCALE].unique()), sorted(frame[BLOCKS].unique())
    slow = scales[0]
    most = {scale: max(cell[scale, size, True][0] for size in sizes) for scale in scales}
    own = cell[slow, OWN_POOL, True][0]
    half = round_two(half_of([cell[slow, size, True][0] for size in sizes], sizes))
    rows = []
    for size in sizes:
        shares = [pct(cell[scale, size, True][0], signed=False) for scale in scales]
        firsts = [f"{cell[slow, size, caching][1] / 1e3:.2f}" for caching in (False, True)]
        rows.append([f"{size:,}", f"{size * BLOCK_GIB:,.0f}", *shares, *firsts])
    before, after = (cell[slow, sizes[-1], caching][1] for caching in (False, True))
    late = [f"{pct(most[scale], signed=False)} at {scale:g} times the rate" for scale in scales]
    return section(
        "mooncake",
        frame,
        drawn=("found, 0.25 x rate", "found, 1 x rate"),
        question="How much KV memory does prefix caching need on real conversations?",
        conclusion=(
            f"Far more than one GPU has: the {OWN_POOL:,} blocks that a model of 8 billion parameters leaves on an "
            f"H100 find {pct(own, signed=False)} of all prompt tokens, {pct(own / most[slow], signed=False)} of what "
            f"an unlimited cache finds; half of what that finds takes about {half:,.0f} blocks "
            f"({half * BLOCK_GIB:,.0f} GiB)."
        ),
        sentences=[
            f"The most that is found is {listed(late)}: the traffic decides it, not the load.",
            f"At {slow:g} times the rate an unlimited cache brings the mean TTFT from {before / 1e3:.2f} s to "
            f"{after / 1e3:.2f} s ({pct(after / before - 1)}).",
            "What is asked again are conversations, minutes after their last turn: until then everybody else's prompts "
            "pass through the cache.",
        ],
        header=[
            "KV blocks",
            "GiB",
            *(f"found, {scale:g} x rate" for scale in scales),
            "TTFT without cache, s",
            "with cache, s",
        ],
        rows=rows,
        notes=[
            f"Found: prefix-cache hits at first admission over prompt tokens. TTFT: means at {slow:g} times the rate. "
            "One recording, hence no intervals. That nothing of the unlimited cache is missed and a small one evicts "
            "as it should, `tests/test_mooncake.py` counts with two caches in plain Python."
        ],
    )


def half_of(shares: list[float], sizes: list[int]) -> float:
    """The size at which half of the greatest share is found, between two sizes in proportion to their logarithms."""
    target = max(shares) / 2
    k = next(k for k, share in enumerate(shares) if share >= target)
    if k == 0:
        return float(sizes[0])
    part = (target - shares[k - 1]) / (shares[k] - shares[k - 1])
    return math.exp(math.log(sizes[k - 1]) + part * math.log(sizes[k] / sizes[k - 1]))


def round_two(value: float) -> float:
    """Two significant digits: between two sizes no more is known."""
    return float(f"{value:.2g}")
