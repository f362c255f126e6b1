"""Random small cases for the `blis` engine, in the form of the recordings. Everything is decided by the seed."""

import random

KINDS = ("mixed", "starved", "prefixes", "tier", "leak", "classes", "endless")


def random_case(kind, seed):
    """A case of one family: each stresses some rules and leaves the others on."""
    rng = random.Random(f"{kind} {seed}")
    block_size = rng.choice([1, 2, 4, 8, 16])
    blocks = rng.randint(3, 40)
    config = {
        "total_kv_blocks": blocks,
        "block_size": block_size,
        "max_num_seqs": rng.choice([1, 2, 4, 8, 16]),
        "max_num_batched_tokens": rng.choice([1, 3, block_size, 4 * block_size, 1000]),
        "long_prefill_token_threshold": rng.choice([0, 0, 1, block_size, 2 * block_size]),
        "preemption_policy": rng.choice(["fcfs", "priority"]),
        "scheduler": rng.choice(["fcfs", "fcfs", "sjf", "priority-fcfs", "reverse-priority"]),
        "horizon_us": rng.choice([500, 2_000, 6_000]),
        "max_steps": rng.choice([None, None, 40]),
        "cpu_kv_blocks": rng.choice([0, 0, 3, 10, 50]),
        "max_model_len": rng.choice([0, 0, 0, 8 * block_size]),
        "rollback_leak": rng.random() < 0.1,
        "kv_transfer_bandwidth": rng.choice([100.0, 1.0, 0.5]),
        "kv_transfer_base_latency_us": rng.choice([0, 2]),
    }
    if kind == "starved":  # fewer tokens a step than requests that decode
        config |= {"max_num_batched_tokens": rng.choice([1, 2, 3, 5]), "max_num_seqs": rng.choice([4, 8, 16])}
        config |= {"cpu_kv_blocks": 0, "total_kv_blocks": rng.randint(20, 200)}
    if kind == "tier":
        config |= {"cpu_kv_blocks": rng.choice([1, 2, 5, 20, 200])}
    if kind == "leak":
        config |= {"rollback_leak": True, "max_model_len": 0}
    if kind == "endless":
        config |= {"horizon_us": None, "max_steps": rng.choice([300, 1000])}
    if kind in ("prefixes", "leak", "endless", "classes"):
        config |= {"cpu_kv_blocks": rng.choice([0, 0, 0, 8])}
    latency = {
        "alpha": [rng.choice([0.0, 3.2]), rng.choice([0.0, 0.5]), rng.choice([0.0, 7.9])],
        "beta": [rng.choice([0.4, 10.5]), rng.choice([0.0, 1.3]), rng.choice([0.0, 0.6])],
    }
    return {"config": config, "latency": latency, "requests": _requests(rng, kind, block_size, blocks)}


def _requests(rng, kind, block_size, blocks):
    shared = {"prefixes": ["g", "h", "g", ""], "tier": ["g", "", ""]}.get(kind, ["g", "h", "", "", ""])
    classes = ["", "critical", "standard", "batch", "sheddable", "background", "unheard of"]
    time_us = 0
    rows = []
    for _ in range(rng.randint(1, 14)):
        time_us += rng.choice([0, 0, 1, 5, 50, 300])
        prompt = rng.randint(1, max(2, min(blocks * block_size, 6 * block_size)))
        if rng.random() < 0.3:
            prompt = max(block_size, prompt // block_size * block_size)  # can be cached as a whole
        if rng.random() < 0.03:
            prompt = (blocks + 1) * block_size  # can never be served
        output = rng.choice([0, 1, 2, 3, rng.randint(1, 5 * block_size), rng.randint(1, 10 * block_size)])
        if kind == "endless" and rng.random() < 0.2:
            output = rng.randint(1, 2 * blocks * block_size)  # may never fit
        group = rng.choice(shared)
        prefix = min(prompt, rng.randint(0, 5 * block_size)) if group else 0
        deadline = rng.choice([0, 0, 0, time_us + rng.randint(1, 3000)])
        rows.append([time_us, prompt, output, rng.choice(classes), group, prefix, deadline])
    rng.shuffle(rows)  # trace order is not arrival order
    return rows
