"""The same case for the oracle and for the kernel, and both outcomes in one form that can be compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.config import Config, EngineConfig, LatencyConfig
from fastsim.engines.fleets import FLEET_DTYPE
from fastsim.engines.outputs import ITL_BINS, ITL_MANTISSA_BITS, RequestLog, Status, Stop
from fastsim.engines.step_fields import STEP_TIME
from fastsim.engines.tape import Event, Reason, Tape
from fastsim.engines.vllm.codes import NO_LIMIT
from fastsim.engines.vllm.free_list import ANONYMOUS, SHARED
from fastsim.engines.vllm.memory import Memory
from fastsim.engines.vllm.runtime import RUNTIME, VllmRun
from fastsim.engines.vllm.state import NONE
from fastsim.records import Share
from fastsim.simulation import Records, record_of
from fastsim.workload import Workload
from fastsim.workload.prefix_tree import PrefixTree
from tests.reference.blocks import Identity
from tests.reference.driver import Books
from tests.reference.policies import complete
from tests.reference.requests import Request
from tests.reference.vllm import Outcome, simulate

Case = dict[str, Any]
"""A configuration as the oracle reads it."""

GONE = ("finished", "timed_out")
"""Requests that never come back, so that the kernel need not know which of them a free block belonged to."""

_ENGINE_KEYS = frozenset(EngineConfig.model_fields) - {"name", "livelock_steps"}
_RECORD_KEYS = (
    *STEP_TIME,
    "seed",
    "max_steps",
    "detect_livelock",
)
"""Keys that the record of the kernel has under the same name, and whose range there is wider than a spec's."""
_LATENCY_KEYS = ("table_tokens", "table_us", "table_scale", "max_cudagraph_capture_size", "window_tokens")


# --- The case, for the kernel -----------------------------------------------------------------------------------------


def config_of(case: Case) -> Config:
    """An oracle's configuration as specs have it; without what a spec may not say."""
    engine = {key: value for key, value in case.items() if key in _ENGINE_KEYS}
    latency = LatencyConfig(**{key: case[key] for key in _LATENCY_KEYS if case.get(key) not in (None, ())})
    return Config(engine=EngineConfig(name=case["engine"], **engine), latency=latency)


def records_of(case: Case) -> Records:
    """The kernel's records of an oracle's configuration."""
    records = record_of(config_of(case))
    record = records.engine[0]
    for key in _RECORD_KEYS:
        if key in case:
            record[key] = case[key]
    record["livelock_steps"] = case.get("livelock_steps") or 0
    record["horizon_us"] = _or_no_limit(case.get("horizon_us"))
    timeout_s = case.get("timeout_s")
    record["timeout_us"] = _or_no_limit(None if timeout_s is None else round(timeout_s * 1e6))
    if "retry_after_s" in case:
        record["retry_after_us"] = round(case["retry_after_s"] * 1e6)
    return records


def _or_no_limit(value: int | None) -> int:
    return int(NO_LIMIT) if value is None else value


def _is_async(case: Case) -> bool:
    return str(case["engine"]).endswith("-async")


def workload_of(case: Case, requests: Sequence[Request], groups: PrefixTree | None = None) -> Workload:
    """The kernel's workload of an oracle's requests. `groups`: which prefix groups extend which, if any."""
    return Workload.from_arrays(
        [r.arrival_us for r in requests],
        [r.prompt_tokens for r in requests],
        [r.output_tokens for r in requests],
        max_tokens=[r.max_tokens or 0 for r in requests],
        priority=[r.priority for r in requests],
        prefix_group=[r.prefix_group for r in requests],
        prefix_tokens=[r.prefix_tokens for r in requests],
        think_us=[r.think_us for r in requests],
        concurrency=case.get("concurrency") or 0,
        groups=groups,
    )


# --- Outcomes in one form ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Facts:
    """All that a run leaves behind.

    `steps` are rows of the recorded cases, scheduled lists written out, `tape` rows of `tests.reference.tape` and what
    happened after the last; None if not recorded. `requests` are dicts of
    the columns of `RequestLog`, `totals` those of `TOTALS_DTYPE` (`stop` and `status` as words). `histogram` counts the
    inter-token gaps, `free_order` is the content of the free list from head to tail.
    """

    steps: list[list[Any]] | None
    requests: list[dict[str, Any]]
    totals: dict[str, Any]
    histogram: npt.NDArray[np.int64]
    free_order: list[Identity | None]
    tape: list[Any] | None = None


def kernel_facts(outcome: VllmRun, case: Case) -> Facts:
    """What the kernel left in memory."""
    memory = outcome.memory
    columns = {name: getattr(memory.log, name).tolist() for name in RequestLog._fields}
    columns["status"] = [Status(status).name.lower() for status in columns["status"]]
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    totals: dict[str, Any] = {name: int(memory.totals[name][0]) for name in memory.totals.dtype.names or ()}
    totals["stop"] = Stop(totals["stop"]).name.lower()
    steps = None
    if outcome.steps is not None:
        steps = [
            [
                step.t_us,
                [value for pair in step.scheduled for value in pair],
                step.preempted,
                step.finished,
                step.free_mid,
                step.free_end,
                step.running,
                step.waiting,
                *((step.start_us, step.end_us) if _is_async(case) else ()),
            ]
            for step in outcome.steps
        ]
    order = kernel_free_order(memory) if case["enable_prefix_caching"] else [None] * int(memory.scalars["free"][0])
    statuses = columns["status"]
    left = _without_gone(order, statuses)
    return Facts(steps, rows, totals, memory.gaps.histogram, left, kernel_tape(outcome.tape))


def kernel_tape(tape: Tape | None) -> list[Any] | None:
    """The tape in the form of the oracle's."""
    if tape is None:
        return None
    calls = [
        (call.running, call.reason.name, call.request, [_plain_event(event) for event in call.events])
        for call in tape.calls
    ]
    return [*calls, [_plain_event(event) for event in tape.after]]


def _plain_event(event: Event) -> tuple[Any, ...]:
    facts = [fact.name if isinstance(fact, Reason) else fact for fact in event]
    return (type(event).__name__.lower(), *facts)


def oracle_facts(outcome: Outcome, case: Case, *, at_once: bool = False) -> Facts:
    """What the oracle says. `at_once`: the kernel books recomputed tokens when they are scheduled."""
    rows = [{name: getattr(r, name) for name in RequestLog._fields} for r in outcome.requests]
    statuses = [r.status for r in outcome.requests]
    gaps = [gap for r in outcome.requests for gap in r.gaps_us]
    totals = outcome.totals | starvation(case, outcome, at_once=at_once)
    tape = [*map(tuple, outcome.calls), outcome.events_after]
    left = _without_gone(outcome.free_order, statuses)
    return Facts(outcome.steps, rows, totals, histogram_of(gaps), left, tape)


def starvation(case: Case, outcome: Outcome, *, at_once: bool) -> dict[str, int]:
    """The longest time between completions of which recomputation took a fifth, and what it is computed from."""
    begin = Books(max(outcome.totals["first_arrival_us"], 0), 0, 0, 0, 0, 0)
    books = [begin, *outcome.books]
    if at_once:
        books = [book._replace(recomputed_tokens=book.recomputed_at_once) for book in books]
    gaps = [
        (after.at_us - before.at_us, after.at_us) for before, after in pairwise(books) if _starves(case, before, after)
    ]
    first_counts = len(books) > 1 and _starves(case, *books[:2])
    longest = max(gaps[first_counts:], key=lambda gap: gap[0], default=(0, -1))
    return {
        "first_completion_us": books[1].at_us if len(books) > 1 else -1,
        "first_recomputed": int(first_counts),
        "last_completion_us": books[-1].at_us,
        "prefill_tokens_then": books[-1].prefill_tokens,
        "decode_tokens_then": books[-1].decode_tokens,
        "recomputed_tokens_then": books[-1].recomputed_tokens,
        "discarded_tokens_then": books[-1].discarded_tokens,
        "starved_gap_us": longest[0],
        "starved_at_us": longest[1] if longest[0] > 0 else -1,
    }


def _starves(case: Case, before: Books, after: Books) -> bool:
    """Whether computing again what was known took a fifth of the time between two completions."""
    elapsed_us = after.at_us - before.at_us
    prefill, decode, recomputed, discarded, _ = (b - a for a, b in zip(before[1:], after[1:], strict=True))
    decoded_again = min(discarded, recomputed, decode)
    b1_us = complete(case).b1_us_per_prefill_token
    again_us = b1_us * (recomputed - decoded_again)
    if decoded_again > 0:
        again_us += max(elapsed_us - b1_us * prefill, 0.0) * decoded_again / decode
    return bool(again_us >= 0.2 * elapsed_us)


def kernel_free_order(memory: Memory) -> list[Identity | None]:
    """The free list, run by run, as the content of single blocks from head to tail."""
    scalars, blk = memory.scalars[0], memory.blocks
    identity_of_slot = _slots(memory)
    order: list[Identity | None] = []
    node, before = int(scalars["free_head"]), NONE
    while node != NONE:
        assert blk.prev[node] == before
        owner, last, length = int(blk.owner[node]), int(blk.last[node]), int(blk.length[node])
        assert length > 0
        if owner == ANONYMOUS:
            order += [None] * length
        elif owner == SHARED:
            assert (length, blk.references[node]) == (1, 0)
            order.append(identity_of_slot[last])
        else:
            assert owner >= 0, "an unused node in the free list"
            order += [("U", owner, block) for block in range(last, last - length, -1)]
        before, node = node, int(blk.next[node])
    assert before == scalars["free_tail"]
    assert len(order) == scalars["free"]
    return order


def _slots(memory: Memory) -> dict[int, Identity]:
    blk = memory.blocks
    slots: dict[int, Identity] = {}
    starts = [*blk.group_slot.tolist(), len(blk.first_copy)]
    for group, first in enumerate(blk.group_first_block.tolist()):
        for slot in range(starts[group], starts[group + 1]):
            slots[slot] = ("S", group, slot - starts[group] + first)
    return slots


def _without_gone(order: list[Identity | None], statuses: list[str]) -> list[Identity | None]:
    return [None if block and block[0] == "U" and statuses[block[1]] in GONE else block for block in order]


def histogram_of(gaps_us: Sequence[int]) -> npt.NDArray[np.int64]:
    """Counts of gaps by bin: exact below 256 us, then 2**ITL_MANTISSA_BITS bins to each octave."""
    per_octave = 1 << ITL_MANTISSA_BITS
    counts = np.zeros(ITL_BINS, np.int64)
    for gap in gaps_us:
        octave = max(gap.bit_length() - 1 - ITL_MANTISSA_BITS, 0)
        counts[min((gap >> octave) + octave * per_octave, ITL_BINS - 1)] += 1
    return counts


def run_recorded(records: Records, workload: Workload, *, fast_forward: bool, record_steps: bool) -> VllmRun:
    """Run the one configuration there is, and keep its memory."""
    engine, params = records.engine, records.params
    return RUNTIME.run(workload, engine, params, fast_forward=fast_forward, record_steps=record_steps)


def chunk_of(engine: npt.NDArray[np.void], params: npt.NDArray[np.void]) -> Records:
    """A chunk of vLLM's configurations."""
    fleet = np.zeros(len(params), FLEET_DTYPE)
    fleet["replicas"] = 1
    return Records(params, fleet, (Share("vllm", np.arange(len(params)), engine),))


# --- The comparison ---------------------------------------------------------------------------------------------------

MODES = {
    "stepping": (False, True, False),
    "fast-forward": (True, True, False),
    "fast-forward, no record": (True, False, False),
    "fast-forward, dense": (True, False, True),
}
"""How the kernel can be run: (fast_forward, record_steps, dense)."""


def kernel_difference(
    case: Case, requests: Sequence[Request], outcome: Outcome, groups: PrefixTree | None = None
) -> str | None:
    """Hold every mode of the kernel against the oracle's outcome: the first difference in one line, or None.

    Stepping is compared with the oracle, the other modes with stepping, of which they must leave every bit.
    """
    records, workload = records_of(case), workload_of(case, requests, groups)
    expected = oracle_facts(outcome, case)
    rows: npt.NDArray[np.int64] | None = None
    for mode, (fast_forward, record_steps, dense) in MODES.items():
        records.engine["dense"] = dense
        run = run_recorded(records, workload, fast_forward=fast_forward, record_steps=record_steps)
        facts = kernel_facts(run, case)
        assert record_steps == (facts.tape is not None)
        difference = first_difference(expected, facts, steps=record_steps)
        if difference:
            return f"{mode}: {difference}"
        row = np.concatenate([run.rows.floats[0].view(np.int64), run.rows.ints[0]])
        if rows is not None and not np.array_equal(rows, row):
            return f"{mode}: metrics number {np.flatnonzero(rows != row)} differ from those of stepping"
        if rows is None:
            expected, rows = facts, row
    return None


def check(case: Case, requests: Sequence[Request], what: str) -> Outcome:
    """One case, all ways; returns the oracle's outcome. `what` names the case in the failure."""
    outcome = simulate(case, requests, check=False)
    difference = kernel_difference(case, requests, outcome)
    assert difference is None, f"{what}: {difference}"
    return outcome


def first_difference(expected: Facts, got: Facts, *, steps: bool) -> str | None:
    """The first thing that differs, in one line; None when all is equal. `steps`: whether to compare those."""
    if steps:
        assert expected.steps is not None
        assert got.steps is not None
        for number, (a, b) in enumerate(zip(expected.steps, got.steps, strict=False)):
            if a != b:
                return f"step {number}: expected {a}, got {b}"
        if len(expected.steps) != len(got.steps):
            return f"number of steps: expected {len(expected.steps)}, got {len(got.steps)}"
    if steps and got.tape is not None:
        assert expected.tape is not None
        for number, (a, b) in enumerate(zip(expected.tape, got.tape, strict=True)):
            if a != b:
                return f"tape, call {number}: expected {a}, got {b}"
    for index, (x, y) in enumerate(zip(expected.requests, got.requests, strict=True)):
        for name in x:
            if x[name] != y[name]:
                return f"request {index}, {name}: expected {x[name]}, got {y[name]}"
    assert expected.totals.keys() == got.totals.keys()
    for name in expected.totals:
        if expected.totals[name] != got.totals[name]:
            return f"total {name}: expected {expected.totals[name]}, got {got.totals[name]}"
    if not np.array_equal(expected.histogram, got.histogram):
        where = np.flatnonzero(expected.histogram != got.histogram)
        return f"histogram, bins {where}: expected {expected.histogram[where]}, got {got.histogram[where]}"
    if expected.free_order != got.free_order:
        return f"free list: expected {expected.free_order}, got {got.free_order}"
    return None
