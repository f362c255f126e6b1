"""The plain-Python oracle of vllm-rlt against the recorded decisions."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.reference_rlt import simulate

GOLDEN = Path(__file__).parent / "golden" / "vllm-rlt"
CASES = sorted(path.name.removesuffix(".json.gz") for path in GOLDEN.glob("*.json.gz"))


def load(name: str) -> dict[str, Any]:
    with gzip.open(GOLDEN / f"{name}.json.gz", "rt") as file:
        case: dict[str, Any] = json.load(file)
    return case


def test_all_cases_are_here() -> None:
    assert len(CASES) == 28


@pytest.mark.parametrize("variant", ["buggy", "fixed"])
@pytest.mark.parametrize("name", CASES)
def test_oracle_equals_recording(name: str, variant: str) -> None:
    case = load(name)
    fixed = variant == "fixed"
    result = simulate(
        case["config"],
        case["workload"],
        count_restores=fixed,
        blocked_checks_limit=fixed,
        horizon=case["limit_ticks"],
    )
    expected = case["variants"][variant]
    for want, got in zip(expected["steps"], result["steps"], strict=True):
        assert got == want | {"engine_step": got["engine_step"]}
    summary = {k: v for k, v in expected["summary"].items() if k != "verified_against_transcribed_upstream"}
    assert result["summary"] == summary
    is_livelock = variant == "buggy" and result["summary"]["finished"] < result["summary"]["total"]
    assert (result["totals"]["livelock_step"] >= 0) == is_livelock
