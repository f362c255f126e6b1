"""What collapse is, where it happens, and what helps: discussion.toml, remedies.toml, where.toml."""

import polars as pl

from sweeps.answers.common import (
    BETTER,
    SEED,
    THROUGHPUT,
    WORSE,
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

# --- discussion -------------------------------------------------------------------------------------------------------

SCENARIO, NAME, MODE, SEQS = "choice.scenario", "engine.name", "engine.preemption_mode", "engine.max_num_seqs"

FIRST_SEED = 7
"""The seed of the spec, on whose requests the real schedulers were recorded."""

BLIS = {
    ("300 at 10/s", 256): ("0 / 291", "175 / 3,613"),
    ("300 at 10/s", 32): ("162 / 0", "162 / 0"),
    ("50 at once", 256): ("0 / 207", "50 / 110"),
    ("50 at once", 32): ("50 / 0", "50 / 0"),
}
"""Completed / evicted by BLIS itself: builds a393b435 (the discussion's) and f90a1e3a, run with these coefficients.

They space arrivals evenly, 10 per second in both scenarios. The discussion reported 0 / 9,599 for the first row.
"""


def answer_discussion(setup: Setup) -> Section:
    """Over-admission and right-sizing, on both releases and with restart."""
    seeds = "sweep.seeds=30"
    frame = rows_of("discussion", setup, sets=[seeds])
    rows = []
    for (scenario, seqs), (old, new) in BLIS.items():
        cell = frame.filter(pl.col(SCENARIO) == scenario, pl.col(SEQS) == seqs)
        cells = [
            cell.filter(pl.col(NAME) == name, pl.col(MODE) == mode)
            for name, mode in (("vllm-0.33.0", "recompute"), ("vllm-0.16.0", "recompute"), ("vllm-0.33.0", "restart"))
        ]
        shown = [f"{num(mean_of(c, 'completed'), 0)} / {num(mean_of(c, 'preemptions'), 0)}" for c in cells]
        rows.append([f"{scenario}, {seqs}", *shown, old, new])
    loss = {
        (scenario, name, mode): _loss(frame, scenario, name, mode)
        for scenario in ("300 at 10/s", "50 at once")
        for name, mode in (("vllm-0.33.0", "recompute"), ("vllm-0.16.0", "recompute"), ("vllm-0.33.0", "restart"))
    }
    main = loss["300 at 10/s", "vllm-0.33.0", "recompute"]
    old = loss["300 at 10/s", "vllm-0.16.0", "recompute"]
    restart = loss["300 at 10/s", "vllm-0.33.0", "restart"]
    over = frame.filter(
        pl.col(SCENARIO) == "300 at 10/s",
        pl.col(SEQS) == 256,
        pl.col(NAME) == "vllm-0.33.0",
        pl.col(MODE) == "recompute",
    )
    least = over["completed"].min()
    opposed = main.high < 0 < restart.low
    recorded = over.sort((pl.col(SEED) - FIRST_SEED).abs()).row(0, named=True)
    return section(
        "discussion",
        frame,
        options=f" --set {seeds}",
        question="What do over-admission and right-sizing cost on real vLLM?",
        conclusion=(
            f"Real vLLM {'does not collapse' if least else 'can collapse'}: with max_num_seqs 256 vLLM 0.33.0 "
            f"completes {num(mean_of(over, 'completed'), 0)} of 300 requests in 120 s (the least of any seed: "
            f"{least}), and right-sizing to 32 serves {change(main)}."
        ),
        sentences=[
            f"On vLLM 0.16.0, 32 serves {change(old)}, compared with 256.",
            f"If preemption threw output away (restart), 32 would serve {change(restart)}"
            + (": the advice to right-size reverses with what a preemption keeps." if opposed else "."),
            f"With 50 requests at once, 32 serves {change(loss['50 at once', 'vllm-0.33.0', 'recompute'])} on "
            f"0.33.0, {change(loss['50 at once', 'vllm-0.16.0', 'recompute'])} on 0.16.0 and "
            f"{change(loss['50 at once', 'vllm-0.33.0', 'restart'])} with restart.",
        ],
        header=[
            "scenario, max_num_seqs",
            "vLLM 0.33.0",
            "vLLM 0.16.0",
            "0.33.0 with restart",
            "BLIS a393b435",
            "BLIS f90a1e3a",
        ],
        rows=rows,
        notes=[
            "Completed / preemptions. The discussion reported 0 / 9,599 for its first row; its simulator's build "
            "gives the figures of the fifth column (a block leak, fixed since). Both BLIS columns are single runs "
            f"with evenly spaced arrivals, 10 per second in all rows. Seed {recorded[SEED]}, vLLM 0.33.0, first row: "
            f"{recorded['completed']} / {recorded['preemptions']:,}.",
        ],
    )


def _loss(frame: pl.DataFrame, scenario: str, name: str, mode: str) -> Interval:
    cell = frame.filter(pl.col(SCENARIO) == scenario, pl.col(NAME) == name, pl.col(MODE) == mode)
    return paired(cell, SEQS, 32, THROUGHPUT, 256)


# --- remedies ---------------------------------------------------------------------------------------------------------

REMEDY, RATE, BLOCKS = "choice.remedy", "workload.arrival.rate_per_s", "engine.num_gpu_blocks"
SHOWN_PAIRS = 12
TTFT = "ttft_p50_ms"


def answer_remedies(setup: Setup) -> Section:
    """Remedies alone and in pairs, against vLLM as it is."""
    frame = rows_of("remedies", setup, [f"{RATE}=3,10", f"{BLOCKS}=5000"])
    plain = frame.filter(pl.col(REMEDY) == "none")
    cells = plain.group_by(RATE, BLOCKS).agg(pl.col("preemptions").mean())
    pressed = cells.filter(pl.col("preemptions") >= 1)
    under = frame.join(pressed.select(RATE, BLOCKS), on=[RATE, BLOCKS], how="semi")
    overall = compare(under, REMEDY, [THROUGHPUT, "recomputed_share"], "none")
    by_cell = compare(under, REMEDY, [THROUGHPUT, TTFT], "none", [RATE, BLOCKS])
    refused = under.group_by(REMEDY).agg(pl.col("rejected").sum() / (pl.col("offered").sum()))
    share_refused = dict(refused.iter_rows())
    gain = {row["level"]: _relative(row) for row in overall.filter(metric=THROUGHPUT).iter_rows(named=True)}
    waste = {row["level"]: _difference(row) for row in overall.filter(metric="recomputed_share").iter_rows(named=True)}
    order = sorted(gain, key=lambda name: -gain[name].mean)
    singles = [name for name in order if " + " not in name]
    pairs = [name for name in order if " + " in name]
    verdicts = {
        (level, metric): _spread(by_cell.filter(level=level, metric=metric))
        for level in gain
        for metric in (THROUGHPUT, TTFT)
    }
    rows = [
        [
            name,
            pct(gain[name]),
            _ratio(verdicts[name, THROUGHPUT]),
            _points(waste[name]),
            _ratio(verdicts[name, TTFT]),
            pct(share_refused[name], signed=False),
        ]
        for name in [*singles, *pairs[:SHOWN_PAIRS], *(name for name in pairs[SHOWN_PAIRS:] if gain[name].high < 0)]
    ]
    worse = [name for name in singles if gain[name].high < 0]
    best, pair = singles[0], pairs[0]
    parts = pair.split(" + ")
    better_part = max(parts, key=lambda name: gain[name].mean)
    over_part = paired(under, REMEDY, pair, THROUGHPUT, better_part)
    mixed = [name for name in singles if gain[name].low > 0 and verdicts[name, THROUGHPUT][WORSE]]
    harmful_pairs = [name for name in pairs if gain[name].high < 0]
    synergy = [
        name for name in pairs if all(paired(under, REMEDY, name, THROUGHPUT, p).low > 0 for p in name.split(" + "))
    ]
    return section(
        "remedies",
        frame,
        question="Which remedy against preemption collapse helps, and where does one make things worse?",
        conclusion=(
            f"Of {len(singles)} remedies alone, {best} serves the most ({pct(gain[best])} requests/s over nothing); "
            f"of {len(pairs)} pairs, {pair} does ({pct(gain[pair])}; {change(over_part)}, compared with {better_part} "
            "alone)."
        ),
        sentences=[
            f"That is over the {pressed.height} of {cells.height} cells (rate x KV size) in which plain vLLM 0.33.0 "
            "preempts at all.",
            f"TTFT p50 with {best} is better in {verdicts[best, TTFT][BETTER]} and worse in "
            f"{verdicts[best, TTFT][WORSE]} of them, with {pair} in {verdicts[pair, TTFT][BETTER]} and "
            f"{verdicts[pair, TTFT][WORSE]}.",
            f"Worse than nothing in throughput: {listed([f'{name} ({pct(gain[name])})' for name in worse])}.",
            f"{len(harmful_pairs)} pairs are worse than nothing; {len(synergy)} of {len(pairs)} are better than each "
            "of their parts.",
            f"Better on the whole, yet worse in some cells: {listed(mixed)}." if mixed else "",
        ],
        header=[
            "remedy",
            "requests/s over none",
            "cells better / worse",
            "recomputed share, points",
            "TTFT p50: cells better / worse",
            "refused",
        ],
        rows=rows,
        notes=[
            f"Sorted by throughput, the {SHOWN_PAIRS} best pairs and all harmful ones; the folder has the rest. A "
            "request that is refused or gets no token within the run counts as infinitely late in TTFT p50.",
        ],
    )


def _relative(row: dict[str, float]) -> Interval:
    return Interval(row["relative"], row["relative_low"], row["relative_high"])


def _difference(row: dict[str, float]) -> Interval:
    return Interval(row["difference"], row["difference_low"], row["difference_high"])


def _spread(rows: pl.DataFrame) -> dict[str, int]:
    return {verdict: rows.filter(verdict=verdict).height for verdict in (BETTER, WORSE)}


def _ratio(verdicts: dict[str, int]) -> str:
    return f"{verdicts[BETTER]} / {verdicts[WORSE]}"


def _points(value: Interval) -> str:
    return f"{100 * value.mean:+.1f} [{100 * value.low:.1f}, {100 * value.high:.1f}]"


# --- where ------------------------------------------------------------------------------------------------------------

TRAFFIC, OUTPUT = "choice.traffic", "choice.output"
THRASH, LONG = 0.1, 800
"""From which share on a run counts as wasteful (a tenth of the tokens), from which length on an output as long."""


def answer_where(setup: Setup) -> Section:
    """The share of work that is done twice, by output length and max_num_seqs."""
    frame = rows_of("where", setup, [f"{SEQS}=32,256"])
    caps = sorted(frame[SEQS].unique())
    outputs = frame[OUTPUT].unique(maintain_order=True).to_list()
    traffics = frame[TRAFFIC].unique(maintain_order=True).to_list()
    waste = {
        (traffic, output, cap): mean_of(mine, "recomputed_share")
        for (traffic, output, cap), mine in frame.group_by([TRAFFIC, OUTPUT, SEQS])
    }
    rows = [
        [f"{traffic}, {output}", *(pct(waste[traffic, output, cap], signed=False) for cap in caps)]
        for traffic in traffics
        for output in outputs
    ]
    open_, closed = traffics

    def first(traffic: str, output: str) -> int | None:
        return next((cap for cap in caps if waste[traffic, output, cap].low > THRASH), None)

    def clean(traffic: str, output: str) -> bool:
        return all(waste[traffic, output, cap].high < 0.01 for cap in caps)

    wasteful = {t: [o for o in outputs if first(t, o) is not None] for t in traffics}
    chat = "200 tokens"
    most = max(waste.values(), key=lambda value: value.mean)
    small = [cap for cap in caps if all(waste[t, o, cap].high < 0.01 for t in traffics for o in outputs)]
    gains = {
        output: paired(
            frame.filter(pl.col(TRAFFIC) == closed, pl.col(OUTPUT) == output), SEQS, caps[-1], THROUGHPUT, 32
        )
        for output in outputs
    }
    slower = [output for output in outputs if gains[output].high < 0]
    true_chat = clean(open_, chat)
    lowest = min(cap for traffic in traffics for output in outputs if (cap := first(traffic, output)) is not None)
    long_ = {traffic: int(wasteful[traffic][0].split()[0]) >= LONG for traffic in traffics}
    from_ = {traffic: wasteful[traffic][0] for traffic in traffics}
    return section(
        "where",
        frame,
        question="Does collapse need long outputs and a high max_num_seqs?",
        conclusion=(
            f"A high max_num_seqs: {'yes' if small else 'no'}, more than {pct(THRASH, 0, signed=False)} of the work "
            f"is done twice only from {lowest} on. Long outputs: {'yes' if long_[open_] else 'no'} at 10 requests/s, "
            f"where waste begins with {from_[open_]}; {'yes' if long_[closed] else 'no'} when something always waits, "
            f"where it begins with {from_[closed]}."
        ),
        sentences=[
            f"Chat of {chat} is {'safe' if true_chat else 'not safe'} at 10/s whatever max_num_seqs, and "
            f"{'safe' if clean(closed, chat) else 'not safe'} with 600 clients: "
            f"{pct(waste[closed, chat, caps[-1]], signed=False)} is computed twice at max_num_seqs {caps[-1]}.",
            f"The most waste is {pct(most, signed=False)}.",
            f"max_num_seqs of {listed([str(cap) for cap in small])} never waste 1 %.",
            f"Waste is not loss: with 600 clients, max_num_seqs {caps[-1]} serves fewer requests/s than 32 "
            + (f"with outputs of {listed(slower)}" if slower else "at no output length")
            + f" ({change(gains[chat])} at {chat}, {change(gains[outputs[-1]])} at {outputs[-1]}).",
        ],
        header=["traffic, output", *(f"max_num_seqs {cap}" for cap in caps)],
        rows=rows,
        notes=["Share of scheduled tokens that had been computed before."],
    )
