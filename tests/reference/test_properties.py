"""What must hold in random cases of the oracle, whatever the policies (its invariants are asserted in every step)."""

import random

import pytest

from tests.reference.cases import FAMILIES, random_case
from tests.reference.vllm import simulate

CASES = 60


@pytest.mark.parametrize("family", FAMILIES)
def test_random_cases(family: str) -> None:
    for seed in range(CASES):
        config, requests = random_case(random.Random(seed), family=family)
        outcome = simulate(config, requests)
        totals = outcome.totals
        assert totals["stop"] in ("drained", "horizon", "max_steps", "livelock")
        assert totals["steps"] <= config["max_steps"]
        counts = {status: sum(r.status == status for r in outcome.requests) for status in ("finished", "timed_out")}
        assert (totals["completed"], totals["timed_out"]) == (counts["finished"], counts["timed_out"])
        assert len(outcome.completion_us) == totals["completed"]
        assert len(outcome.books) == totals["completed"]
        assert sum(r.num_preemptions for r in outcome.requests) == totals["preemptions"]
        if totals["stop"] == "drained":
            assert len(outcome.free_order) == totals["usable_blocks"]
            assert {r.status for r in outcome.requests} <= {"finished", "rejected", "timed_out", "unservable"}
            assert totals["swapped_in_blocks"] <= totals["swapped_out_blocks"]
        for request in outcome.requests:
            if request.status == "finished":
                assert request.first_token_us + sum(request.gaps_us) == request.finish_us == request.last_token_us
                assert len(request.gaps_us) == request.num_generated - 1


@pytest.mark.parametrize("family", ["vllm", "policies", "async-policies"])
def test_oracle_projection_never_preempts(family: str) -> None:
    """Known lengths, no overcommitment, no shared blocks, everybody servable: nobody ever lacks a block."""
    for seed in range(CASES):
        config, requests = random_case(random.Random(seed), family=family, prefix_caching=False)
        config |= {
            "admission": "projected",
            "projection": "oracle",
            "overcommit": 1.0,
            "unservable": "reject",
            "slot_preempt": False,
        }
        assert simulate(config, requests).totals["preemptions"] == 0


def test_the_same_seed_gives_the_same_case() -> None:
    for family in FAMILIES:
        assert random_case(random.Random(7), family=family) == random_case(random.Random(7), family=family)


def test_livelock_detection_changes_nothing_else() -> None:
    """A run that is not declared a livelock is the same without looking for one."""
    for seed in range(CASES):
        config, requests = random_case(random.Random(seed), family="policies")
        with_detection = simulate(config | {"detect_livelock": True}, requests)
        if with_detection.totals["stop"] != "livelock":
            assert simulate(config | {"detect_livelock": False}, requests) == with_detection
