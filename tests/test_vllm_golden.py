"""The compiled kernel takes every decision that the real vLLM schedulers took in the recorded cases."""

from pathlib import Path

import pytest

from fastsim.cli.verify import read_case
from fastsim.engines.vllm.golden import verify_case
from tests.vllm_cases import MODES

FOLDER = Path(__file__).parent / "golden"
NUM_CASES = {"vllm-0.33.0": 109, "vllm-0.16.0": 51, "vllm-0.33.0-async": 30}
CASES = [
    pytest.param(path, id=f"{engine}/{path.name.removesuffix('.json.gz')}")
    for engine in NUM_CASES
    for path in sorted((FOLDER / engine).glob("*.json.gz"))
]


@pytest.mark.parametrize("path", CASES)
def test_kernel_equals_recording(path: Path) -> None:
    case = read_case(path)
    for mode, (fast_forward, record_steps, _) in MODES.items():
        assert verify_case(case, fast_forward=fast_forward, record_steps=record_steps) is None, mode


@pytest.mark.parametrize("engine", NUM_CASES)
def test_no_case_is_missing(engine: str) -> None:
    assert len(list((FOLDER / engine).glob("*.json.gz"))) == NUM_CASES[engine]


def test_a_difference_is_noticed() -> None:
    """The comparison itself can fail: every kind of field, changed by one, is reported by name."""
    case = read_case(FOLDER / "vllm-0.33.0" / "b00_fcfs_pc.json.gz")
    last = len(case["steps"]) - 1
    for number in (0, last // 2, last):
        row = case["steps"][number]
        for column, name in ((0, "t_us"), (4, "free_mid"), (5, "free_end"), (6, "running"), (7, "waiting")):
            row[column] += 1
            assert (verify_case(case) or "").startswith(f"step {number}, {name}: ")
            row[column] -= 1
    case["steps"][0][1][1] += 1
    assert (verify_case(case) or "").startswith("step 0, scheduled: ")
    case["steps"][0][1][1] -= 1
    extra = case["steps"].pop()
    assert (verify_case(case) or "").startswith("number of steps: ")
    case["steps"].append(extra)
    for column in range(len(case["requests_out"][0])):
        case["requests_out"][0][column] += 1
        assert (verify_case(case) or "").startswith("request 0, ")
        case["requests_out"][0][column] -= 1
    for name in set(case["totals"]) - {"stop"}:
        case["totals"][name] += 1
        assert verify_case(case, record_steps=False, fast_forward=True) == (
            f"totals, {name}: expected {case['totals'][name]}, got {case['totals'][name] - 1}"
        )
        case["totals"][name] -= 1
    assert verify_case(case) is None
