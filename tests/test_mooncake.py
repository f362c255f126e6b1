"""Mooncake's `hash_ids` drive the prefix cache inside the kernels: counted against two caches in plain Python."""

import json
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastsim.config import Config, EngineConfig, LatencyConfig, WorkloadConfig
from fastsim.simulation import Result, simulate
from fastsim.workload import build_workload
from tests.reference.blocks import Identity
from tests.reference.requests import Request, RequestState
from tests.reference.vllm import simulate as oracle

MOONCAKE = Path(__file__).parent / "data" / "mooncake_conversation_first300.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in MOONCAKE.read_text().splitlines()]
CONTENT_TOKENS = 512
UNLIMITED = 300_000
"""Blocks of 16 for all prompts and outputs of the sample: nothing is ever evicted."""


def served_one_by_one(blocks: int, block_size: int = 16) -> Result:
    """The sample with one request at a time, so that who finds what depends on the cache alone."""
    engine = EngineConfig(
        num_gpu_blocks=blocks * 16 // block_size,
        block_size=block_size,
        max_num_seqs=1,
        max_model_len=131_072,
        enable_prefix_caching=True,
    )
    return simulate(Config(engine=engine), build_workload(WorkloadConfig(trace=str(MOONCAKE))))


def content(row: dict[str, Any], number: int, block_size: int) -> tuple[int, int] | None:
    """What block `number` of a prompt holds, by the id that the trace gives to it and all before; None: its own."""
    first = number * block_size
    if first + block_size > row["input_length"]:
        return None
    return (row["hash_ids"][first // CONTENT_TOKENS], first % CONTENT_TOKENS)


class LeastRecentlyUsed:
    """A cache of blocks for one request at a time: known content, and the order in which blocks are taken again."""

    def __init__(self, usable: int) -> None:
        self.spare = usable
        self.old: OrderedDict[Any, None] = OrderedDict()  # content, the next to be evicted first

    def serve(self, row: dict[str, Any], request: int, block_size: int) -> int:
        """Tokens found for a prompt; afterwards its blocks, and those of its output, are the latest."""
        tokens = row["input_length"] + row["output_length"] - 1
        names = [content(row, k, block_size) or ("own", request, k) for k in range(tokens // block_size)]
        hits = 0
        while hits < (row["input_length"] - 1) // block_size and names[hits] in self.old:
            hits += 1
        for name in names[:hits]:
            del self.old[name]
        for _ in range(hits, -(-tokens // block_size)):  # blocks taken: unused ones first, then the oldest
            if self.spare:
                self.spare -= 1
            else:
                self.old.popitem(last=False)
        self.spare += -(-tokens // block_size) - len(names)  # a block that is not full has no name
        for name in reversed(names):  # the end of a prompt is evicted before its beginning
            assert name not in self.old, "the sample has no prompt of whole blocks that is found to its end"
            self.old[name] = None
        return hits * block_size


@pytest.mark.parametrize("block_size", [16, 64, 512])
def test_an_unlimited_cache_finds_all_that_came_before(block_size: int) -> None:
    found = served_one_by_one(UNLIMITED, block_size)
    seen: set[Any] = set()
    expected = []
    for row in ROWS:
        names = [content(row, k, block_size) for k in range((row["input_length"] - 1) // block_size)]
        hits = 0
        while hits < len(names) and names[hits] in seen:
            hits += 1
        expected.append(hits * block_size)
        seen.update(name for k in range(row["input_length"] // block_size) if (name := content(row, k, block_size)))
    assert found.requests.prefix_hit_tokens.tolist() == expected
    assert sum(expected) > 100_000


@pytest.mark.parametrize("blocks", [7_600, 12_000, 30_000, 100_000])
def test_a_small_cache_evicts_what_was_used_least_recently(blocks: int) -> None:
    found = served_one_by_one(blocks)
    cache = LeastRecentlyUsed(blocks - 1)  # one is the null block
    expected = [cache.serve(row, request, 16) for request, row in enumerate(ROWS)]
    assert found.requests.prefix_hit_tokens.tolist() == expected


@pytest.mark.parametrize("engine", ["vllm-0.33.0", "vllm-0.33.0-async"])
def test_many_at_once_find_what_the_oracle_finds(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle has real block objects, which it knows by the ids of the trace; outputs are cut to save its time."""
    count, limit = 45, 12
    workload = build_workload(WorkloadConfig(trace=str(MOONCAKE), num_requests=count, rate_scale=4.0))
    requests = [
        Request(row["timestamp"] * 250, row["input_length"], min(row["output_length"], limit)) for row in ROWS[:count]
    ]

    def identity(state: RequestState, block: int, block_size: int, lookahead: int) -> Identity:
        assert lookahead == 0
        known = content(ROWS[state.index], block, block_size)
        return ("U", state.index, block) if known is None else ("S", *known)

    monkeypatch.setattr(RequestState, "identity", identity)
    case = {"engine": engine, "num_gpu_blocks": 9_000, "block_size": 16, "max_model_len": 131_072, "b0_us": 20_000.0}
    case |= {"b1_us_per_prefill_token": 50.0, "b2_us_per_decode_token": 0.0}
    case |= {"enable_prefix_caching": True, "max_num_batched_tokens": 8192}
    outcome = oracle(case, requests, check=False)
    config = Config(
        engine=EngineConfig(
            name=engine,
            num_gpu_blocks=9_000,
            max_model_len=131_072,
            enable_prefix_caching=True,
            max_num_batched_tokens=8192,
        ),
        latency=LatencyConfig(b0_us=20_000.0, b1_us_per_prefill_token=50.0, b2_us_per_decode_token=0.0),
    )
    cut = replace(workload, output_tokens=np.minimum(workload.output_tokens, limit))
    found = simulate(config, cut).requests
    hits = [request.prefix_hit_tokens_first for request in outcome.requests]
    assert found.prefix_hit_tokens_first.tolist() == hits
    assert found.finish_us.tolist() == [request.finish_us for request in outcome.requests]
    assert 512 * count // 2 < sum(hits) < sum(row["input_length"] for row in ROWS[:count])
