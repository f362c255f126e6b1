"""A policy file on trial: jumps in time beside stepping on random cases, and what its decisions cost."""

import random
from statistics import median
from time import process_time

import numpy as np

from fastsim.config import Config, EngineConfig, LatencyConfig, WorkloadConfig, with_values
from fastsim.engines.policy_report import RunCost
from fastsim.engines.vllm.runtime import RUNTIME
from fastsim.workload import build_workload

MODES = {"stepping": (False, True), "jumps, recorded": (True, True), "jumps": (True, False)}


def random_config(seed: int, path: str, hooks: set[str]) -> Config:
    """A small configuration in which blocks are short, with this policy."""
    rng = random.Random(f"policy trial {seed}")
    block_size = rng.choice((1, 2, 4, 16))
    tokens = rng.randint(60, 600)
    settings = {
        "engine.name": rng.choice(("vllm-0.33.0", "vllm-0.33.0", "vllm-0.16.0", "vllm-0.33.0-async")),
        "engine.policy_file": path,
        "engine.block_size": block_size,
        "engine.num_gpu_blocks": 2 + tokens * rng.choice((2, 3, 6)) // block_size,
        "engine.max_num_seqs": rng.choice((3, 8, 256)),
        "engine.max_num_batched_tokens": rng.choice((256, 2048)),
        "engine.enable_prefix_caching": rng.random() < 0.5,
        "engine.scheduler_reserve_full_isl": rng.random() < 0.4,
        "engine.watermark": rng.choice((0.0, 0.05)),
        "latency.b3_us_per_context_token": rng.choice((0.0, 0.7)),
        "workload.num_requests": rng.randint(5, 40),
        "workload.seed": rng.randrange(1000),
        "workload.arrival.kind": rng.choice(("poisson", "all_at_once")),
        "workload.prompt.dist": "uniform",
        "workload.prompt.min": 1,
        "workload.prompt.max": tokens // 2,
        "workload.output.dist": "uniform",
        "workload.output.min": 1,
        "workload.output.max": tokens // 2,
        "workload.priority.values": (0, 1, 2),
    }
    if settings["workload.arrival.kind"] == "poisson":
        settings["workload.arrival.rate_per_s"] = rng.choice((2.0, 20.0, 200.0))
    if rng.random() < 0.4:
        settings |= {"workload.prefix.groups": 2, "workload.prefix.tokens": max(1, tokens // 3)}
    if "queue_key" not in hooks and rng.random() < 0.4:
        settings["engine.queue_order"] = rng.choice(("priority", "sjf"))
    return with_values(Config(engine=EngineConfig(), latency=LatencyConfig(), workload=WorkloadConfig()), settings)


def first_difference(path: str, hooks: set[str], cases: int) -> str | None:
    """Run random cases in every way: the first in which one leaves another row, or None."""
    for seed in range(cases):
        config = random_config(seed, path, hooks)
        workload = build_workload(config.workload)
        found: dict[str, bytes] = {}
        for mode, (fast_forward, record_steps) in MODES.items():
            records, params = RUNTIME.records_of([config])
            run = RUNTIME.run(workload, records, params, fast_forward=fast_forward, record_steps=record_steps)
            log = b"".join(np.ascontiguousarray(column).tobytes() for column in run.log)
            found[mode] = run.rows.floats.tobytes() + run.rows.ints.tobytes() + log
        for mode, left in found.items():
            if left != found["stepping"]:
                return f"case {seed}: {mode} leaves another result than stepping"
    return None


def cost_of(path: str, repeats: int = 15) -> RunCost:
    """Time a run with a policy in turn with the same run under vLLM's rules, neither in the dense loop."""
    settings = {"engine.num_gpu_blocks": 800, "engine.enable_prefix_caching": False}
    times: dict[bool, list[float]] = {True: [], False: []}
    preemptions = {}
    runs = {}
    for own in (True, False):
        config = with_values(Config(), settings | ({"engine.policy_file": path} if own else {}))
        records, params = RUNTIME.records_of([config])
        records["dense"] = 0
        runs[own] = (build_workload(config.workload), records, params)
    for _ in range(repeats):
        for own, arguments in runs.items():
            start = process_time()
            run = RUNTIME.run(*arguments, repeat=5)
            times[own].append((process_time() - start) / 5 * 1000)
            preemptions[own] = int(run.totals["preemptions"][0])
    return RunCost(median(times[True]), median(times[False]), preemptions[True], preemptions[False])
