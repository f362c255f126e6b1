"""Edges of the vLLM kernels that random cases rarely come to: deadlines to the microsecond, hits that others hold too,
a door that opens in the step before a jump. Each is held against the oracle in every mode of the kernel.
"""

import random
from typing import Any

import pytest

from tests import groups_cases, vllm_cases
from tests.reference.requests import Request
from tests.vllm_cases import Case

ENGINES = ("vllm-0.33.0", "vllm-0.33.0-async")
STEP_US = 1000
PLAIN: Case = {
    "block_size": 4,
    "num_gpu_blocks": 100,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
    "enable_prefix_caching": False,
    "b0_us": float(STEP_US),
    "b1_us_per_prefill_token": 0.0,
    "b2_us_per_decode_token": 0.0,
}
GROUPS: Case = {
    "kv_cache_groups": [{"kind": "full", "block_size": 4}, {"kind": "sliding", "block_size": 4, "window": 8}]
}


# --- Deadlines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cases", [vllm_cases, groups_cases])
def test_a_deadline_at_the_start_of_a_step_has_passed(cases: Any) -> None:
    """At the door, where nobody has seen the request yet, and inside."""
    requests = [Request(0, 4, 9), Request(500, 4, 9), Request(501, 4, 9)]
    case = PLAIN | {"engine": "vllm-0.33.0", "timeout_s": 500e-6} | (GROUPS if cases is groups_cases else {})
    first, second, third = cases.check(case, requests, "at the door").requests
    assert [r.status for r in (first, second, third)] == ["timed_out"] * 3
    assert (second.first_scheduled_us, third.first_scheduled_us) == (-1, STEP_US)
    case["timeout_s"] = 2 * STEP_US / 1e6
    (inside,) = cases.check(case, [Request(0, 4, 9)], "inside").requests
    assert (inside.status, inside.num_generated, inside.finish_us) == ("timed_out", 2, 2 * STEP_US)


@pytest.mark.parametrize("engine", ENGINES)
def test_deadlines_on_the_grid_of_steps(engine: str) -> None:
    """Everything happens at whole steps, so that deadlines, arrivals and steps meet."""
    at_the_door = 0
    for seed in range(60):
        rng = random.Random(seed)
        requests = [
            Request(STEP_US // 2 * rng.randint(0, 20), rng.randint(1, 9), rng.randint(1, 12))
            for _ in range(rng.randint(2, 12))
        ]
        case = PLAIN | {"engine": engine, "timeout_s": rng.randint(1, 12) * STEP_US / 2e6}
        case |= {"max_num_seqs": rng.randint(1, 4), "num_gpu_blocks": rng.randint(8, 20)}
        outcome = vllm_cases.check(case, requests, f"seed {seed}")
        at_the_door += sum(r.status == "timed_out" and r.first_scheduled_us < 0 for r in outcome.requests)
    assert at_the_door > 20


# --- Slots taken from running requests --------------------------------------------------------------------------------


def shared_slots(rng: random.Random) -> tuple[Case, list[Request]]:
    """Urgent requests take slots of others that hold the same prefix, or another, in a pool that only just suffices."""
    requests = [
        Request(
            STEP_US * rng.randint(0, 12),
            rng.randint(8, 24),
            rng.randint(2, 20),
            rng.randint(0, 3),
            prefix_group=rng.choice((0, 0, 0, 1, -1)),
            prefix_tokens=8,
        )
        for _ in range(rng.randint(5, 12))
    ]
    requests = [r if r.prefix_group >= 0 else Request(r.arrival_us, r.prompt_tokens, r.output_tokens) for r in requests]
    largest = max(r.prompt_tokens + r.output_tokens for r in requests) // 4 + 1
    case = PLAIN | {
        "engine": rng.choice(ENGINES),
        "policy": "priority",
        "slot_preempt": True,
        "slot_preempt_preflight": True,
        "enable_prefix_caching": True,
        "scheduler_reserve_full_isl": rng.random() < 0.5,
        "max_num_seqs": rng.randint(2, 3),
        "num_gpu_blocks": largest + rng.randint(2, 9),
        "max_steps": 600,
    }
    return case, requests


def test_hits_that_others_hold_too_do_not_become_free() -> None:
    """The question whether a candidate fits in a victim's place: of its hits only those that leave with the victim."""
    for seed in range(200):
        case, requests = shared_slots(random.Random(seed))
        vllm_cases.check(case, requests, f"seed {seed}")


# --- The door ---------------------------------------------------------------------------------------------------------


def paced(rng: random.Random) -> tuple[Case, list[Request]]:
    """A pool too small for who runs, and arrivals held at the door until the window has seen few preemptions."""
    requests = [
        Request(STEP_US * rng.randint(0, 30), rng.randint(2, 12), rng.randint(5, 60)) for _ in range(rng.randint(4, 14))
    ]
    largest = max(r.prompt_tokens + r.output_tokens for r in requests) // 4 + 1
    case = PLAIN | {
        "engine": rng.choice(ENGINES),
        "num_gpu_blocks": largest + rng.randint(2, 12),
        "backpressure_threshold": rng.choice((0.01, 0.1, 0.3)),
        "backpressure_window": rng.randint(1, 12),
        "backpressure_action": "pace",
        "enable_prefix_caching": rng.random() < 0.3,
        "max_steps": 2000,
    }
    return case, requests


def test_who_is_held_enters_when_backpressure_ends_in_the_step_before_a_jump() -> None:
    held = 0
    for seed in range(200):
        case, requests = paced(random.Random(seed))
        held += vllm_cases.check(case, requests, f"seed {seed}").totals["held"]
    assert held > 200
