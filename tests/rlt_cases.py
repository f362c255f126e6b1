"""Random small cases for the vllm-rlt engine: tight caches, every mode and knob, both clocks."""

import gzip
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

from fastsim.engines.rlt.inputs import RltWorkload, build_workload, prompt_page_keys
from tests.rlt_config import RltConfig, StageLatency

Case = dict[str, Any]

ACCOUNTINGS = [(False, False), (True, True), (True, False), (False, True)]


@cache
def recorded(name: str) -> Case:
    """A recorded case."""
    with gzip.open(Path(__file__).parent / "golden" / "vllm-rlt" / f"{name}.json.gz", "rt") as file:
        case: Case = json.load(file)
    return case


def random_case(seed: int) -> Case:
    """A case in the form of the recordings, with `latency` (None: ticks), `horizon` and the two accounting switches."""
    rng = random.Random(seed)
    return near_livelock(rng) if seed % 4 == 0 else any_case(rng)


def near_livelock(rng: random.Random) -> Case:
    """A recorded livelock with a few requests changed: often a livelock still, before the fix."""
    names = ["livelock_00", "livelock_01", "livelock_03", "livelock_04", "seedfigures_nowave"]
    case = recorded(rng.choice([*names, "seedfigures_wavefront_INFERRED"]))
    workload = [dict(request, output_tokens=request["max_tokens"]) for request in case["workload"]]
    for request in rng.sample(workload, rng.choice([0, 1, 1, 2])):
        request["arrival"] = max(0, request["arrival"] + rng.randint(-3, 3))
        request["priority"] = rng.randint(0, 9)
    if rng.random() < 0.3:  # somebody comes late, into the livelock
        late = {"arrival": rng.randint(100, 250), "prompt": [1, 2], "max_tokens": 2, "priority": rng.randint(0, 9)}
        workload.append(late | {"id": str(len(workload)), "output_tokens": 2})
    count_restores, blocked_checks_limit = rng.choice(ACCOUNTINGS)
    return {
        "config": {key: value for key, value in case["config"].items() if key != "wave_snapshot"},
        "workload": workload,
        "latency": None,
        "horizon": 300,
        "count_restores": count_restores,
        "blocked_checks_limit": blocked_checks_limit,
    }


def any_case(rng: random.Random) -> Case:
    """A case of any mode, as tight as it may be."""
    loops = rng.choice([1, 2, 4])
    layout = rng.choice(["last_exited", "last_exited", "shared"])
    planes = loops if layout == "last_exited" else 1
    block_size = rng.choice([1, 2, 4])
    tokens = rng.choice([1, 4, 4, 8, 8, 16])
    wavefront = layout == "last_exited" and rng.random() < 0.35
    chunk = rng.choice([1, 2, 3, 8])
    longest = rng.choice([2, 5, 5, 12])
    outputs = rng.choice([3, 8, 12])
    caching = rng.random() < 0.4
    largest = -(-(longest + outputs - 1) // block_size) * planes
    config = {
        "num_blocks": max(planes, largest + rng.choice([-2, 0, 0, 1, 2, 3, 5, 8, 12])),
        "block_size": block_size,
        "max_loops": loops,
        "layout": layout,
        "incremental": rng.random() < 0.8,
        "prefix_caching": caching,
        "watermark_ratio": rng.choice([0.0, 0.0, 0.05, 0.1, 0.3]),
        "max_num_seqs": rng.choice([1, 2, 3, 4, 4, 6, 8]),
        "max_num_batched_tokens": max(tokens, chunk) if wavefront else tokens,
        "mode": rng.choice(["refill", "refill", "no_refill"]),
        "min_coda_batch_size": rng.choice([1, 1, 2, 3]),
        "admission_scan_limit": rng.choice([1, 3, 64, 64, 64]),
        "max_admission_bypasses": rng.choice([1, 2, 4, 8]),
        "prefill_chunk_size": chunk,
        "max_prefill_batches_before_decode": rng.choice([1, 1, 2, 3]),
        "policy": rng.choice(["priority", "priority", "fcfs"]),
        "enable_preemption": rng.random() < 0.85,
        "wavefront": wavefront,
    }
    alphabet = 2 if caching else 50
    last_arrival = rng.choice([0, 20, 40, 60, 400])
    scale = 1
    latency = None
    if rng.random() < 0.4:
        scale = 100
        latency = {name: round(rng.uniform(0, 300), 3) for name in StageLatency.__dataclass_fields__}
        latency |= {"swap_us_per_block": round(rng.uniform(0, 5), 3), "empty_us": rng.choice([0.0, 1.0, 77.7])}
    workload = []
    for i in range(rng.choice([1, 3, 8, 10, 12, 14])):
        limit = rng.randint(1, outputs)
        request = {
            "id": str(i),
            "arrival": rng.randint(0, last_arrival) * scale,
            "prompt": [rng.randint(1, alphabet) for _ in range(rng.randint(1, longest))],
            "max_tokens": limit,
            "priority": rng.randint(0, rng.choice([1, 4, 9])),
            "output_tokens": rng.randint(1, limit) if rng.random() < 0.2 else limit,
        }
        if rng.random() < 0.4:
            request["depths"] = [loops] + [rng.randint(1, loops) for _ in range(rng.randint(0, limit))]
        workload.append(request)
    count_restores, blocked_checks_limit = rng.choice(ACCOUNTINGS)
    return {
        "config": config,
        "workload": workload,
        "latency": latency,
        "horizon": rng.choice([60, 400, 600]) * scale,
        "count_restores": count_restores,
        "blocked_checks_limit": blocked_checks_limit,
    }


def config_of(case: Case, **changes: Any) -> RltConfig:
    """The case's configuration for the kernel."""
    keys = {
        "horizon_us": case["horizon"],
        "count_restores": case["count_restores"],
        "blocked_checks_limit": case["blocked_checks_limit"],
        "on_livelock": "step",
        "latency": StageLatency(**(case["latency"] or {})),
    }
    return RltConfig(**case["config"], **keys | changes)


def workload_of(case: Case) -> RltWorkload:
    """The case's workload for the kernel."""
    requests = case["workload"]
    prompts = [request["prompt"] for request in requests]
    caching = case["config"]["prefix_caching"]
    return build_workload(
        [request["arrival"] for request in requests],
        [len(prompt) for prompt in prompts],
        [request["output_tokens"] for request in requests],
        [request["priority"] for request in requests],
        max_tokens=[request["max_tokens"] for request in requests],
        depths=[request.get("depths") for request in requests],
        page_keys=prompt_page_keys(prompts, case["config"]["block_size"]) if caching else None,
    )
