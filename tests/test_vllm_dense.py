"""The dense loop: plain configurations against the oracle, and larger ones against the general loop."""

import os
import random
from typing import Any

import numpy as np
import pytest

from fastsim.config import Config, EngineConfig, RunConfig
from fastsim.records import record_of
from fastsim.workload import Workload
from tests.reference.cases import random_case
from tests.reference.requests import Request
from tests.vllm_cases import Case, check, kernel_facts, records_of, run_recorded, workload_of

CASES = int(os.environ.get("FASTSIM_CASES", "250"))
FIRST_SEED = int(os.environ.get("FASTSIM_SEED", "0"))


def plain_case(rng: random.Random, **sizes: int) -> tuple[Case, list[Request]]:
    """A random case with the knobs that the dense loop does not know at their defaults."""
    case, requests = random_case(rng, family="vllm", **sizes)
    plain: Case = {
        "policy": rng.choice(("fcfs", "priority")),
        "window_tokens": 0,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": 0,
        "prefill_schedule_interval": 1,
        "max_num_scheduled_tokens": None,
        "unservable": "reject",
        "preemption_mode": rng.choice(("recompute", "recompute", "restart")),
        "running_cap": rng.choice(("fixed", "fixed", "auto")),
    }
    case |= plain
    case["max_num_seqs"] = rng.choice((1, 2, 4, 16, 64))
    case["max_num_batched_tokens"] = case["max_num_seqs"] + rng.choice((0, 1, 5, 20, 200))
    for key in ("max_num_queued_reqs", "max_num_queued_tokens", "timeout_s", "concurrency", "livelock_steps"):
        case.pop(key, None)
    return case, requests


def ran_dense(case: Case, requests: list[Request]) -> bool:
    """Whether the last word was the dense loop's."""
    run = run_recorded(records_of(case), workload_of(case, requests), fast_forward=True, record_steps=False)
    return bool(run.memory.scalars[0]["dense"])


def test_plain_cases() -> None:
    dense = preemptions = salvaged = 0
    for seed in range(FIRST_SEED, FIRST_SEED + CASES):
        case, requests = plain_case(random.Random(seed))
        totals = check(case, requests, f"dense, seed {seed}").totals
        dense += ran_dense(case, requests)
        preemptions += totals["preemptions"]
        salvaged += totals["salvaged_tokens"]
    assert dense > 0.75 * CASES
    assert min(preemptions, salvaged) > CASES


def test_long_outputs() -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + 20):
        case, requests = plain_case(random.Random(seed), max_requests=40, max_output=600, max_steps=5000)
        check(case, requests, f"dense, long outputs, seed {seed}")


def busy_load(rng: np.random.Generator) -> tuple[Config, Workload]:
    """A few hundred requests that thrash a pool of a few thousand blocks."""
    count = int(rng.integers(50, 400))
    prefix_tokens = int(rng.choice((0, 0, 64, 333)))
    workload = Workload.from_arrays(
        np.floor(np.cumsum(rng.exponential(1e6 / rng.uniform(1, 20), count))).astype(np.int64),
        prefix_tokens + rng.integers(1, 500, count),
        rng.integers(1, int(rng.choice((50, 600, 3000))), count),
        priority=rng.integers(-2, int(rng.choice((-1, 3, 90))), count),
        prefix_group=np.where(rng.random(count) < 0.8, rng.integers(0, 4, count), -1),
        prefix_tokens=np.full(count, prefix_tokens),
    )
    engine: dict[str, Any] = {
        "num_gpu_blocks": int(rng.integers(300, 4000)),
        "max_num_seqs": int(rng.choice((8, 32, 256))),
        "max_num_batched_tokens": int(rng.choice((256, 300, 2048))),
        "enable_prefix_caching": bool(rng.random() < 0.6),
        "scheduler_reserve_full_isl": bool(rng.random() < 0.5),
        "watermark": float(rng.choice((0.0, 0.02, 0.2))),
        "preemption_mode": str(rng.choice(("recompute", "recompute", "restart"))),
        "block_size": int(rng.choice((8, 16, 16, 32))),
    }
    engine["policy"] = str(rng.choice(("fcfs", "priority")))
    engine["name"] = str(rng.choice(("vllm-0.33.0", "vllm-0.16.0"))) if engine["policy"] == "fcfs" else "vllm-0.33.0"
    return Config(engine=EngineConfig(**engine), run=RunConfig(horizon_s=float(rng.choice((20.0, 200.0))))), workload


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 30))
def test_busy_loads_equal_the_general_loop(seed: int) -> None:
    config, workload = busy_load(np.random.default_rng(seed))
    case = {"engine": config.engine.name, "enable_prefix_caching": config.engine.enable_prefix_caching}
    records = record_of(config)
    facts, rows = [], []
    for dense in (False, True):
        records.engine["dense"] = dense
        run = run_recorded(records, workload, fast_forward=True, record_steps=False)
        assert run.memory.scalars[0]["dense"] == dense
        facts.append(kernel_facts(run, case))
        rows.append(np.concatenate([run.rows.floats[0].view(np.int64), run.rows.ints[0]]))
    assert facts[0].requests == facts[1].requests
    assert facts[0].totals == facts[1].totals
    assert facts[0].free_order == facts[1].free_order
    assert np.array_equal(facts[0].histogram, facts[1].histogram)
    assert np.array_equal(*rows)
