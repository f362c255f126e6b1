"""Random small cases that go where schedulers go wrong: caches of a few blocks, ties, tight budgets, thrash.

Every case ends: `max_steps` is at most 2,000. The same `random.Random` state gives the same case.
"""

import random
from typing import Any

from tests.reference.policies import VICTIMS, ceil_div
from tests.reference.requests import Request

FAMILIES = ("vllm", "policies", "async", "async-policies")
"""vLLM's own knobs; those and every policy; both again on the asynchronous engine."""

VICTIM_NAMES = (*VICTIMS, "random")


def random_case(
    rng: random.Random,
    *,
    family: str = "vllm",
    engine: str | None = None,
    prefix_caching: bool | None = None,
    max_requests: int = 25,
    max_output: int = 60,
    max_steps: int = 2000,
) -> tuple[dict[str, Any], list[Request]]:
    """A configuration and its workload. `engine` and `prefix_caching` are drawn unless given."""
    if family not in FAMILIES:
        raise ValueError(f"unknown family {family!r}, expected one of {FAMILIES}")
    if engine is None:
        engine = rng.choice(("vllm-0.33.0", "vllm-0.33.0", "vllm-0.16.0"))
        if family.startswith("async"):
            engine = "vllm-0.33.0-async"
    config: dict[str, Any] = {"engine": engine, "seed": rng.randrange(1000)}
    config |= _step_time(rng)
    requests = _workload(rng, _rough_step_us(config), max_requests, max_output)
    config |= _cache(rng, requests, prefix_caching)
    config |= _limits(rng, requests)
    config |= _vllm_knobs(rng)
    if rng.random() < 0.4:
        config |= _overload(rng)
    config |= _run(rng, config, requests, max_steps)
    if family.endswith("policies"):
        config |= _policies(rng, config, requests)
    if rng.random() < 0.4:
        config |= _table(rng)
    return config, requests


def _maybe(rng: random.Random, share: float, value: Any, otherwise: Any = None) -> Any:
    return value if rng.random() < share else otherwise


def _step_time(rng: random.Random) -> dict[str, float]:
    return {
        "b0_us": rng.choice((0.0, 1.0, 1000.0, 5752.71, 12000.25)),
        "b1_us_per_prefill_token": rng.choice((0.0, 1.0, 17.25, 31.7)),
        "b2_us_per_decode_token": rng.choice((1.0, 6.0, 101.01, 0.3)),
        "b3_us_per_context_token": rng.choice((0.0, 0.0, 0.013, 0.7)),
    }


def _table(rng: random.Random) -> dict[str, Any]:
    """A table of step times and what may go with it."""
    tokens = sorted(rng.sample(range(1, rng.choice((8, 40, 400))), rng.randint(1, 7)))
    return {
        "table_tokens": tuple(tokens),
        "table_us": tuple(sorted(rng.choice((rng.uniform(0, 5000), 700.0)) for _ in tokens)),
        "table_scale": rng.choice((1.0, 0.37)),
        "max_cudagraph_capture_size": rng.choice((0, 4, 8, 512)),
        "b4_us_per_prefill_pair": rng.choice((0.0, 0.9, 0.01)),
        "b5_us_per_prefill_step": rng.choice((0.0, 333.3)),
        "b6_us_per_window_token": rng.choice((0.0, 0.21, 3.0)),
        "window_tokens": rng.choice((0, 1, 7, 30, 64)),
    }


def _rough_step_us(config: dict[str, Any]) -> int:
    return int(config["b0_us"] + 10 * config["b1_us_per_prefill_token"] + 3 * config["b2_us_per_decode_token"]) + 1


def _workload(rng: random.Random, step_us: int, max_requests: int, max_output: int) -> list[Request]:
    n = rng.randint(rng.choice((1, max_requests // 3 + 1)), max_requests)
    longest_prompt = rng.choice((1, 4, 20, 20, 60, 100))
    longest_output = rng.choice((1, 5, max_output, max_output, max_output))
    groups = rng.choice((0, 0, 1, 2, 3))
    classes = rng.choice((1, 2, 3, 8))
    spread_us = rng.choice((0, step_us, step_us * n, step_us * n * 4))  # of the arrivals
    grid_us = rng.choice((1, max(spread_us // 4, 1)))  # coarse: ties
    requests = []
    for _ in range(n):
        prompt = rng.randint(1, longest_prompt)
        output = rng.randint(1, longest_output)
        group = rng.randrange(-1, groups)
        requests.append(
            Request(
                arrival_us=rng.randint(0, spread_us) // grid_us * grid_us,
                prompt_tokens=prompt,
                output_tokens=output,
                priority=rng.randrange(classes) - classes // 2,
                prefix_group=group,
                prefix_tokens=rng.choice((prompt, rng.randint(0, longest_prompt))) if group >= 0 else 0,
                max_tokens=_maybe(rng, 0.7, output + rng.choice((0, 0, rng.randint(0, 2 * longest_output)))),
                think_us=rng.choice((0, rng.randint(0, 3 * step_us))),
            )
        )
    if rng.random() < 0.7:
        requests.sort(key=lambda r: r.arrival_us)
    return requests


def _cache(rng: random.Random, requests: list[Request], prefix_caching: bool | None) -> dict[str, Any]:
    block_size = rng.choice((1, 2, 3, 4, 8, 16))
    largest = max(ceil_div(r.prompt_tokens + r.output_tokens - 1, block_size) for r in requests)
    usable = max(1, largest + rng.choice((0, 0, 1, 2, largest // 2, largest, 2 * largest)))
    if rng.random() < 0.06:  # somebody may never fit
        usable = max(1, largest - rng.randint(1, 3))
    return {
        "block_size": block_size,
        "num_gpu_blocks": usable + 1,
        "enable_prefix_caching": rng.random() < 0.6 if prefix_caching is None else prefix_caching,
    }


def _limits(rng: random.Random, requests: list[Request]) -> dict[str, Any]:
    longest = max(r.prompt_tokens + r.output_tokens for r in requests)
    longest_prompt = max(r.prompt_tokens for r in requests)
    chunked = rng.random() < 0.85
    max_model_len = rng.choice((8192, 8192, longest, rng.randint(longest_prompt + 1, longest_prompt + 1 + longest)))
    max_model_len = max(max_model_len, longest_prompt + 1)
    budget = rng.choice((1, 2, 3, 5, 8, 16, 32, 64, 2048))
    if not chunked and rng.random() < 0.8:
        budget = rng.choice((longest, longest + 5, 2048))
    return {
        "max_num_seqs": rng.choice((1, 2, 3, 5, 8, 16, 256, 256, 256)),
        "max_num_active_seqs": _maybe(rng, 0.1, rng.randint(1, 6)),
        "max_num_batched_tokens": budget,
        "max_num_scheduled_tokens": _maybe(rng, 0.1, rng.randint(1, budget + 2)),
        "max_model_len": max_model_len,
        "enable_chunked_prefill": chunked,
    }


def _vllm_knobs(rng: random.Random) -> dict[str, Any]:
    return {
        "policy": rng.choice(("fcfs", "fcfs", "priority")),
        "long_prefill_token_threshold": rng.choice((0, 0, 0, 1, 2, 5, 16)),
        "long_prefill_token_threshold_adaptive": rng.random() < 0.2,
        "scheduler_reserve_full_isl": rng.choice((None, True, False)),
        "watermark": rng.choice((0.0, 0.0, 0.0, 0.05, 0.1, 0.3)),
        "prefill_schedule_interval": rng.choice((1, 1, 1, 1, 2, 3, 7)),
    }


def _overload(rng: random.Random) -> dict[str, Any]:
    """Let many in at once, so that they take each other's blocks."""
    return {
        "max_num_seqs": rng.choice((8, 256)),
        "max_num_active_seqs": None,
        "max_num_batched_tokens": rng.choice((8, 32, 2048)),
        "max_num_scheduled_tokens": None,
        "enable_chunked_prefill": True,
        "scheduler_reserve_full_isl": rng.random() < 0.3,
        "watermark": 0.0,
    }


def _run(rng: random.Random, config: dict[str, Any], requests: list[Request], max_steps: int) -> dict[str, Any]:
    tokens = sum(r.output_tokens for r in requests)
    return {
        "unservable": rng.choice(("reject", "spin")),
        "concurrency": _maybe(rng, 0.15, rng.randint(1, len(requests))),
        "horizon_us": _maybe(rng, 0.15, rng.randint(1, _rough_step_us(config) * tokens)),
        "max_steps": _maybe(rng, 0.1, rng.randint(1, 60), max_steps),
        "detect_livelock": False,
    }


def _policies(rng: random.Random, config: dict[str, Any], requests: list[Request]) -> dict[str, Any]:
    """Each policy is off in about half of the cases, so that both few and many of them meet."""
    step_us = _rough_step_us(config)
    usable = config["num_gpu_blocks"] - 1
    knobs: dict[str, Any] = {
        "detect_livelock": rng.random() < 0.9,
        "livelock_steps": _maybe(rng, 0.3, rng.randint(5, 400)),
        "preemption_mode": rng.choice(("recompute", "recompute", "restart", "swap", "swap")),
        "swap_space_blocks": rng.choice((1, rng.randint(1, usable), usable, 10 * usable)),
        "swap_us_per_block": rng.choice((0.0, 3.3, 250.0)),
        "victim": _maybe(rng, 0.7, rng.choice(VICTIM_NAMES)),
        "boost_after": _maybe(rng, 0.3, rng.randint(1, 4), 0),
        "queue_order": _maybe(rng, 0.6, rng.choice(("fcfs", "priority", "sjf", "aging"))),
        "aging_per_s": rng.choice((0.1, 0.5, 1e6 / step_us, 1e5 / step_us)),
        "max_num_queued_reqs": _maybe(rng, 0.1, rng.randint(1, 6)),
        "max_num_queued_tokens": _maybe(rng, 0.1, rng.randint(1, 100)),
        "timeout_s": _maybe(rng, 0.15, rng.randint(1, 100) * step_us / 1e6),
        "retry_after_s": rng.choice((1e-6, 1.0, rng.randint(1, 20) * step_us / 1e6)),
    }
    if rng.random() < 0.4:
        knobs |= {
            "admission": "projected",
            "projection": rng.choice(("oracle", "max_tokens", "mean")),
            "overcommit": rng.choice((1.0, 1.0, 0.7, 1.5)),
        }
    if rng.random() < 0.4:
        knobs |= {
            "bypass": True,
            "admission_scan_limit": rng.choice((1, 2, 3, 64)),
            "max_admission_bypasses": rng.choice((1, 2, 3, 8)),
            "count_restores": rng.random() < 0.6,
            "blocked_checks_limit": rng.random() < 0.6,
        }
    if rng.random() < 0.3:
        knobs |= {
            "slot_preempt": True,
            "slot_preempt_preflight": rng.random() < 0.5,
            "queue_order": rng.choice(("priority", "aging")),
        }
        knobs["max_num_seqs"] = min(config["max_num_seqs"], rng.randint(1, 4))
    if rng.random() < 0.5:
        knobs |= {
            "running_cap": rng.choice(("auto", "feedback", "feedback")),
            "feedback_rule": rng.choice(("threshold", "consecutive", "proportional")),
            "feedback_window": rng.choice((1, 2, 5, 12)),
            "feedback_threshold": rng.choice((0.0, 0.1, 0.3, 1.0)),
            "feedback_recovery": rng.choice((1, 3, 10)),
        }
    if rng.random() < 0.3:
        knobs |= {
            "backpressure_threshold": rng.choice((0.02, 0.1, 0.3)),
            "backpressure_action": rng.choice(("reject", "pace", "pace")),
            "backpressure_window": rng.choice((1, 3, 10)),
        }
    return knobs
