"""Random small cases for the SGLang engine: tight pools, every policy and switch, both loops."""

import random
from typing import Any

Case = dict[str, Any]


def random_case(seed: int) -> Case:
    """A case in the form of the recordings: `config` and `requests`."""
    rng = random.Random(seed)
    page_size = rng.choice([1, 1, 1, 2, 4, 16])
    pages = rng.choice([8, 16, 30, 60, 120, 400])
    pool = page_size * pages + rng.choice([0, 0, page_size - 1])
    priority = rng.random() < 0.35
    chunk = rng.choice([-1, 2, 4, 8, 32, 200]) * page_size
    config = {
        "max_total_tokens": pool,
        "page_size": page_size,
        "max_running_requests": rng.choice([1, 2, 3] if priority else [2, 5, 8, 30, 30]),
        "context_length": rng.choice([16384, 16384, 16384, max(10, pool // 2)]),
        "chunked_prefill_size": max(chunk, -1),
        "max_prefill_tokens": rng.choice([16384, 16384, 50, 10]),
        "prefill_max_requests": rng.choice([None, None, None, 1, 2]),
        "enable_mixed_chunk": rng.random() < 0.3,
        "schedule_policy": rng.choice(["fcfs", "fcfs", "lof"] if priority else ["fcfs", "lpm", "lpm", "lof"]),
        "schedule_conservativeness": rng.choice([0.0, 0.0, 0.0, 0.1, 0.3, 1.0, 1.5]),
        "disable_radix_cache": rng.random() < 0.4,
        "radix_eviction_policy": "lru",
        "tree_core": "rust",
        "enable_priority_scheduling": priority,
        "schedule_low_priority_values_first": rng.random() < 0.5,
        "priority_scheduling_preemption_threshold": rng.choice([0, 0, 1, 3, 10]),
        "disable_priority_preemption": rng.random() < 0.3,
        "retraction_policy": rng.choice(["length", "priority"]) if priority else "length",
        "prefill_decode_interval": rng.choice([0, 0, 0, 1, 2, 5, 30]),
        "disable_overlap_schedule": rng.random() < 0.5,
        "clip_max_new_tokens": rng.choice([4096, 20, 3] if priority else [4096, 4096, 20, 3]),
        "init_new_token_ratio": rng.choice([0.7, 0.7, 0.3]),
        "min_new_token_ratio_factor": rng.choice([0.14, 0.14, 0.5]),
        "new_token_ratio_decay_steps": rng.choice([600, 20, 3]),
        "retract_decode_steps": rng.choice([20, 20, 2, 0]),
        "in_batch_check_threshold": rng.choice([32, 4, 0]),
        "in_batch_deprioritize_threshold": rng.choice([32, 8, 1]),
        "beta0": rng.choice([5752.71, 100.5, 0.4]),
        "beta1": rng.choice([17.25, 3.1, 0.0]),
        "beta2": rng.choice([6.0, 0.7]),
        "horizon_us": rng.choice([None, None, None, 200_000]),
        "max_steps": rng.choice([None, None, None, 60]),
    }
    return {"config": config, "requests": _requests(rng, min(pool, config["context_length"]), config["beta0"])}


def _requests(rng: random.Random, room: int, beta0: float) -> list[list[int]]:
    longest = max(1, min(room - 7 + rng.choice([0, 0, 0, 3]), rng.choice([10, 60, 400])))
    outputs = rng.choice([3, 20, 60, 300])
    spread = rng.choice([0, 5, 50, 400]) * max(beta0, 20)
    groups = rng.choice([0, 1, 2, 4])
    ignores = rng.choice([0.0, 0.0, 0.0, 0.0, 0.5, 1.0])
    urgencies = rng.choice([1, 2, 5, 20])
    same = rng.random() < 0.2
    requests = []
    for _ in range(rng.choice([1, 4, 12, 30, 60])):
        prompt = longest if same else rng.randint(1, longest)
        output = rng.randint(1, outputs)
        group = rng.randint(-1, groups - 1)
        shared = rng.choice([prompt, rng.randint(0, longest), longest // 2]) if group >= 0 else 0
        declared = rng.choice([output, output, 2 * output, output + 1, 5, 4096])
        arrival = int(rng.random() * spread)
        eos = int(rng.random() < ignores)
        requests.append([arrival, prompt, output, rng.randint(0, urgencies - 1), group, shared, declared, eos])
    return requests
