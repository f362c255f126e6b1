"""The history of a run against the oracle, which knows who evicted whom, and against the kernel's own scan."""

import os
import random
from collections.abc import Iterator

import numpy as np
import pytest

from fastsim.analysis.explain.history import History
from fastsim.analysis.explain.recorded import build_history, history_of
from fastsim.analysis.explain.waits import Queue, Reason, why_stopped
from fastsim.config import load_config
from fastsim.engines.outputs import TOTALS_DTYPE, RequestLog
from fastsim.engines.vllm.memory import Memory
from fastsim.engines.vllm.scalars import ScanEnd
from fastsim.simulation import simulate
from tests.reference.cases import random_case
from tests.reference.requests import Request, RequestState
from tests.reference.scheduler import Scheduler
from tests.reference.vllm import simulate as reference
from tests.test_vllm_policies import MEMBERS
from tests.vllm_cases import Case, records_of, run_recorded, workload_of

POLICIES = [None] * 4 + list(MEMBERS)
Truth = list[tuple[int, int, int, bool, int]]
"""(when, victim, evictor, for its slot, computed tokens) of each preemption."""

MEANS = {
    Reason.PREEMPTION: (ScanEnd.SKIPPED,),
    Reason.BUDGET: (ScanEnd.BUDGET, ScanEnd.BYPASS_LIMIT),
    Reason.SLOTS: (ScanEnd.CAP,),
    Reason.CAP: (ScanEnd.CAP,),
    Reason.CAP_OR_BLOCKS: (ScanEnd.CAP, ScanEnd.BLOCKS),
    Reason.GATE: (ScanEnd.BLOCKS,),
    Reason.BLOCKS: (ScanEnd.BLOCKS,),
    Reason.WATERMARK: (ScanEnd.BLOCKS,),
    Reason.PROJECTION: (ScanEnd.BLOCKS,),
    Reason.CHUNKING: (ScanEnd.CHUNKING,),
    Reason.BUSY: (ScanEnd.EMPTY,),
    Reason.DEFERRED: (ScanEnd.DEFERRED, ScanEnd.BLOCKS, ScanEnd.CAP, ScanEnd.CHUNKING),
    Reason.BYPASS: (ScanEnd.BLOCKS, ScanEnd.EMPTY, ScanEnd.SCAN_LIMIT, ScanEnd.BYPASS_LIMIT),
    Reason.OTHER: (ScanEnd.BLOCKS, ScanEnd.CAP, ScanEnd.CHUNKING),
}
"""What the kernel may have noted as the end of its waiting scan, for what we say stopped it."""


def drawn(seed: int) -> tuple[Case, list[Request], str]:
    """A small tight case with one policy, a third of them asynchronous."""
    rng = random.Random(seed)
    case, requests = random_case(rng, family="async" if seed % 3 == 0 else "vllm")
    name = POLICIES[seed % len(POLICIES)]
    case |= MEMBERS[name](rng, case) if name else {}
    case["b0_us"] = max(case["b0_us"], 1.0)  # as in every spec: a step takes time
    return case, requests, f"seed {seed}, {name}"


@pytest.fixture
def truth(monkeypatch: pytest.MonkeyPatch) -> Truth:
    """Fills with the preemptions of the oracle's runs."""
    noted: Truth = []
    asking: list[tuple[int, bool]] = [(-1, False)]
    allocate, preempt, slot = Scheduler.allocate_slots, Scheduler.preempt_request, Scheduler._slot_victim

    def allocate_slots(self: Scheduler, request: RequestState, n: int) -> bool:
        asking[0] = (request.index, False)
        return allocate(self, request, n)

    def slot_victim(self: Scheduler, candidate: RequestState) -> RequestState | None:
        asking[0] = (candidate.index, True)
        return slot(self, candidate)

    def preempt_request(self: Scheduler, request: RequestState) -> None:
        noted.append((self.batch.t_us, request.index, *asking[0], request.num_computed))
        preempt(self, request)

    monkeypatch.setattr(Scheduler, "allocate_slots", allocate_slots)
    monkeypatch.setattr(Scheduler, "preempt_request", preempt_request)
    monkeypatch.setattr(Scheduler, "_slot_victim", slot_victim)
    return noted


def history(case: Case, requests: list[Request]) -> History:
    """The kernel's history of a case of the oracle."""
    records, workload = records_of(case), workload_of(case, requests)
    run = run_recorded(records, workload, fast_forward=True, record_steps=True)
    totals = {name: int(run.memory.totals[name][0]) for name in TOTALS_DTYPE.names or ()}

    def probe(steps: int) -> RequestLog:
        return stopped(case, requests, steps).log

    return build_history(records.engine[0], workload, run.memory.log, totals, run.steps or [], probe)


def stopped(case: Case, requests: list[Request], steps: int) -> Memory:
    """What a run leaves when it ends after so many steps."""
    records = records_of(case)
    records.engine["max_steps"] = steps
    records.engine["dense"] = 0  # only the general loop says why its scan ended
    memory = run_recorded(records, workload_of(case, requests), fast_forward=True, record_steps=False).memory
    assert isinstance(memory, Memory)
    return memory


def compare_evictions(seeds: Iterator[int], truth: Truth) -> tuple[int, int]:
    """Every eviction named is the oracle's. Returns evictions, and how many of them name no evictor."""
    count = open_ones = 0
    for seed in seeds:
        case, requests, what = drawn(seed)
        truth.clear()
        reference(case, requests, check=False)
        found = history(case, requests).evictions
        assert len(found) == len(truth), what
        for eviction, expected in zip(found, truth, strict=True):
            got = (eviction.at_us, eviction.victim, eviction.computed_tokens)
            assert got == (expected[0], expected[1], expected[4]), what
            if eviction.evictor is None:
                open_ones += 1
            else:
                assert (eviction.evictor, eviction.for_slot) == expected[2:4], what
        count += len(found)
    return count, open_ones


def test_evictors_are_those_of_the_oracle(truth: Truth) -> None:
    count, open_ones = compare_evictions(iter(range(60)), truth)
    assert count > 300
    assert open_ones < 0.05 * count


@pytest.mark.slow
def test_evictors_of_many_cases(truth: Truth) -> None:
    start = int(os.environ.get("FASTSIM_SEED", "1000"))
    count, open_ones = compare_evictions(
        iter(range(start, start + int(os.environ.get("FASTSIM_CASES", "2000")))), truth
    )
    print(f"{count} evictions, {open_ones} without a certain evictor")
    assert open_ones < 0.05 * count


def test_reasons_agree_with_the_scan_of_the_kernel() -> None:
    checked = 0
    for seed in range(40):
        case, requests, what = drawn(seed)
        found = history(case, requests)
        rows = set(random.Random(seed).sample(range(len(found.steps)), min(8, len(found.steps))))
        queue = Queue(found)
        for row in range(len(found.steps)):
            queue.play(row)
            if row not in rows or not queue.members:
                continue
            memory = stopped(case, requests, row + 1)
            if int(memory.totals["steps"][0]) == row + 1:
                reason, _, _ = why_stopped(queue, row)
                assert ScanEnd(int(memory.scalars["scan_end"][0])) in MEANS[reason], f"{what}, row {row}: {reason}"
                checked += 1
    assert checked > 100


def test_the_discussion_names_every_evictor() -> None:
    result = simulate(load_config("sweeps/discussion.toml"), record_steps=True)
    found = history_of(result)
    assert len(found.evictions) == result.metrics["preemptions"] == 1042
    assert all(eviction.evictor is not None for eviction in found.evictions)
    counts = np.bincount([eviction.victim for eviction in found.evictions], minlength=300)
    assert np.array_equal(counts, result.requests.num_preemptions)
