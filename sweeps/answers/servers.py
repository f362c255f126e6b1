"""vLLM, SGLang and TensorRT-LLM's rules beside each other: whose admission serves more, chunks, capacity policies."""

import polars as pl

from sweeps.answers.common import THROUGHPUT, Interval, Section, Setup, mean_of, paired, rows_of, section
from sweeps.answers.text import change, listed, num, pct

ENGINE, RATE, BLOCKS, FACTOR = (
    "choice.engine",
    "workload.arrival.rate_per_s",
    "engine.num_gpu_blocks",
    "workload.max_tokens.factor",
)
VLLM, WATERMARK, SGLANG = "vLLM", "vLLM, watermark .05", "SGLang"
NO_EVICT, MAX_UTILIZATION = "TensorRT-LLM, no evict", "TensorRT-LLM, max utilization"
UNVERIFIED = "TensorRT-LLM's rows are built from its published rules and not verified against recordings."


def _split(effects: dict[str, Interval]) -> tuple[list[str], list[str]]:
    """Where the effect is more, and where it is less."""
    more = [name for name, each in effects.items() if each.low > 0]
    return more, [name for name, each in effects.items() if each.high < 0]


def _farthest(effects: dict[str, Interval], names: list[str]) -> str:
    return max(names, key=lambda name: abs(effects[name].mean))


def _by(effects: dict[str, Interval], names: list[str]) -> str:
    if not names:
        return ""
    far = _farthest(effects, names)
    return f", by {pct(effects[far], signed=False)} at most ({far})"


def answer_engines(setup: Setup) -> Section:
    """SGLang's admission against vLLM's watermark, over load, KV size and declared limits."""
    frame = rows_of("engines", setup, [f"{RATE}=4,10", f"{BLOCKS}=3000,7463"])
    cells = {
        f"{rate:g}/s, {blocks:,} blocks, limits x {factor:g}": frame.filter(
            pl.col(RATE) == rate, pl.col(BLOCKS) == blocks, pl.col(FACTOR) == factor
        )
        for rate in frame[RATE].unique().sort()
        for blocks in frame[BLOCKS].unique().sort()
        for factor in frame[FACTOR].unique().sort()
    }
    pressed = {name: cell for name, cell in cells.items() if cell.filter(pl.col(ENGINE) == VLLM)["preemptions"].sum()}
    mark = {name: paired(cell, ENGINE, SGLANG, THROUGHPUT, WATERMARK) for name, cell in pressed.items()}
    plain = {name: paired(cell, ENGINE, SGLANG, THROUGHPUT, VLLM) for name, cell in pressed.items()}
    more, less = _split(mark)
    wins = _by(mark, more)
    loses = _by({name: Interval(-each.mean, -each.high, -each.low) for name, each in mark.items()}, less)
    plain_more, plain_less = _split(plain)
    others = [level for level in (NO_EVICT, MAX_UTILIZATION) if level in frame[ENGINE].unique()]
    every = {
        level: paired(pl.concat(pressed.values()), ENGINE, level, THROUGHPUT, VLLM)
        for level in (WATERMARK, SGLANG, *others)
    }
    lost = {
        level: mean_of(pl.concat(pressed.values()).filter(pl.col(ENGINE) == level), "recomputed_share")
        for level in (VLLM, WATERMARK, SGLANG)
    }
    overall = [f"{name} serves {change(each)}" for name, each in every.items()]
    return section(
        "engines",
        frame,
        drawn=("vLLM, watermark .05", "SGLang", "TensorRT-LLM, no evict", "TensorRT-LLM, max utilization"),
        question="When does SGLang's admission beat vLLM's watermark, and when not?",
        conclusion=(
            f"Of {len(pressed)} loads under which vLLM preempts, SGLang serves more than vLLM with a watermark of 5 % "
            f"in {len(more)}{wins}, and less in {len(less)}{loses}."
        ),
        sentences=[
            f"Compared with vLLM as it is, it serves more in {len(plain_more)} and less in {len(plain_less)}.",
            f"Over all of them, against vLLM as it is: {listed(overall)}.",
            f"Of all scheduled tokens {num(lost[SGLANG])} were computed before under SGLang, {num(lost[WATERMARK])} "
            f"with the watermark, {num(lost[VLLM])} under vLLM as it is.",
            "SGLang and TensorRT-LLM reserve for what is declared, vLLM for nothing of it: compare the rows of the two "
            "factors.",
        ],
        header=["load", "vLLM", *(level for level in (WATERMARK, SGLANG, *others)), "retractions / preemptions"],
        rows=[
            [
                name,
                num(mean_of(cell.filter(pl.col(ENGINE) == VLLM), THROUGHPUT)),
                *(pct(paired(cell, ENGINE, level, THROUGHPUT, VLLM)) for level in (WATERMARK, SGLANG, *others)),
                " / ".join(
                    num(mean_of(cell.filter(pl.col(ENGINE) == level), "preemptions"), 0) for level in (SGLANG, VLLM)
                ),
            ]
            for name, cell in pressed.items()
        ],
        notes=[
            "requests/s of vLLM, and of the others against it; then SGLang's retractions and vLLM's preemptions. "
            f"{UNVERIFIED}"
        ],
    )


# --- chunks -----------------------------------------------------------------------------------------------------------

CHUNK, ITL, TTFT = "engine.max_num_batched_tokens", "itl_p99_ms", "ttft_served_p99_ms"
MIXED = "SGLang, mixed"


def answer_chunks(setup: Setup) -> Section:
    """Gaps between tokens by the chunk's size, under both engines."""
    frame = rows_of("chunks", setup, [f"{CHUNK}=512,8192", f"{RATE}=4"])
    rates, chunks = (sorted(frame[name].unique().to_list()) for name in (RATE, CHUNK))
    engines = [VLLM, SGLANG, MIXED]
    middle = frame.filter(pl.col(RATE) == rates[len(rates) // 2])

    def of(engine: str, chunk: int) -> pl.DataFrame:
        return middle.filter(pl.col(ENGINE) == engine, pl.col(CHUNK) == chunk)

    smallest, largest = chunks[0], chunks[-1]
    cut = {engine: paired(middle.filter(pl.col(ENGINE) == engine), CHUNK, smallest, ITL, largest) for engine in engines}
    wait = {
        engine: paired(middle.filter(pl.col(ENGINE) == engine), CHUNK, smallest, TTFT, largest) for engine in engines
    }
    beside = {chunk: paired(middle.filter(pl.col(CHUNK) == chunk), ENGINE, SGLANG, ITL, VLLM) for chunk in chunks}
    longer = [chunk for chunk, each in beside.items() if each.low > 0]
    return section(
        "chunks",
        frame,
        drawn=("vLLM: ITL p99, ms", "SGLang: ITL p99, ms", "SGLang, mixed: ITL p99, ms"),
        question="What does the chunk's size decide of the longest gaps between tokens, under SGLang and under vLLM?",
        conclusion=(
            f"At {rates[len(rates) // 2]:g} requests/s the 99th percentile of the gaps goes from "
            f"{num(mean_of(of(SGLANG, largest), ITL))} ms with chunks of {largest:,} tokens to "
            f"{num(mean_of(of(SGLANG, smallest), ITL))} ms with {smallest:,} under SGLang, and from "
            f"{num(mean_of(of(VLLM, largest), ITL))} to {num(mean_of(of(VLLM, smallest), ITL))} ms under vLLM."
        ),
        sentences=[
            f"The smaller chunk's TTFT p99 is {pct(wait[SGLANG])} under SGLang, {pct(wait[MIXED])} with mixed chunks "
            f"and {pct(wait[VLLM])} under vLLM.",
            f"With the same chunk SGLang's gaps are longer than vLLM's at {listed([f'{chunk:,}' for chunk in longer])} "
            "tokens: whoever decodes stands still for several prefill batches in a row, as prefill goes first."
            if longer
            else "With the same chunk SGLang's gaps are at no size shown to be longer than vLLM's.",
            f"Chunks of {smallest:,} against {largest:,} change the gaps by {pct(cut[SGLANG])} under SGLang, "
            f"{pct(cut[MIXED])} with mixed chunks, {pct(cut[VLLM])} under vLLM.",
        ],
        header=[
            "chunk",
            *(f"{engine}: ITL p99, ms" for engine in engines),
            *(f"{engine}: TTFT p99, ms" for engine in engines),
        ],
        rows=[
            [
                f"{chunk:,}",
                *(num(mean_of(of(engine, chunk), ITL)) for engine in engines),
                *(num(mean_of(of(engine, chunk), TTFT), 0) for engine in engines),
            ]
            for chunk in chunks
        ],
        notes=[
            f"At {rates[len(rates) // 2]:g} requests/s; the folder has the other rates. A chunk is SGLang's "
            "chunked_prefill_size, vLLM's max_num_batched_tokens."
        ],
    )


# --- capacity policies of TensorRT-LLM --------------------------------------------------------------------------------

POLICY = "engine.trtllm.capacity_scheduler_policy"
MEASURED = {"GUARANTEED_NO_EVICT": (161.0, 122, 150), "MAX_UTILIZATION": (95.7, 1111, 563)}
"""Output tokens/s, TPOT p99 in ms and E2E p99 in s of the public report."""
COLUMNS = ("output_throughput_tok_per_s", "tpot_p99_ms", "e2e_p99_ms")
NEAR = 0.03
"""Three figures as near as this to the measured ones are as measured."""


def answer_trtllm(setup: Setup) -> Section:
    """The public report's load under the published rules, over sizes of the pool."""
    frame = rows_of("trtllm", setup, [f"{BLOCKS}=9600,11200,11400"])
    tokens = frame.pivot(on=POLICY, index=BLOCKS, values=COLUMNS[0], aggregate_function="first").sort(BLOCKS)
    change_of = tokens.select(BLOCKS, (pl.col("MAX_UTILIZATION") / pl.col("GUARANTEED_NO_EVICT") - 1).alias("change"))
    worst = change_of.sort("change").row(0, named=True)
    differing = change_of.filter(pl.col("change").abs() > 1e-9).height
    nearest = frame.filter(pl.col(POLICY) == "GUARANTEED_NO_EVICT").sort(
        (pl.col(COLUMNS[1]) - MEASURED["GUARANTEED_NO_EVICT"][1]).abs()
    )
    pool = nearest[BLOCKS][0]

    def row_of(policy: str, blocks: int) -> dict[str, float]:
        return frame.filter(pl.col(POLICY) == policy, pl.col(BLOCKS) == blocks).row(0, named=True)

    here = row_of("GUARANTEED_NO_EVICT", pool)
    as_measured = all(
        abs(here[name] / scale / measured - 1) < NEAR
        for name, scale, measured in zip(COLUMNS, (1, 1, 1000), MEASURED["GUARANTEED_NO_EVICT"], strict=True)
    )
    return section(
        "trtllm",
        frame,
        drawn=("output tokens/s",),
        question="What do TensorRT-LLM's published rules say of the public report on its capacity policies?",
        conclusion=(
            f"GUARANTEED_NO_EVICT comes out {'as measured' if as_measured else 'otherwise'} "
            f"({here[COLUMNS[0]]:.1f} output tokens/s, measured {MEASURED['GUARANTEED_NO_EVICT'][0]:g}, with {pool:,} "
            f"blocks); MAX_UTILIZATION costs at most {-worst['change']:.1%} ({worst[BLOCKS]:,} blocks), measured were "
            "40.6 %: the rules alone do not explain it."
        ),
        sentences=[
            f"The two differ in {differing} of {change_of.height} pools: prompts are 97 % of a request, so that "
            "counting only the next step admits at most one request more, and only where the pool has room for one "
            "more prompt but not for one more request.",
            "What is paused is computed again, 16,384 tokens and what it had generated, when somebody is done; it is "
            "the first in line then, and nobody goes round in circles. A loss of 40 % takes many more pauses, by "
            "something that these rules leave out: look-ahead, block reuse, or what the real executor counts as free.",
        ],
        header=["", "output tokens/s", "TPOT p99, ms", "E2E p99, s", "pauses"],
        rows=[
            *(
                [
                    f"{policy}, {blocks:,} blocks",
                    f"{row[COLUMNS[0]]:.1f}",
                    f"{row[COLUMNS[1]]:.0f}",
                    f"{row[COLUMNS[2]] / 1000:.0f}",
                    f"{row['preemptions']:.0f}",
                ]
                for blocks in dict.fromkeys((pool, worst[BLOCKS]))
                for policy in MEASURED
                for row in [row_of(policy, blocks)]
            ),
            *(
                [f"{policy}, measured", f"{tokens_s:g}", f"{tpot:,}", f"{e2e}", "not reported"]
                for policy, (tokens_s, tpot, e2e) in MEASURED.items()
            ),
        ],
        notes=[
            "[NVIDIA/TensorRT-LLM 16827](https://github.com/NVIDIA/TensorRT-LLM/issues/16827), 1.2.1. Step times are "
            "those of data sheets, the pool is not in the report: the first two rows have the one whose TPOT under "
            f"GUARANTEED_NO_EVICT is nearest. Nothing is drawn, so there are no intervals. {UNVERIFIED}"
        ],
    )
