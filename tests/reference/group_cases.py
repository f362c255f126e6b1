"""Random small cases with several KV cache groups, groups that forget, or drafts: `cases.random_case` and more."""

import math
import random
from typing import Any

from tests.reference.cases import random_case
from tests.reference.kv_groups import ceil_div
from tests.reference.requests import Request

FAMILIES = ("groups", "spec", "both")

_REFUSED = {
    "preemption_mode": "recompute",
    "swap_space_blocks": 0,
    "slot_preempt_preflight": True,
}


def random_group_case(
    rng: random.Random, *, family: str = "both", policies: bool = False, asynchronous: bool = False, **sizes: int
) -> tuple[dict[str, Any], list[Request]]:
    """A configuration and its workload; `family` says whether it has groups, drafts or both."""
    plain = (
        ("async" if asynchronous else "vllm") if not policies else ("async-policies" if asynchronous else "policies")
    )
    engine = "vllm-0.33.0-async" if asynchronous else "vllm-0.33.0"
    config, requests = random_case(rng, family=plain, engine=engine, **sizes)
    config |= {key: value for key, value in _REFUSED.items() if key in config}
    config["max_model_len"] = min(
        config["max_model_len"], 2 * max(r.prompt_tokens + r.output_tokens for r in requests) + 8
    )
    groups = [{"kind": "full", "block_size": config["block_size"]}]
    if family != "spec":
        groups = _groups(rng, config)
        config["kv_cache_groups"] = groups
        common = math.lcm(*(g["block_size"] for g in groups if g.get("mode") != "none"))
        config["prefix_cache_retention_interval"] = rng.choice((0, 0, None, common, 2 * common, 4 * common))
        config["block_size"] = min(g["block_size"] for g in groups)
    if family != "groups":
        config |= _speculation(rng, config, groups, asynchronous)
    if family != "spec":
        _fit_pool(rng, config, requests)
    return config, requests


def _groups(rng: random.Random, config: dict[str, Any]) -> list[dict[str, Any]]:
    b = config["block_size"]
    cached = config["enable_prefix_caching"]
    style = rng.choice(("windows", "windows", "windows", "mixed", "chunked", "mamba", "mamba"))
    if style == "mamba":
        state: dict[str, Any] = {
            "kind": "mamba",
            "block_size": config["max_model_len"],
            "mode": "none",
            "spec_blocks": 0,
        }
        if cached:
            checkpoint = rng.random() < 0.4
            state = {"kind": "mamba", "block_size": b, "mode": "align", "spec_blocks": 0, "checkpoint": checkpoint}
        groups = [dict(state) for _ in range(rng.randint(1, 3))]
        return _inserted(rng, groups, {"kind": "full", "block_size": b})
    groups = []
    for _ in range(rng.randint(1, 3)):
        size = b * rng.choice((1, 1, 2, 3)) if style == "mixed" else b
        groups.append({"kind": "sliding", "block_size": size, "window": rng.choice((1, 2, 3, 5, 8, 13, 30, 31))})
        if style == "chunked":
            chunk = size * rng.choice((1, 2, 4)) if cached else rng.choice((2, 3, 5, 8, 16, 40))
            groups[-1] = {"kind": "chunked", "block_size": size, "chunk": chunk}
        if rng.random() < 0.3:
            groups.append(dict(groups[-1]))
    if rng.random() < 0.8:
        size = b * rng.choice((1, 2)) if style == "mixed" else b
        _inserted(rng, groups, {"kind": "full", "block_size": size})
    return groups


def _inserted(rng: random.Random, groups: list[dict[str, Any]], group: dict[str, Any]) -> list[dict[str, Any]]:
    groups.insert(rng.randint(0, len(groups)), group)
    return groups


def _speculation(
    rng: random.Random, config: dict[str, Any], groups: list[dict[str, Any]], asynchronous: bool
) -> dict[str, Any]:
    k = rng.choice((1, 2, 3, 3, 5))
    method = rng.choice(("ngram", "draft_model", "eagle", "eagle"))
    threshold = config["long_prefill_token_threshold"]
    for group in groups:
        if group["kind"] == "mamba":
            group["spec_blocks"] = rng.choice((k, k, 0))
    has_chunks = any(g["kind"] == "chunked" for g in groups)
    return {
        "spec_method": method,
        "num_speculative_tokens": k,
        "spec_lookahead_hashes": True if has_chunks or method != "eagle" else rng.random() < 0.6,
        "spec_accept_permille": [rng.choice((0, 300, 600, 900, 1000)) for _ in range(k)],
        "spec_seed": rng.randrange(10**6),
        "spec_draft": "fixed" if asynchronous else rng.choice(("fixed", "fixed", "hashed")),
        "spec_draft_us": rng.choice((0.0, 250.5)),
        "spec_draft_us_per_token": rng.choice((0.0, 1.7)),
        "long_prefill_token_threshold": 1 + k + threshold if threshold else 0,
    }


def _fit_pool(rng: random.Random, config: dict[str, Any], requests: list[Request]) -> None:
    """A pool that holds one to a few requests."""
    longest = min(max(r.prompt_tokens + r.output_tokens for r in requests), config["max_model_len"])
    each = sum(ceil_div(longest, g["block_size"]) + g.get("spec_blocks", 0) for g in config["kv_cache_groups"])
    usable = max(2, int(each * rng.choice((0.5, 0.8, 1.0, 1.0, 1.3, 2.0, 4.0))) + rng.randint(0, 2))
    config["num_gpu_blocks"] = usable + 1
