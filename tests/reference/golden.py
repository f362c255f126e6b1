"""Recorded vLLM cases: reading them, and what of an outcome must equal them."""

import gzip
import json
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.reference.requests import Request
from tests.reference.vllm import Outcome

FOLDER = Path(__file__).parent.parent / "golden"
FOLDERS = (
    "vllm-0.33.0",
    "vllm-0.16.0",
    "vllm-0.33.0-async",
    "vllm-0.33.0-groups",
    "vllm-0.33.0-spec",
    "vllm-0.33.0-async-groups",
    "vllm-0.33.0-async-spec",
)


def case_paths(folder: str) -> list[Path]:
    """The recorded cases of one folder, by name."""
    return sorted((FOLDER / folder).glob("*.json.gz"))


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
    if config.get("num_speculative_tokens") is None:
        config["num_speculative_tokens"] = 0
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
    columns = len(case["requests_out"][0]) if case["requests_out"] else 0
    got_requests = [r.golden()[:columns] for r in outcome.requests]
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
