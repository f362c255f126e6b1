"""Recorded vLLM cases: reading them, and what of an outcome must equal them."""

import gzip
import json
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.reference.requests import Request
from tests.reference.vllm import Outcome

FOLDER = Path(__file__).parent.parent / "golden"
ENGINES = ("vllm-0.33.0", "vllm-0.16.0", "vllm-0.33.0-async")


def case_paths(engine: str) -> list[Path]:
    """The recorded cases of one engine, by name."""
    return sorted((FOLDER / engine).glob("*.json.gz"))


def load_case(path: Path) -> dict[str, Any]:
    """A recorded case with every scheduled list written out (`0` stands for the row before's)."""
    with gzip.open(path, "rt") as file:
        case: dict[str, Any] = json.load(file)
    before: list[int] = []
    for row in case["steps"]:
        row[1] = before = before if row[1] == 0 else row[1]
    return case


def from_golden(case: dict[str, Any]) -> tuple[dict[str, Any], list[Request]]:
    """Configuration and workload of a recorded case, with vLLM's own behaviour where the default here is another."""
    config = dict(case["config"])
    for ours, theirs in (
        ("b0_us", "beta0"),
        ("b1_us_per_prefill_token", "beta1"),
        ("b2_us_per_decode_token", "beta2"),
    ):
        config[ours] = config.pop(theirs)
    config |= {"engine": case["engine"], "unservable": "spin", "detect_livelock": False}
    if config["max_steps"] is None:
        del config["max_steps"]
    requests = [
        Request(arrival, prompt, output, priority, group, shared)
        for arrival, prompt, output, priority, group, shared in case["requests"]
    ]
    return config, requests


def first_difference(case: dict[str, Any], outcome: Outcome) -> str | None:
    """The first field that differs, with what was recorded and what came out; None when all are equal."""
    assert outcome.steps is not None
    got_requests = [r.golden() for r in outcome.requests]
    got_totals = {key: outcome.totals.get(key) for key in case["totals"]}
    for what, expected, got in (
        ("step", case["steps"], outcome.steps),
        ("request", case["requests_out"], got_requests),
        ("total", case["totals"].items(), got_totals.items()),
    ):
        for i, (a, b) in enumerate(zip_longest(expected, got)):
            if a != b:
                return f"{what} {i}: recorded {a}, got {b}"
    return None
