"""vLLM's own log: the pool that it found, and what it said of itself every ten seconds."""

import re
from collections import defaultdict

from fastsim.analysis.measured.result import MeasuredLoad

POOL = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
BLOCKS = re.compile(r"# (?:GPU|cuda) blocks: ([\d,]+)")
CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
STATS = re.compile(
    r"Running: (\d+) reqs, Waiting: (\d+) reqs(?:, [^,]*)*?, GPU KV cache usage: ([\d.]+)%"
    r"(?:, Prefix cache hit rate: ([\d.]+)%)?"
)
GENERATION = re.compile(r"Avg generation throughput: ([\d.]+) tokens/s")


def is_result(text: str) -> bool:
    """Whether a text is such a log."""
    return POOL.search(text) is not None or STATS.search(text) is not None or BLOCKS.search(text) is not None


def read(source: str, text: str) -> MeasuredLoad:
    """What a log says: `engine.num_gpu_blocks` needs the block size, so the pool is in tokens here."""
    figures: dict[str, float] = {}
    engine: dict[str, int] = {}
    if pool := POOL.search(text):
        figures["kv_cache_tokens"] = _whole(pool[1])
    if blocks := BLOCKS.search(text):
        engine["engine.num_gpu_blocks"] = _whole(blocks[1])
    if concurrency := CONCURRENCY.search(text):
        engine["engine.max_model_len"] = _whole(concurrency[1])
        figures["max_concurrency_at_max_model_len"] = float(concurrency[2])
    columns = defaultdict(list)
    for running, waiting, usage, hits in STATS.findall(text):
        for name, value in (("running", running), ("waiting", waiting), ("kv_use_pct", usage), ("hit_rate_pct", hits)):
            if value:
                columns[name].append(float(value))
    for name, values in columns.items():
        figures[f"{name}_mean"], figures[f"{name}_max"] = sum(values) / len(values), max(values)
    if generation := [float(value) for value in GENERATION.findall(text)]:
        figures["output_throughput_tok_per_s"] = sum(generation) / len(generation)
    return MeasuredLoad(
        source=source,
        tool="vLLM's log",
        figures=figures,
        engine=engine,
        missing={
            "workload": "the requests: a log does not hold them (vllm bench serve --save-result --save-detailed does)"
        },
    )


def pool_blocks(result: MeasuredLoad, block_size: int) -> int | None:
    """`num_gpu_blocks` as the log gives it: blocks, or tokens over the block size."""
    if (blocks := result.engine.get("engine.num_gpu_blocks")) is not None:
        return int(blocks)
    tokens = result.figures.get("kv_cache_tokens")
    return None if tokens is None else int(tokens) // block_size


def _whole(text: str) -> int:
    return int(text.replace(",", ""))
