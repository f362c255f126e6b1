"""The oracle takes every decision that the real vLLM schedulers took in the recorded cases."""

from pathlib import Path

import pytest

from tests.reference.golden import FOLDERS, case_paths, first_difference, from_golden, load_case
from tests.reference.vllm import simulate

NUM_CASES = dict(zip(FOLDERS, (109, 51, 30, 63, 55, 19, 22), strict=True))
LARGE = {"l00_seed_sustained_s256", "l01_seed_sustained_s256_noisl", "l03_seed_sustained_s32"}
"""About a million request-steps each: seconds in plain Python."""

CASES = [
    pytest.param(
        path,
        id=f"{folder}/{path.name.removesuffix('.json.gz')}",
        marks=[pytest.mark.slow] if path.name.removesuffix(".json.gz") in LARGE else [],
    )
    for folder in FOLDERS
    for path in case_paths(folder)
]


@pytest.mark.parametrize("path", CASES)
def test_oracle_equals_recording(path: Path) -> None:
    case = load_case(path)
    config, requests = from_golden(case)
    outcome = simulate(config, requests, check=config["num_gpu_blocks"] < 2000)
    assert first_difference(case, outcome) is None


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_case_is_missing(folder: str) -> None:
    assert len(case_paths(folder)) == NUM_CASES[folder]


def test_a_difference_is_noticed() -> None:
    """The comparison itself can fail: every kind of field, changed by one, is reported."""
    case = load_case(next(p for p in case_paths("vllm-0.33.0") if p.name.startswith("b00")))
    config, requests = from_golden(case)
    outcome = simulate(config, requests)
    assert outcome.steps is not None
    for row in (0, len(outcome.steps) // 2, -1):
        for column in (0, 4, 5, 6, 7):
            outcome.steps[row][column] += 1
            assert (first_difference(case, outcome) or "").startswith("step")
            outcome.steps[row][column] -= 1
    extra = outcome.steps.pop()
    assert (first_difference(case, outcome) or "").startswith("step")
    outcome.steps.append(extra)
    outcome.totals["end_us"] += 1
    assert (first_difference(case, outcome) or "").startswith("total")
    outcome.totals["end_us"] -= 1
    case["requests_out"][0][2] += 1
    assert (first_difference(case, outcome) or "").startswith("request")
