"""What a preemption costs and who pays it: victims.toml, swap.toml, salvage.toml."""

from itertools import pairwise
from math import exp, log, nan

import polars as pl

from sweeps.answers.common import (
    BETTER,
    THROUGHPUT,
    WORSE,
    Interval,
    Section,
    Setup,
    compare,
    counts,
    paired,
    ratio_of,
    rows_of,
    section,
)
from sweeps.answers.text import change, listed, num, pct

BLOCKS = "engine.num_gpu_blocks"

# --- victims ----------------------------------------------------------------------------------------------------------

VICTIM, LENGTHS = "engine.victim", "choice.lengths"


def answer_victims(setup: Setup) -> Section:
    """least_computed and the others against tail."""
    frame = rows_of("victims", setup, [f"{BLOCKS}=4000,7463"])
    kinds = [kind for kind in frame[VICTIM].unique(maintain_order=True) if kind != "tail"]
    lengths = frame[LENGTHS].unique(maintain_order=True).to_list()
    cells = frame[BLOCKS].n_unique()
    part = {length: frame.filter(pl.col(LENGTHS) == length) for length in lengths}

    def effect(length: str, kind: str, metric: str, relative: bool = True) -> Interval:
        return paired(part[length], VICTIM, kind, metric, "tail", relative=relative)

    rows = []
    for length in lengths:
        for kind in kinds:
            found = counts(part[length], VICTIM, kind, "recomputed_tokens", "tail", [BLOCKS])
            rows.append(
                [
                    f"{length}, {kind}",
                    pct(effect(length, kind, "recomputed_tokens")),
                    f"{found[BETTER]} / {found[WORSE]}",
                    pct(effect(length, kind, THROUGHPUT)),
                    pct(effect(length, kind, "ttft_p99_ms")),
                    num(effect(length, kind, "jain_slowdown", relative=False), 3, signed=True),
                ]
            )
    least = {
        (length, metric): effect(length, "least_computed", metric) for length in lengths for metric in _VICTIM_METRICS
    }
    cut = all(least[length, "recomputed_tokens"].high < 0 for length in lengths)
    per_cell = {length: _by_blocks(part[length]) for length in lengths}
    best = {length: min(kinds, key=lambda kind: effect(length, kind, "recomputed_tokens").mean) for length in lengths}
    return section(
        "victims",
        frame,
        question="Should the least computed request be preempted rather than the last?",
        conclusion=(
            f"{'It cuts recomputed tokens' if cut else 'It does not always cut recomputed tokens'}: "
            + " and ".join(f"{change(least[length, 'recomputed_tokens'])} with {length} lengths" for length in lengths)
            + "; throughput: "
            + " and ".join(f"{change(least[length, THROUGHPUT], 'more', 'less')}" for length in lengths)
            + "."
        ),
        sentences=[
            "TTFT p99: "
            + listed([f"{change(least[length, 'ttft_p99_ms'], 'later', 'earlier')} ({length})" for length in lengths])
            + ".",
            "Jain's index of slowdown: "
            + listed(
                [
                    f"{num(effect(length, 'least_computed', 'jain_slowdown', relative=False), 3, signed=True)} "
                    f"({length})"
                    for length in lengths
                ]
            )
            + ", where more is fairer.",
            *(
                f"With {length} lengths the saving is {pct(values[0][1])} at {values[0][0]:,} blocks and "
                f"{pct(values[-1][1])} at {values[-1][0]:,}."
                for length, values in per_cell.items()
                if values
            ),
            f"The rule that recomputes the least is {listed([f'{best[length]} ({length})' for length in lengths])}.",
        ],
        header=[
            "lengths, victim",
            "recomputed tokens",
            f"of {cells} KV sizes better / worse",
            "requests/s",
            "TTFT p99",
            "Jain's index",
        ],
        rows=rows,
        notes=["Against tail, over all KV sizes; all requests are served to the end, so that the work is the same."],
    )


_VICTIM_METRICS = ("recomputed_tokens", THROUGHPUT, "ttft_p99_ms")


def _by_blocks(frame: pl.DataFrame) -> list[tuple[int, Interval]]:
    """What least_computed does to recomputed tokens at each KV size where tail preempts."""
    out = []
    for blocks in sorted(frame[BLOCKS].unique()):
        cell = frame.filter(pl.col(BLOCKS) == blocks)
        if cell.filter(pl.col(VICTIM) == "tail")["recomputed_tokens"].mean():
            out.append((blocks, paired(cell, VICTIM, "least_computed", "recomputed_tokens", "tail")))
    return out


# --- swap -------------------------------------------------------------------------------------------------------------

CONTEXT, PREEMPTION = "choice.context", "choice.preemption"
BLOCK_BYTES, BLOCK_TOKENS, PREFILL_US = 2**21, 16, 17.25


def answer_swap(setup: Setup) -> Section:
    """Swap against recompute, by bandwidth and context length."""
    frame = rows_of("swap", setup)
    contexts = frame[CONTEXT].unique(maintain_order=True).to_list()
    levels = [level for level in frame[PREEMPTION].unique(maintain_order=True) if level != "recompute"]
    bandwidths = [float(level.split()[1]) for level in levels]
    table = compare(frame, PREEMPTION, [THROUGHPUT], "recompute", [CONTEXT])
    effects = {
        (row[CONTEXT], row["level"]): Interval(row["relative"], row["relative_low"], row["relative_high"])
        for row in table.iter_rows(named=True)
    }
    even = {c: _break_even(bandwidths, [effects[c, level] for level in levels]) for c in contexts}
    rows = [[context, *(pct(effects[context, level]) for level in levels), _gb(even[context])] for context in contexts]
    known = [value for value in even.values() if value.mean == value.mean]
    theory = 2 * BLOCK_BYTES / (BLOCK_TOKENS * PREFILL_US * 1e-6) / 1e9
    slow, fast = levels[0], levels[-1]
    worse = {level: [c for c in contexts if effects[c, level].high < 0] for level in levels}
    pays = {level: [c for c in contexts if effects[c, level].low > 0] for level in levels}
    shown = (
        f"between {min(v.mean for v in known):.0f} and {max(v.mean for v in known):.0f} GB/s"
        if known
        else "nowhere here"
    )
    return section(
        "swap",
        frame,
        question="From which bandwidth on is swapping better than recomputing?",
        conclusion=(f"The break-even is {shown}: {listed([f'{_gb(even[c])} for {c}' for c in contexts])}."),
        sentences=[
            f"Moving a block out and in takes as long as computing its 16 tokens at {theory:.1f} GB/s; that is what "
            "the break-even would be if only this time counted.",
            f"At {slow.removeprefix('swap ')} swapping is worse for {listed(worse[slow])}; at "
            f"{fast.removeprefix('swap ')} it is better for {listed(pays[fast])}, by "
            f"{pct(min((effects[c, fast] for c in contexts), key=lambda v: v.mean))} to "
            f"{pct(max((effects[c, fast] for c in contexts), key=lambda v: v.mean))}.",
        ],
        header=["context", *(level.removeprefix("swap ") for level in levels), "break-even"],
        rows=rows,
        notes=[
            "Requests/s of swap over recompute. A block is 2 MiB; the host pool is never full. Transfers do not "
            "overlap with computing, and attention costs of long prefills are not modelled: both would help swap."
        ],
    )


def _break_even(bandwidths: list[float], effects: list[Interval]) -> Interval:
    """Where the effect crosses 0, linear in the logarithm of the bandwidth; the bounds are where the bounds cross."""
    crossings = [
        _crossing(bandwidths, [getattr(effect, part) for effect in effects]) for part in ("mean", "high", "low")
    ]
    return Interval(*crossings)


def _crossing(bandwidths: list[float], values: list[float]) -> float:
    points = list(zip(bandwidths, values, strict=True))
    for (x0, y0), (x1, y1) in pairwise(points):
        if y0 < 0 <= y1:
            return exp(log(x0) + (log(x1) - log(x0)) * -y0 / (y1 - y0))
    return nan


def _gb(value: Interval) -> str:
    return "not in this range" if value.mean != value.mean else f"{num(value, 1)} GB/s"


# --- salvage ----------------------------------------------------------------------------------------------------------

RATE, NAME, CACHING = "workload.arrival.rate_per_s", "engine.name", "engine.enable_prefix_caching"


def answer_salvage(setup: Setup) -> Section:
    """What prefix caching finds again of preempted requests."""
    frame = rows_of("salvage", setup, [f"{RATE}=3,10", f"{BLOCKS}=3000,7463"])
    names = frame[NAME].unique(maintain_order=True).to_list()
    cells = []
    for (rate, blocks), cell in frame.group_by([RATE, BLOCKS], maintain_order=True):
        on = cell.filter(pl.col(CACHING))
        if on["preemptions"].mean() < 1:  # type: ignore[operator]
            continue
        load = cell["offered_kv_load"].mean()
        share = {name: _salvaged(on.filter(pl.col(NAME) == name)) for name in names}
        gain = {name: paired(cell.filter(pl.col(NAME) == name), CACHING, True, THROUGHPUT, False) for name in names}
        cells.append((load, rate, blocks, share, gain))
    cells.sort(key=lambda item: item[0])
    rows = [
        [
            f"{load:.1f} ({rate:g}/s, {blocks:,} blocks)",
            *(pct(share[n], signed=False) for n in names),
            *map(pct, gain.values()),
        ]
        for load, rate, blocks, share, gain in cells
    ]
    pressed = frame.join(pl.DataFrame({RATE: [c[1] for c in cells], BLOCKS: [c[2] for c in cells]}), on=[RATE, BLOCKS])
    new = names[0]
    overall = {name: _salvaged(pressed.filter(pl.col(CACHING), pl.col(NAME) == name)) for name in names}
    gains = {name: paired(pressed.filter(pl.col(NAME) == name), CACHING, True, THROUGHPUT, False) for name in names}
    low, high = cells[0], cells[-1]
    verdict = (
        "Salvage is indeed unlikely"
        if overall[new].high < 0.1
        else "Salvage is the rule"
        if overall[new].low > 0.5
        else "Salvage is partial"
    )
    unpaid = [f"{c[0]:.1f}" for c in cells if not c[4][new].low > 0]
    return section(
        "salvage",
        frame,
        question='How much does prefix caching save of a preempted request: is "salvage is unlikely" true?',
        conclusion=(
            f"{verdict}: {pct(overall[new], signed=False)} of the tokens that preempted requests need again are "
            "found in "
            f"the cache on 0.33.0, {pct(overall[names[1]], signed=False)} on 0.16.0; throughput is "
            f"{change(gains[new])} with "
            "caching on 0.33.0" + f", {change(gains[names[1]])} on 0.16.0."
        ),
        sentences=[
            f"From the least pressure to the most (KV load {low[0]:.1f} to {high[0]:.1f}) the share goes from "
            f"{pct(low[3][new], signed=False)} to {pct(high[3][new], signed=False)} on 0.33.0.",
            f"No gain in throughput on 0.33.0 is shown at loads {listed(unpaid)}." if unpaid else "",
        ],
        header=[
            "offered KV load",
            *(f"salvaged, {name.removeprefix('vllm-')}" for name in names),
            *(f"requests/s with caching, {name.removeprefix('vllm-')}" for name in names),
        ],
        rows=rows,
        notes=[
            "Cells in which something is preempted. Salvaged: tokens found in the cache at re-admission, of those "
            "found and those computed again."
        ],
    )


def _salvaged(frame: pl.DataFrame) -> Interval:
    return ratio_of(frame, pl.col("salvaged_tokens"), pl.col("salvaged_tokens") + pl.col("recomputed_tokens"))
