"""Shapes of traffic: a rate that swings and surges, conversations that grow."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from fastsim.config import ArrivalConfig, LengthConfig, WorkloadConfig
from fastsim.config.workload_parts import SessionConfig
from fastsim.workload import Workload, build_workload
from fastsim.workload.describe import describe

from .sentences import bad_input


def build(count: int = 20_000, arrival: dict[str, Any] | None = None, **keys: Any) -> Workload:
    return build_workload(WorkloadConfig(num_requests=count, arrival=ArrivalConfig(**(arrival or {})), **keys))


def rate_between(workload: Workload, start_s: float, end_s: float) -> float:
    inside = (workload.arrival_us >= start_s * 1e6) & (workload.arrival_us < end_s * 1e6)
    return float(np.count_nonzero(inside)) / (end_s - start_s)


def test_the_rate_swings_as_a_sine() -> None:
    day = build(arrival={"kind": "constant", "rate_per_s": 10.0, "diurnal_amplitude": 0.5, "diurnal_period_s": 1000.0})
    assert rate_between(day, 245, 255) == pytest.approx(15, rel=0.02)
    assert rate_between(day, 745, 755) == pytest.approx(5, rel=0.05)
    assert rate_between(day, 0, 1000) == pytest.approx(10, rel=0.002)
    assert rate_between(day, 0, 2000) == pytest.approx(10, rel=0.002)


def test_a_rate_may_fall_to_nothing() -> None:
    day = build(arrival={"kind": "constant", "rate_per_s": 10.0, "diurnal_amplitude": 1.0, "diurnal_period_s": 1000.0})
    assert (np.diff(day.arrival_us) >= 0).all()
    assert rate_between(day, 740, 760) < 0.1
    assert rate_between(day, 240, 260) == pytest.approx(20, rel=0.02)


def test_surges_once_and_again() -> None:
    surge = {
        "kind": "poisson",
        "rate_per_s": 10.0,
        "surge_factor": 4.0,
        "surge_start_s": 100.0,
        "surge_duration_s": 50.0,
    }
    once = build(arrival=surge)
    assert rate_between(once, 100, 150) == pytest.approx(40, rel=0.06)
    assert rate_between(once, 150, 1000) == pytest.approx(10, rel=0.05)
    again = build(arrival=surge | {"surge_every_s": 200.0})
    for start in (100, 300, 500):
        assert rate_between(again, start, start + 50) == pytest.approx(40, rel=0.08)
        assert rate_between(again, start + 50, start + 200) == pytest.approx(10, rel=0.1)


def test_without_modulation_nothing_changes() -> None:
    assert build(50).workload_id == build(50, arrival={"surge_factor": 1.0, "diurnal_amplitude": 0.0}).workload_id


def conversations(count: int = 600, turns: int = 4, **sessions: Any) -> Workload:
    return build(
        count,
        arrival={"rate_per_s": 5.0},
        prompt=LengthConfig(dist="uniform", min=20, max=60),
        output=LengthConfig(dist="uniform", min=5, max=30),
        sessions=SessionConfig(turns=turns, **sessions),
    )


def test_each_prompt_is_all_that_was_said_before() -> None:
    workload = conversations()
    assert (np.diff(workload.arrival_us) >= 0).all()
    assert (workload.prefix_tokens < workload.prompt_tokens).any()
    chains: dict[int, list[int]] = {}
    for request, group in enumerate(workload.prefix_group.tolist()):
        assert group >= 0
        root = group
        while workload.group_parent[root] >= 0:
            root = int(workload.group_parent[root])
        chains.setdefault(root, []).append(request)
    assert len(chains) == 150
    for requests in chains.values():
        assert len(requests) == 4
        for one, two in pairwise(requests):
            grown = workload.prompt_tokens[two] - workload.prompt_tokens[one] - workload.output_tokens[one]
            assert 20 <= grown <= 60  # the new message
            assert workload.arrival_us[two] >= workload.arrival_us[one]
        last = requests[-1]
        assert workload.prefix_tokens[last] == workload.prompt_tokens[requests[-2]]
    total = workload.prompt_tokens.sum()
    repeated = sum(int(workload.prompt_tokens[r]) for requests in chains.values() for r in requests[:-1])
    assert describe(workload)["prefix"]["repeated_token_share"] == pytest.approx(repeated / total)


def test_the_rate_of_requests_stays() -> None:
    assert describe(conversations(20_000, gap_s=1.0))["rate_per_s"] == pytest.approx(5.0, rel=0.1)


def test_long_conversations_begin_anew() -> None:
    workload = conversations(turns=20, max_prompt_tokens=200)
    assert workload.prompt_tokens.max() <= 200
    fresh = (workload.prefix_group < 0) | (workload.prefix_tokens == workload.prompt_tokens)
    assert 0.2 < fresh.mean() < 1.0
    assert conversations(turns=3, count=10).num_requests == 10  # not a multiple of the turns


def test_one_turn_is_no_conversation() -> None:
    assert conversations(turns=1).workload_id == conversations(turns=1, gap_s=5.0).workload_id


FAULTS: list[tuple[dict[str, Any], list[str]]] = [
    ({"sessions": {"turns": 2}, "concurrency": 3}, ["workload.concurrency = 3", "workload.sessions.turns = 2"]),
    ({"sessions": {"turns": 2}, "trace": "x.csv"}, ["workload.trace", "workload.sessions.turns = 2"]),
    ({"sessions": {"turns": 2}, "prefix": {"groups": 2, "tokens": 3}}, ["workload.prefix.groups = 2"]),
    ({"arrival": {"kind": "all_at_once", "surge_factor": 2.0}}, ["workload.arrival.surge_factor = 2", "have a rate"]),
    ({"concurrency": 2, "arrival": {"diurnal_amplitude": 0.5}}, ["workload.arrival.diurnal_amplitude = 0.5"]),
]


@pytest.mark.parametrize(("keys", "named"), FAULTS)
def test_shapes_that_contradict_are_one_sentence(keys: dict[str, Any], named: list[str]) -> None:
    bad_input(lambda: build_workload(WorkloadConfig.model_validate(keys)), *named)
