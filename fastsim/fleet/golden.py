"""Recordings of fleets: which systems they are of, and what replays them."""

from importlib import import_module
from typing import Any

VERIFIERS = {"vllm-dp": "fastsim.engines.vllm.balancer_golden"}
"""The module whose `verify_case` replays a system's cases."""
NOT_REPLAYED = ("blis-cluster", "cache-aware", "dynamo-kv", "vllm-pd")
"""Recorded systems that no kernel simulates."""


def verify_case(case: dict[str, Any]) -> str | None:
    """Replay a recorded case: None when everything is the same, else one line that says what not."""
    difference: str | None = import_module(VERIFIERS[case["engine"]]).verify_case(case)
    return difference
