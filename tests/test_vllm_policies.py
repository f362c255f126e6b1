"""Every policy that the vLLM kernels know, by itself, against the oracle."""

import random
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import pytest

from fastsim.engines.vllm import codes
from tests.reference.cases import random_case
from tests.reference.requests import Request
from tests.reference.vllm import simulate
from tests.vllm_cases import Case, check

CASES = 32
"""Random cases for each policy, a quarter of them on the asynchronous engine."""

Knobs = dict[str, Any]
Draw = Callable[[random.Random, Case], Knobs]


def _step_us(case: Case) -> int:
    return int(case["b0_us"] + 10 * case["b1_us_per_prefill_token"] + 3 * case["b2_us_per_decode_token"]) + 1


def _swap(rng: random.Random, case: Case) -> Knobs:
    usable = case["num_gpu_blocks"] - 1
    return {
        "swap_space_blocks": rng.choice((1, rng.randint(1, usable), usable, 10 * usable)),
        "swap_us_per_block": rng.choice((0.0, 3.3, 250.0)),
    }


def _aging(rng: random.Random, case: Case) -> Knobs:
    return {"aging_per_s": rng.choice((0.1, 1e6 / _step_us(case), 1e5 / _step_us(case)))}


def _projected(rng: random.Random, case: Case) -> Knobs:
    return {"admission": "projected", "overcommit": rng.choice((1.0, 1.0, 0.7, 1.5))}


def _feedback(rng: random.Random, case: Case) -> Knobs:
    return {
        "running_cap": "feedback",
        "feedback_window": rng.choice((1, 2, 5, 12)),
        "feedback_threshold": rng.choice((0.0, 0.1, 0.3, 1.0)),
        "feedback_recovery": rng.choice((1, 3, 10)),
    }


def _backpressure(rng: random.Random, case: Case) -> Knobs:
    return {
        "backpressure_threshold": rng.choice((0.02, 0.1, 0.3)),
        "backpressure_window": rng.choice((1, 3, 10)),
        "retry_after_s": rng.randint(1, 20) * _step_us(case) / 1e6,
    }


def _bypass(rng: random.Random, case: Case) -> Knobs:
    return {
        "bypass": True,
        "admission_scan_limit": rng.choice((1, 2, 3, 64)),
        "max_admission_bypasses": rng.choice((1, 2, 3, 8)),
    }


def _slot_preempt(rng: random.Random, case: Case) -> Knobs:
    order = rng.choice(("priority", "aging"))
    return {"slot_preempt": True, "queue_order": order, "max_num_seqs": rng.randint(1, 4)} | _aging(rng, case)


def _livelock(rng: random.Random, case: Case) -> Knobs:
    """Somebody does not fit, or two take each other's blocks for ever."""
    fewer = rng.randint(1, max(1, case["num_gpu_blocks"] // 3))
    return {
        "detect_livelock": True,
        "unservable": "spin",
        "num_gpu_blocks": max(2, case["num_gpu_blocks"] - fewer),
        "victim": rng.choice(("tail", "most_computed")),
    }


ENUMS: dict[str, tuple[type[IntEnum], Draw | None]] = {
    "victim": (codes.Victim, None),
    "preemption_mode": (codes.PreemptionMode, _swap),
    "queue_order": (codes.QueueOrder, _aging),
    "admission": (codes.Admission, _projected),
    "projection": (codes.Projection, _projected),
    "running_cap": (codes.RunningCap, _feedback),
    "feedback_rule": (codes.FeedbackRule, _feedback),
    "backpressure_action": (codes.BackpressureAction, _backpressure),
    "unservable": (codes.Unservable, None),
}
"""Every enum of policies that the kernels branch on, with the other knobs that its members need to matter."""

MEMBERS: dict[str, Draw] = {
    "boost_after": lambda rng, case: {"boost_after": rng.randint(1, 4)},
    "bypass": _bypass,
    "bypass, count_restores=false": lambda rng, case: _bypass(rng, case) | {"count_restores": False},
    "bypass, blocked_checks_limit=false": lambda rng, case: _bypass(rng, case) | {"blocked_checks_limit": False},
    "slot_preempt": _slot_preempt,
    "slot_preempt_preflight=false": lambda rng, case: _slot_preempt(rng, case) | {"slot_preempt_preflight": False},
    "max_num_queued_reqs": lambda rng, case: {"max_num_queued_reqs": rng.randint(1, 6)},
    "max_num_queued_tokens": lambda rng, case: {"max_num_queued_tokens": rng.randint(1, 100)},
    "timeout_s": lambda rng, case: {"timeout_s": rng.randint(1, 100) * _step_us(case) / 1e6},
    "detect_livelock": _livelock,
    "livelock_steps": lambda rng, case: _livelock(rng, case) | {"livelock_steps": rng.randint(5, 200)},
}
"""Every policy by name: the knobs that switch it on in a case, drawn. The members of `ENUMS` are added below."""


INERT = ("preemption_mode=recompute", "admission=greedy", "running_cap=fixed", "feedback_rule=consecutive")
"""Members that change nothing here: defaults, and one that needs a storm (`test_a_storm_of_preemptions`)."""


def built_in(enum: type[IntEnum]) -> list[str]:
    """The members of an enum by name, without that of a file of one's own (`test_policy_file`)."""
    return [member.name.lower() for member in enum if member.name != "POLICY"]


def _member(key: str, name: str, others: Draw | None) -> Draw:
    return lambda rng, case: (others(rng, case) if others else {}) | {key: name}


for _key, (_codes, _others) in ENUMS.items():
    MEMBERS |= {f"{_key}={name}": _member(_key, name, _others) for name in built_in(_codes)}


@pytest.mark.parametrize("name", MEMBERS)
def test_policy_alone(name: str) -> None:
    """One policy on top of vLLM's own knobs; in some case it makes a difference."""
    matters = False
    for seed in range(CASES if name not in INERT else CASES // 4):  # an inert one is vLLM's own rules once more
        rng = random.Random(seed)
        family = "async" if seed % 4 == 0 else "vllm"
        case, requests = random_case(rng, family=family)
        outcome = check(case | MEMBERS[name](rng, case), requests, f"{name}, family {family}, seed {seed}")
        matters = matters or simulate(case, requests, check=False) != outcome
    assert matters != (name in INERT)


@pytest.mark.parametrize("rule", [rule.name.lower() for rule in codes.FeedbackRule])
@pytest.mark.parametrize("engine", ["vllm-0.33.0", "vllm-0.33.0-async"])
def test_a_storm_of_preemptions(rule: str, engine: str) -> None:
    """Several preemptions a step for many steps, as the `consecutive` rule needs them: the cap falls."""
    rng = random.Random(0)
    requests = [Request(0, rng.randint(1, 3), rng.randint(30, 60)) for _ in range(40)]
    for number, victim in enumerate(built_in(codes.Victim)):
        for window in (2, 5, 10):
            case = {
                "engine": engine,
                "block_size": 1,
                "num_gpu_blocks": 301,
                "enable_prefix_caching": number % 2 == 0,
                "scheduler_reserve_full_isl": False,
                "victim": victim,
                "running_cap": "feedback",
                "feedback_rule": rule,
                "feedback_window": window,
                "feedback_recovery": 7,
                "b0_us": 1.0,
            }
            outcome = check(case, requests, f"{rule}, {engine}, {victim}, window {window}")
            assert outcome.totals["cap_min"] < 256 or window == 2


def test_every_enum_of_policies_is_tested() -> None:
    """A policy that the kernels know and this file does not is an error."""
    of_kernel = {enum for enum in vars(codes).values() if isinstance(enum, type) and issubclass(enum, IntEnum)}
    assert of_kernel - {IntEnum, codes.Reads} == {enum for enum, _ in ENUMS.values()}
