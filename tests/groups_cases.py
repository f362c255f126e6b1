"""The same case, with groups or drafts, for the oracle and for the kernel."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fastsim.engines.outputs import RequestLog, Status, Stop
from fastsim.engines.vllm.golden import recorded_layout
from fastsim.engines.vllm.groups.layout import GroupRecords, Layout, group_records
from fastsim.engines.vllm.groups.rows import GroupRun, run_recorded
from fastsim.engines.vllm.state import NONE
from tests.reference.requests import Request
from tests.reference.vllm import Outcome, simulate
from tests.vllm_cases import (
    Case,
    Facts,
    first_difference,
    histogram_of,
    kernel_tape,
    oracle_facts,
    records_of,
    workload_of,
)

MODES = {"stepping": (False, True), "fast-forward": (True, False)}
"""How the kernel can be run: (fast_forward, record_steps)."""

GROUP_KEYS = frozenset(
    (
        "kv_cache_groups",
        "prefix_cache_retention_interval",
        "spec_method",
        "num_speculative_tokens",
        "spec_lookahead_hashes",
        "spec_accept_permille",
        "spec_seed",
        "spec_draft",
        "spec_draft_us",
        "spec_draft_us_per_token",
    )
)


def layout_of(case: Case) -> Layout:
    """Groups and speculation of an oracle's configuration."""
    layout = recorded_layout(case)
    times = {"draft_us": case.get("spec_draft_us", 0.0), "draft_us_per_token": case.get("spec_draft_us_per_token", 0.0)}
    return replace(layout, speculation=replace(layout.speculation, **times))


def group_records_of(case: Case) -> tuple[GroupRecords, Any]:
    """The kernel's records of an oracle's configuration, and the parameters of its metrics."""
    plain = records_of({key: value for key, value in case.items() if key not in GROUP_KEYS})
    return group_records(plain.engine, [layout_of(case)]), plain.params


def kernel_facts(run: GroupRun, case: Case) -> Facts:
    """What the kernel left in memory."""
    memory = run.memory
    columns = {name: getattr(memory.log, name).tolist() for name in RequestLog._fields}
    columns["status"] = [Status(status).name.lower() for status in columns["status"]]
    columns["verified_drafts"] = memory.requests.verified_drafts.tolist()
    columns["accepted_drafts"] = memory.requests.accepted_drafts.tolist()
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    totals: dict[str, Any] = {name: int(memory.totals[name][0]) for name in memory.totals.dtype.names or ()}
    totals["stop"] = Stop(totals["stop"]).name.lower()
    steps = None
    if run.tape is not None:
        is_async = str(case["engine"]).endswith("-async")
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
                *((step.start_us, step.end_us) if is_async else ()),
                step.held_blocks,
                [value for triple in step.verified for value in triple],
            ]
            for step in run.tape.steps
        ]
    tape = kernel_tape(run.tape)
    return Facts(steps, rows, totals, memory.gaps.histogram, free_order(run, case), tape)


def free_order(run: GroupRun, case: Case) -> list[Any]:
    """The content of the free list from head to tail, as the oracle names it."""
    memory, scalars = run.memory, run.memory.scalars[0]
    if not case["enable_prefix_caching"]:
        return [None] * int(scalars["free"])
    names = _contents(run, case)
    order: list[Any] = [None] * int(scalars["anonymous"])
    block, before = int(scalars["free_head"]), NONE
    while block != NONE:
        assert memory.pool.prev[block] == before
        assert memory.pool.references[block] == 0
        order.append(names[int(memory.pool.key[block])])
        before, block = block, int(memory.pool.next[block])
    assert before == scalars["free_tail"]
    assert len(order) == scalars["free"]
    return order


def _contents(run: GroupRun, case: Case) -> dict[int, Any]:
    layout = layout_of(case)
    num_groups = len(layout.groups)
    pool, names = run.memory.pool, {}
    ends = sorted([*pool.own_key.tolist(), *pool.shared_key.tolist(), len(pool.oldest)])

    def name(kind: str, keys: Any, firsts: Any) -> None:
        for place, key in enumerate(keys.tolist()):
            who, j = divmod(place, num_groups)
            first = int(firsts[place]) if firsts is not None else 0
            for k in range(key, next((end for end in ends if end > key), len(pool.oldest))):
                identity = (kind, who, k - key + first)
                names[k] = identity if j == 0 else (*identity, j)

    name("U", pool.own_key, None)
    name("S", pool.shared_key, pool.shared_first)
    return names


def oracle_facts_with_drafts(outcome: Outcome, case: Case) -> Facts:
    """What the oracle says, contents of finished requests included (they are never told apart by the kernel's)."""
    facts = oracle_facts(outcome, case, at_once=True)
    rows = [
        row | {"verified_drafts": r.verified_drafts, "accepted_drafts": r.accepted_drafts}
        for row, r in zip(facts.requests, outcome.requests, strict=True)
    ]
    return Facts(
        facts.steps,
        rows,
        facts.totals,
        histogram_of([g for r in outcome.requests for g in r.gaps_us]),
        outcome.free_order,
        facts.tape,
    )


def check(case: Case, requests: Sequence[Request], what: str) -> Outcome:
    """One case, all ways; returns the oracle's outcome. `what` names the case in the failure."""
    outcome = simulate(case, requests, check=False)
    difference = kernel_difference(case, requests, outcome)
    assert difference is None, f"{what}: {difference}"
    return outcome


def kernel_difference(case: Case, requests: Sequence[Request], outcome: Outcome) -> str | None:
    """Hold every mode of the kernel against the oracle's outcome: the first difference in one line, or None."""
    expected = oracle_facts_with_drafts(outcome, case)
    workload = workload_of(case, requests)
    bits = None
    for mode, (fast_forward, record_steps) in MODES.items():
        records, params = group_records_of(case)
        run = run_recorded(records, params, workload, fast_forward=fast_forward, record_steps=record_steps)
        difference = first_difference(expected, kernel_facts(run, case), steps=record_steps)
        if difference:
            return f"{mode}: {difference}"
        row = run.floats.tobytes() + run.ints.tobytes()
        if bits is not None and bits != row:
            return f"{mode}: the row differs from that of stepping"
        bits = row
    return None
