"""What explanations say of a run against the oracle, which decides for itself who waits, and for what."""

import os
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from fastsim.analysis.explain.explain import explain
from fastsim.analysis.explain.history import History, history_from, history_of
from fastsim.analysis.explain.waits import stays_of
from fastsim.config import load_config
from fastsim.engines.outputs import NEVER, TOTALS_DTYPE
from fastsim.engines.tape import Reason
from fastsim.engines.vllm.groups.rows import GroupRun
from fastsim.engines.vllm.runtime import VllmRun
from fastsim.simulation import Result, simulate
from tests.groups_cases import GROUP_KEYS, group_records_of
from tests.groups_cases import run_recorded as run_groups
from tests.reference.cases import random_case
from tests.reference.group_cases import FAMILIES, random_group_case
from tests.reference.requests import Request
from tests.reference.scheduler import Scheduler
from tests.reference.vllm import Outcome
from tests.reference.vllm import simulate as reference
from tests.test_vllm_policies import MEMBERS
from tests.vllm_cases import Case, config_of, records_of, run_recorded, workload_of

POLICIES = [None] * 4 + list(MEMBERS)
RARE = (349, 1988)
"""Seeds of requests held at the door, and of one that finds its own output in flight."""
OF_GROUPS = {"STATE", "ALIGNED"}
"""Reasons that only some kinds of groups know."""
OF_POLICY_FILES = {"POLICY_ADMIT", "POLICY_CAP"}
BEFORE = ("BUSY", "DOOR")
"""What a request waits for before any scan can have seen it."""
Waiting = list[tuple[int, dict[int, str]]]
"""For each schedule() call its time, and who waits after it, for what."""


def drawn(seed: int) -> tuple[Case, list[Request], str]:
    """A small tight case with one policy, a third of them asynchronous."""
    rng = random.Random(seed)
    case, requests = random_case(rng, family="async" if seed // len(POLICIES) % 3 == 0 else "vllm")
    name = POLICIES[seed % len(POLICIES)]
    case |= MEMBERS[name](rng, case) if name else {}
    case["b0_us"] = max(case["b0_us"], 1.0)  # as in every spec: a step takes time
    return case, requests, f"seed {seed}, {name}"


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    """Fills with the queues of the oracle's runs: who was looked at has its own reason, the others that of the scan."""
    noted: Waiting = []
    schedule = Scheduler.schedule

    def noting(self: Scheduler, *args: Any, **kwargs: Any) -> Any:
        batch = schedule(self, *args, **kwargs)
        call = self.tape.calls[-1]
        own = {event[1]: event[2] for event in call.events if event[0] == "refused"}
        noted.append((batch.t_us, {r.index: own.get(r.index, call.why) for r in self.waiting}))
        return batch

    monkeypatch.setattr(Scheduler, "schedule", noting)
    return noted


def drawn_with_groups(seed: int) -> tuple[Case, list[Request], str]:
    """The same with KV cache groups, drafts or both, every other one asynchronous."""
    family, policies, asynchronous = FAMILIES[seed % len(FAMILIES)], seed // len(FAMILIES) % 2 == 1, seed % 2 == 1
    case, requests = random_group_case(random.Random(seed), family=family, policies=policies, asynchronous=asynchronous)
    case["b0_us"] = max(case["b0_us"], 1.0)
    return case, requests, f"seed {seed}, {family}"


def history(case: Case, requests: list[Request]) -> History:
    """The kernel's history of a case of the oracle."""
    workload = workload_of(case, requests)
    run: VllmRun | GroupRun
    if GROUP_KEYS & case.keys():
        run = run_groups(*group_records_of(case), workload, fast_forward=True, record_steps=True)
    else:
        run = run_recorded(records_of(case), workload, fast_forward=True, record_steps=True)
    totals = {name: int(run.memory.totals[name][0]) for name in TOTALS_DTYPE.names or ()}
    assert run.tape is not None
    return history_from(run.tape, workload, run.memory.log, totals)


def expected_parts(waiting: Waiting, request: int, gone_us: int) -> list[tuple[int, int, str]]:
    """From when until when the request waits, and for what, call by call."""
    ends = [t_us for t_us, _ in waiting[1:]] + [gone_us]
    parts = [
        (t_us, min(end_us, gone_us), queue[request])
        for (t_us, queue), end_us in zip(waiting, ends, strict=False)
        if request in queue
    ]
    return [part for part in parts if part[1] > part[0]]


def compare(cases: Iterable[tuple[Case, list[Request], str]], waiting: Waiting) -> Counter[str]:
    """Every reason of every wait of every request is the oracle's. Returns how often each was met."""
    met: Counter[str] = Counter()
    for case, requests, what in cases:
        waiting.clear()
        outcome = reference(case, requests, check=False)
        found = history(case, requests)
        held = {event[1] for call in outcome.calls for event in call.events if event[0] == "held"}
        held |= {event[1] for event in outcome.events_after if event[0] == "held"}
        for request in range(len(requests)):
            finish_us = outcome.requests[request].finish_us
            gone_us = outcome.totals["end_us"] if finish_us == NEVER else finish_us
            expected = expected_parts(waiting, request, gone_us)
            parts = [part for stay in stays_of(found, request) for part in stay.parts]
            queued = [(p.start_us, p.end_us, p.reason.name) for p in parts if p.reason.name not in BEFORE]
            assert queued == expected, f"{what}, request {request}"
            assert all(p.reason is not Reason.DOOR or request in held for p in parts), f"{what}, request {request}"
            told = explain(found, config_of({key: case[key] for key in case.keys() - GROUP_KEYS}), request)
            sums: Counter[Reason] = Counter()
            for part in parts:
                sums[part.reason] += part.end_us - part.start_us
            assert dict(told.waits) == sums, f"{what}, request {request}"
            met.update(part.reason.name for part in parts)
        compare_preemptions(found, outcome, what)
    return met


def compare_preemptions(found: History, outcome: Outcome, what: str) -> None:
    assert outcome.steps is not None
    truth = [
        (step[0], *event[1:])
        for step, call in zip(outcome.steps, outcome.calls, strict=True)
        for event in call.events
        if event[0] == "preempted"
    ]
    assert [(found.at_us(row), *event) for row, event in found.preemptions] == truth, what


def test_reasons_are_those_of_the_oracle(waiting: Waiting) -> None:
    met = compare(map(drawn, [*range(3 * len(POLICIES)), *RARE]), waiting)
    assert met.keys() == {reason.name for reason in Reason} - {"EMPTY", *OF_GROUPS, *OF_POLICY_FILES}


def test_reasons_with_groups_and_drafts_are_those_of_the_oracle(waiting: Waiting) -> None:
    met = compare(map(drawn_with_groups, range(60)), waiting)
    assert met.keys() >= OF_GROUPS


@pytest.mark.slow
def test_reasons_of_many_cases(waiting: Waiting) -> None:
    start = int(os.environ.get("FASTSIM_SEED", "1000"))
    seeds = range(start, start + int(os.environ.get("FASTSIM_CASES", "2000")))
    compare(map(drawn, seeds), waiting)
    compare(map(drawn_with_groups, seeds), waiting)


# --- The discussion ---------------------------------------------------------------------------------------------------


def discussion(*sets: str) -> Result:
    return simulate(load_config("sweeps/discussion.toml", list(sets)), record_steps=True)


def scan_ends(result: Result) -> Counter[Reason]:
    assert result.tape is not None
    return Counter(call.reason for call in result.tape.calls)


def test_the_discussion_names_every_evictor() -> None:
    result = discussion()
    found = history_of(result)
    assert len(found.preemptions) == result.metrics["preemptions"] == 1042
    counts = np.bincount([event.request for _, event in found.preemptions], minlength=300)
    assert np.array_equal(counts, result.requests.num_preemptions)


def test_an_interval_is_named_where_it_decided() -> None:
    """With `prefill_schedule_interval` most scans still end for want of blocks, and say so."""
    reasons = scan_ends(discussion("engine.prefill_schedule_interval=4"))
    assert 0 < reasons[Reason.DEFERRED] < 0.01 * reasons[Reason.BLOCKS]


def test_a_fed_back_cap_and_want_of_blocks_are_told_apart() -> None:
    result = discussion("engine.running_cap=feedback")
    reasons = scan_ends(result)
    assert min(reasons[Reason.RUNNING_CAP], reasons[Reason.BLOCKS]) > 1000
