"""Who is let in, and how many: feedback.toml, projection.toml, watermark.toml, full_isl.toml."""

from collections.abc import Mapping

import polars as pl

from sweeps.answers.common import (
    THROUGHPUT,
    Interval,
    Section,
    Setup,
    compare,
    mean_of,
    paired,
    rows_of,
    section,
)
from sweeps.answers.text import change, listed, num, pct

BLOCKS, RATE, MODE = "engine.num_gpu_blocks", "workload.arrival.rate_per_s", "engine.preemption_mode"

# --- feedback ---------------------------------------------------------------------------------------------------------

CAP = "choice.cap"
RULES = ("threshold", "proportional", "consecutive")
PLAIN = "fixed 256"
KEPT = 0.9


def answer_feedback(setup: Setup) -> Section:
    """Feedback rules against the best fixed cap of each cell."""
    frame = rows_of("feedback", setup, [f"{RATE}=4", f"{BLOCKS}=3000,15000"])
    ways = (*RULES, PLAIN)
    cells, rows = [], []
    kept: dict[str, list[Interval]] = {way: [] for way in ways}
    for (mode, rate, blocks), cell in frame.group_by([MODE, RATE, BLOCKS], maintain_order=True):
        cells.append((mode, rate, blocks))
        best = _best_fixed(cell)
        for way in ways:
            effect = Interval(0.0, 0.0, 0.0) if way == best else paired(cell, CAP, way, THROUGHPUT, best)
            kept[way].append(Interval(1 + effect.mean, 1 + effect.low, 1 + effect.high))
        served = mean_of(cell.filter(pl.col(CAP) == best), THROUGHPUT)
        shown = [pct(kept[way][-1], signed=False) for way in ways]
        rows.append([_load((mode, rate, blocks)), best.removeprefix("fixed "), num(served), *shown])
    order = sorted(range(len(cells)), key=lambda k: cells[k][0])
    above = {way: sum(value.low > KEPT for value in kept[way]) for way in ways}
    below = {way: [_load(cells[k]) for k in order if kept[way][k].high < KEPT] for way in ways}

    def worst(way: str) -> str:
        k = min(range(len(cells)), key=lambda k: kept[way][k].mean)
        return f"its worst is {pct(kept[way][k], signed=False)} ({_load(cells[k])})"

    def summary(way: str) -> str:
        less = f", and less in {len(below[way])} ({listed(below[way], 6)})" if below[way] else ""
        return f"more than 90 % in {above[way]} of {len(cells)} cells{less}; {worst(way)}"

    main = RULES[0]
    verdict = "Yes" if above[main] == len(cells) else "Not everywhere" if below[main] else "Nearly everywhere"
    overall = {
        mode: paired(frame.filter(pl.col(MODE) == mode), CAP, main, THROUGHPUT, PLAIN)
        for mode in frame[MODE].unique(maintain_order=True)
    }
    return section(
        "feedback",
        frame,
        question="Does feedback keep more than 90 % of the throughput of the best fixed cap?",
        conclusion=f"{verdict}: the threshold rule keeps {summary(main)}.",
        sentences=[
            f"The proportional rule keeps {summary('proportional')}.",
            f"The discussion's own rule (consecutive) keeps {summary('consecutive')}.",
            f"vLLM as it is, a cap of 256, keeps {summary(PLAIN)}.",
            "Compared with that the threshold rule serves "
            + listed([f"{change(value)} under {mode}" for mode, value in overall.items()])
            + ".",
        ],
        header=["load", "best fixed cap", "requests/s", *RULES, PLAIN],
        rows=[rows[k] for k in order],
        notes=[
            "Throughput as a share of the best fixed cap's, which is the best of 13 in each cell, known afterwards."
        ],
    )


def _load(cell: tuple[str, float, int]) -> str:
    mode, rate, blocks = cell
    return f"{mode}, {rate:g}/s, {blocks:,} blocks"


def _best_fixed(cell: pl.DataFrame) -> str:
    """The fixed cap with the most throughput; the smallest of those that are equal."""
    means = cell.filter(pl.col(CAP).str.starts_with("fixed")).group_by(CAP).agg(pl.col(THROUGHPUT).mean())
    ranked = sorted(means.iter_rows(), key=lambda row: (-row[1], int(row[0].removeprefix("fixed "))))
    return str(ranked[0][0])


# --- projection -------------------------------------------------------------------------------------------------------

KNOWLEDGE, GREEDY, TRUE = "choice.knowledge", "nothing (greedy)", "true lengths"


def answer_projection(setup: Setup) -> Section:
    """Projected admission by what is known of output lengths."""
    frame = rows_of("projection", setup, [f"{BLOCKS}=7463"])
    levels = [level for level in frame[KNOWLEDGE].unique(maintain_order=True) if level != GREEDY]
    sizes = sorted(frame[BLOCKS].unique())
    rows = []
    for level in levels:
        mine = frame.filter(pl.col(KNOWLEDGE) == level)
        per_size = [paired(frame.filter(pl.col(BLOCKS) == b), KNOWLEDGE, level, THROUGHPUT, GREEDY) for b in sizes]
        to_true = "-" if level == TRUE else pct(paired(frame, KNOWLEDGE, level, THROUGHPUT, TRUE))
        rows.append([level, *map(pct, per_size), to_true, num(mean_of(mine, "preemptions"), 0)])
    over_greedy = {level: paired(frame, KNOWLEDGE, level, THROUGHPUT, GREEDY) for level in levels}
    over_true = {level: paired(frame, KNOWLEDGE, level, THROUGHPUT, TRUE) for level in levels if level != TRUE}
    bounds = [level for level in levels if level.startswith("limit") and "overcommit" not in level]
    paying = [level for level in levels if over_greedy[level].low > 0]
    losing = [level for level in levels if over_greedy[level].high < 0]
    best = max(levels, key=lambda level: over_greedy[level].mean)
    preempted = frame.filter(pl.col(KNOWLEDGE) == TRUE)["preemptions"].sum()
    used = {level: mean_of(frame.filter(pl.col(KNOWLEDGE) == level), "kv_use_mean") for level in (GREEDY, TRUE)}
    return section(
        "projection",
        frame,
        question="What does it cost to know only a bound of the output length?",
        conclusion=(
            "Against knowing the true lengths, a limit of "
            + listed(
                [f"{level.removeprefix('limit ')} the output serves {change(over_true[level])}" for level in bounds]
            )
            + f"; knowing only the mean serves {change(over_true['mean'])}."
        ),
        sentences=[
            f"Against greedy admission, knowing the true lengths serves {change(over_greedy[TRUE])} requests/s (with "
            f"{preempted:,} preemptions in all runs together): what is reserved stays empty, and "
            f"{pct(used[TRUE], signed=False)} of the KV memory are in use instead of "
            f"{pct(used[GREEDY], signed=False)}.",
            f"Better than greedy: {listed([f'{level} ({pct(over_greedy[level])})' for level in paying])}. Worse: "
            f"{listed([f'{level} ({pct(over_greedy[level])})' for level in losing])}.",
            f"The best of all is {best}: {pct(over_greedy[best])} over greedy.",
            "Overcommitting by the limit's own slack serves "
            + listed(
                [
                    f"{change(over_true[level])} than the true lengths ({level})"
                    for level in levels
                    if level.startswith("limit") and "overcommit" in level
                ]
            )
            + ".",
        ],
        header=[
            "known",
            *(f"requests/s over greedy, {blocks:,} blocks" for blocks in sizes),
            "over true lengths",
            "preemptions",
        ],
        rows=rows,
    )


# --- watermark --------------------------------------------------------------------------------------------------------

WATERMARK = "engine.watermark"
PUBLISHED = {
    0.0: (1065, 2.306),
    0.02: (400, 2.416),
    0.05: (187, 2.423),
    0.1: (168, 2.356),
    0.15: (168, 2.317),
}
"""Preemptions and requests/s measured on a GB200, from vLLM change 44594."""


def answer_watermark(setup: Setup) -> Section:
    """The published curve beside the simulated one."""
    frame = rows_of("watermark", setup)
    part = {value: frame.filter(pl.col(WATERMARK) == value) for value in PUBLISHED}
    preempted = {value: mean_of(part[value], "preemptions") for value in PUBLISHED}
    served = {value: mean_of(part[value], THROUGHPUT) for value in PUBLISHED}
    gain = {v: paired(frame, WATERMARK, v, THROUGHPUT, 0.0) if v else Interval(0.0, 0.0, 0.0) for v in PUBLISHED}
    published_gain = {value: PUBLISHED[value][1] / PUBLISHED[0.0][1] - 1 for value in PUBLISHED}
    off = {value: preempted[value].mean / PUBLISHED[value][0] - 1 for value in PUBLISHED}
    points = {value: 100 * (gain[value].mean - published_gain[value]) for value in PUBLISHED}
    best = max(PUBLISHED, key=lambda value: served[value].mean)
    rivals = compare(frame, WATERMARK, [THROUGHPUT], best)
    level_with = rivals.filter(rivals["verdict"] == "no difference shown")["level"].to_list()
    worse = rivals.filter(verdict="worse")["level"].to_list()
    rows = [
        [
            f"{value:g}",
            f"{PUBLISHED[value][0]:,}",
            f"{num(preempted[value], 0)}",
            f"{100 * off[value]:+.1f} %",
            f"{PUBLISHED[value][1]:.3f}",
            num(served[value], 3),
            pct(published_gain[value]),
            pct(gain[value]),
        ]
        for value in PUBLISHED
    ]
    others = _other_step_times(setup, published_gain)
    published_best = max(PUBLISHED, key=lambda value: PUBLISHED[value][1])
    return section(
        "watermark",
        frame,
        drawn=("preemptions, published", "simulated"),
        question="Which watermark serves the most, and is the published curve reproduced?",
        conclusion=(
            f"The optimum is {best:g}, {'as' if best == published_best else 'not as'} published: {change(gain[best])} "
            f"requests/s than without a watermark (published: {pct(published_gain[best])}), and "
            f"{num(preempted[best], 0)} preemptions instead of {num(preempted[0.0], 0)}."
        ),
        sentences=[
            f"It is better than {listed(worse)}; "
            + (f"no difference is shown to {listed(level_with)}." if level_with else "every difference is shown."),
            f"Mean preemption counts are within {pct(max(abs(v) for v in off.values()), signed=False)} of the "
            f"published ones, ratios of throughput to watermark 0 within {max(abs(v) for v in points.values()):.1f} "
            "points.",
            "The shares of peak behind the step times, 70 % of the compute and 85 % of the bandwidth, are those that "
            f"fastsim's presets assume for every GPU, not fitted to this curve; {'; '.join(others)}.",
        ],
        header=[
            "watermark",
            "preemptions, published",
            "simulated",
            "off by",
            "requests/s, published",
            "simulated",
            "over 0, published",
            "simulated",
        ],
        rows=rows,
        notes=[
            "b0 is calibrated on the first published throughput alone: watermark 0 serves 2.306 requests/s. The "
            "other coefficients are the chip's compute and bandwidth (see the spec and watermark_step_times.toml). "
            "Published are single runs on a GB200 (vLLM change 44594)."
        ],
    )


def _other_step_times(setup: Setup, published_gain: Mapping[float, float]) -> list[str]:
    """What other shares of peak compute give, b0 calibrated again for each: worst ratio, worst count, optimum."""
    frame = rows_of("watermark_step_times", setup)
    out = []
    for share in frame["choice.compute"].unique(maintain_order=True):
        mine = frame.filter(pl.col("choice.compute") == share)
        gains = {value: paired(mine, WATERMARK, value, THROUGHPUT, 0.0).mean for value in PUBLISHED if value}
        means = {value: mean_of(mine.filter(pl.col(WATERMARK) == value), "preemptions").mean for value in PUBLISHED}
        points = max(abs(100 * (gains[value] - published_gain[value])) for value in gains)
        off = max(abs(means[value] / PUBLISHED[value][0] - 1) for value in means)
        best = max(gains, key=lambda value: gains[value])
        out.append(
            f"with {share} ratios are within {points:.1f} points, counts within {pct(off, signed=False)}, the optimum "
            f"{best:g}"
        )
    return out


# --- full ISL ---------------------------------------------------------------------------------------------------------

GATE = "engine.scheduler_reserve_full_isl"
_ISL = {
    "preemptions": "preemptions",
    "recomputed tokens": "recomputed_tokens",
    "TPOT mean, ms": "tpot_served_mean_ms",
    "TTFT p50, ms": "ttft_p50_ms",
    "TTFT p99, ms": "ttft_p99_ms",
    "E2E mean, ms": "e2e_served_mean_ms",
    "ITL p90, ms": "itl_p90_ms",
    "seconds until all are served": "simulated_s",
}


def answer_full_isl(setup: Setup) -> Section:
    """One long prompt too many, with and without the gate."""
    frame = rows_of("full_isl", setup)
    off, on = frame.filter(~pl.col(GATE)), frame.filter(pl.col(GATE))
    rows = [
        [
            name,
            num(mean_of(on, metric)),
            num(mean_of(off, metric)),
            num(paired(frame, GATE, False, metric, True, relative=False)),
        ]
        for name, metric in _ISL.items()
    ]
    tpot = mean_of(off, "tpot_served_mean_ms").mean / mean_of(on, "tpot_served_mean_ms").mean
    slower = paired(frame, GATE, False, "simulated_s", True)
    preempted = mean_of(off, "preemptions")
    collapses = paired(frame, GATE, False, "tpot_served_mean_ms", True).low > 0
    return section(
        "full_isl",
        frame,
        drawn=(),
        question="What does one long prompt that does not fit do to the others, with and without the full-ISL gate?",
        conclusion=(
            f"Without the gate {'decoding collapses' if collapses else 'no slower decoding is shown'}: a token takes "
            f"{tpot:.1f} times as long on average, {num(preempted, 0)} preemptions compute "
            f"{num(mean_of(off, 'recomputed_tokens'), 0)} tokens again, and serving all takes {change(slower)} time."
        ),
        sentences=[
            f"With the gate the fifth prompt waits: {num(mean_of(on, 'preemptions'), 0)} preemptions, the longest "
            f"wait for admission {num(mean_of(on, 'longest_admission_wait_ms'), 0)} ms.",
        ],
        header=["", "with the gate", "without", "difference"],
        rows=rows,
    )
