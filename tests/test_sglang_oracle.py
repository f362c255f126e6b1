"""The plain-Python oracle takes every decision that the real SGLang scheduler took in the recorded cases."""

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.reference_sglang import simulate
from tests.reference_sglang.golden import first_difference

GOLDEN = Path(__file__).parent / "golden" / "sglang-0.5.23"
CASES = sorted(path.name.removesuffix(".json.gz") for path in GOLDEN.glob("*.json.gz"))
LARGE = {"l02_s1_radix_mr32", "l03_s1_mx4096_cons03", "l06_s1_cons0"}
"""About 20,000 steps each: seconds in plain Python."""


def load(name: str) -> dict[str, Any]:
    with gzip.open(GOLDEN / f"{name}.json.gz", "rt") as file:
        case: dict[str, Any] = json.load(file)
    return case


def test_all_cases_are_here() -> None:
    assert len(CASES) == 93


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else []) for name in CASES]
)
def test_oracle_equals_recording(name: str) -> None:
    case = load(name)
    assert first_difference(case, simulate(case["config"], case["requests"])) is None


def test_a_difference_is_noticed() -> None:
    """The comparison itself can fail: every column, changed, is reported."""
    case = load("g03_overlap_radix_p16")
    case["config"]["max_steps"] = 300
    right = simulate(case["config"], case["requests"])
    case |= copy.deepcopy(right)
    assert first_difference(case, right) is None
    for column in range(17):
        changed = copy.deepcopy(right)
        changed["steps"][150][column] = "other"
        assert (first_difference(case, changed) or "").startswith(f"step 150 column {column + 1}:")
    changed = copy.deepcopy(right)
    changed["steps"].pop()
    assert (first_difference(case, changed) or "").startswith("expected 300 rows")
    changed = copy.deepcopy(right)
    changed["requests_out"][3][9] += 1
    assert (first_difference(case, changed) or "").startswith("request 3")
    changed = copy.deepcopy(right)
    changed["totals"]["completed"] += 1
    assert (first_difference(case, changed) or "").startswith("totals")
