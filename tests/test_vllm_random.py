"""The compiled vLLM kernel against the plain-Python oracle, on random cases that go where schedulers go wrong.

Every case is run three ways (stepping, fast-forward, fast-forward without a record), and each must leave the oracle's
steps, requests, totals, gaps and free list. `FASTSIM_CASES` sets how many cases of each family are run, `FASTSIM_SEED`
the first of them.
"""

import os
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fastsim.engines.outputs import RequestLog
from fastsim.engines.vllm import memory, runtime
from fastsim.simulation import simulate_chunk
from fastsim.workload.prefix_tree import PrefixTree
from tests.reference.blocks import Identity
from tests.reference.cases import random_case
from tests.reference.requests import Request, RequestState
from tests.reference.vllm import simulate
from tests.vllm_cases import Case, check, chunk_of, kernel_difference, records_of, run_recorded, workload_of

CHUNK = 250
CASES = {"vllm": 2000, "policies": 1000, "async": 500, "async-policies": 500}
"""Cases in the ordinary run, by family: vLLM's own knobs or every policy, on the synchronous or asynchronous engine."""
FIRST_SEED = int(os.environ.get("FASTSIM_SEED", "0"))
LAST_SEEDS = {family: FIRST_SEED + int(os.environ.get("FASTSIM_CASES", cases)) for family, cases in CASES.items()}
QUICK = {"vllm": 1000, "policies": 750, "async": 250, "async-policies": 500}
"""Of those as many in every run, and all of them with the slow tests; where `FASTSIM_CASES` says how many, all."""


def chunks() -> list[Any]:
    """Family and first seed of every chunk, those beyond the quick ones marked as slow."""
    chosen = "FASTSIM_CASES" in os.environ
    return [
        pytest.param(family, first, marks=() if chosen or first < FIRST_SEED + QUICK[family] else pytest.mark.slow)
        for family, last in LAST_SEEDS.items()
        for first in range(FIRST_SEED, last, CHUNK)
    ]


# --- All knobs together -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "first"), chunks())
def test_random_cases(family: str, first: int) -> None:
    """Both policies, chunked or not, cached or not, open and closed loops, horizons; policies in half of the cases."""
    seeds = range(first, min(first + CHUNK, LAST_SEEDS[family]))
    preemptions = salvaged = recomputed = 0
    for seed in seeds:
        case, requests = random_case(random.Random(seed), family=family)
        totals = check(case, requests, f"family {family}, seed {seed}").totals
        preemptions += totals["preemptions"]
        salvaged += totals["salvaged_tokens"]
        recomputed += totals["recomputed_tokens"]
    if len(seeds) == CHUNK:  # the cases are tight enough to mean something
        assert min(preemptions, salvaged, recomputed) > CHUNK


@pytest.mark.parametrize("caching", [False, True])
def test_prompts_that_the_model_has_no_room_for(caching: bool) -> None:
    """Refused before the first step whatever `unservable` says, and whatever prefixes, clients and policies do."""
    refused = {"spin": 0, "reject": 0}
    for seed in range(100):
        rng = random.Random(seed)
        case, requests = random_case(rng, family=("policies", "async-policies")[seed % 2], prefix_caching=caching)
        longest = max(r.prompt_tokens for r in requests)
        case["max_model_len"] = rng.randint(max(1, longest // 3), longest)
        outcome = check(case, requests, f"caching {caching}, seed {seed}")
        too_long = [r.prompt_tokens >= case["max_model_len"] for r in requests]
        assert all(r.status == "unservable" for r, long in zip(outcome.requests, too_long, strict=True) if long), seed
        refused[case["unservable"]] += sum(too_long)
    assert min(refused.values()) > 50, refused


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(700554, id="requests come during a jump while the cap is reached"),
        pytest.param(901628, id="admitted and preempted in one step, with hits beyond all it ever computed"),
    ],
)
def test_cases_that_once_differed(seed: int) -> None:
    for family in ("policies", "async-policies"):
        case, requests = random_case(random.Random(seed), family=family)
        check(case, requests, f"family {family}, seed {seed}")


def test_long_outputs() -> None:
    """Decode stretches of many blocks, with arrivals inside them."""
    for seed in range(FIRST_SEED, FIRST_SEED + 30):
        family = ("vllm", "async")[seed % 2]
        case, requests = random_case(
            random.Random(seed), family=family, max_requests=40, max_output=600, max_steps=5000
        )
        check(case, requests, f"long outputs, family {family}, seed {seed}")


def churn(rng: random.Random) -> tuple[Case, list[Request]]:
    """Urgent requests push others off their slots again and again while blocks are many.

    A request's content then lies in the free list in pieces, some of it twice.
    """
    requests = [
        Request(1000 * rng.randint(0, 40), rng.randint(1, 12), rng.randint(5, 40), rng.randint(-3, 3))
        for _ in range(rng.randint(6, 25))
    ]
    if rng.random() < 0.3:
        requests = [replace(r, prefix_group=rng.randrange(2), prefix_tokens=rng.randint(0, 12)) for r in requests]
    block_size = rng.choice((1, 1, 1, 2, 3))
    largest = max((r.prompt_tokens + r.output_tokens) // block_size + 1 for r in requests)
    return {
        "engine": rng.choice(("vllm-0.33.0", "vllm-0.16.0", "vllm-0.33.0-async")),
        "block_size": block_size,
        "num_gpu_blocks": largest * rng.choice((1, 2, 3, 6)) + rng.randint(2, 7),
        "enable_prefix_caching": True,
        "max_num_seqs": rng.randint(1, 4),
        "max_num_batched_tokens": rng.choice((4, 8, 64)),
        "policy": "priority",
        "slot_preempt": True,
        "slot_preempt_preflight": rng.random() < 0.5,
        "preemption_mode": rng.choice(("recompute", "recompute", "swap", "restart")),
        "swap_space_blocks": rng.choice((3, 20, 400)),
        "bypass": rng.random() < 0.3,
        "scheduler_reserve_full_isl": rng.random() < 0.5,
        "b0_us": 1000.0,
        "b1_us_per_prefill_token": rng.choice((0.0, 1.0)),
        "b2_us_per_decode_token": 1.0,
        "max_steps": 1500,
    }, requests


def test_churn() -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + 150):
        case, requests = churn(random.Random(seed))
        check(case, requests, f"churn, seed {seed}")


def test_the_log_of_gaps_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under restart a run that does not fit in the log starts again, alone or in the middle of a chunk."""
    monkeypatch.setattr(memory, "GAP_CAPACITY", 0)
    grown = []
    larger = memory.with_larger_gap_log
    monkeypatch.setattr(runtime, "with_larger_gap_log", lambda old: grown.append(1) or larger(old))
    for seed in range(FIRST_SEED, FIRST_SEED + 20):
        case, requests = random_case(random.Random(seed), family=("policies", "async-policies")[seed % 2])
        case["preemption_mode"] = "restart"
        check(case, requests, f"gaps, seed {seed}")
        if seed % 5 == 0:
            alone = records_of(case)
            chunk = chunk_of(np.repeat(alone.engine, 3), np.repeat(alone.params, 3))
            chunk.engine["num_gpu_blocks"][1] += 40
            rows = simulate_chunk(workload_of(case, requests), chunk)
            again = simulate_chunk(workload_of(case, requests), alone)
            assert np.array_equal(rows.floats[[0, 2]], np.repeat(again.floats, 2, axis=0), equal_nan=True)
            assert np.array_equal(rows.ints[[0, 2]], np.repeat(again.ints, 2, axis=0))
    assert len(grown) > 20


def random_tree(rng: random.Random) -> PrefixTree:
    """Prefix groups that extend one another, here and there in the middle of a block."""
    parent, start = [-1], [0]
    for group in range(1, rng.randint(2, 6)):
        parent.append(rng.randrange(-1, group))
        start.append(start[parent[-1]] + rng.randint(1, 15) if parent[-1] >= 0 else 0)
    return PrefixTree(np.array(parent, np.int32), np.array(start, np.int32))


def test_prefix_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block's content is that of the group which owns its last token."""
    salvaged = 0
    for seed in range(FIRST_SEED, FIRST_SEED + 150):
        rng = random.Random(seed)
        case, requests = random_case(rng, family=("policies", "async-policies")[seed % 2], prefix_caching=True)
        tree = random_tree(rng)
        requests = [
            replace(r, prefix_group=rng.randrange(-1, tree.num_groups), prefix_tokens=rng.randint(0, 60))
            for r in requests
        ]
        requests = [replace(r, prefix_tokens=0) if r.prefix_group < 0 else r for r in requests]

        def identity(
            request: RequestState, block: int, block_size: int, lookahead: int, tree: PrefixTree = tree
        ) -> Identity:
            end = (block + 1) * block_size + lookahead
            if end > request.shared_tokens:
                return ("U", request.index, block)
            group = request.spec.prefix_group
            while tree.start_tokens[group] >= end:
                group = int(tree.parent[group])
            return ("S", group, block)

        monkeypatch.setattr(RequestState, "identity", identity)
        outcome = simulate(case, requests, check=False)
        difference = kernel_difference(case, requests, outcome, tree)
        assert difference is None, f"seed {seed}: {difference}"
        salvaged += sum(r.prefix_hit_tokens for r in outcome.requests)
    assert salvaged > 1000


# --- Chunks -----------------------------------------------------------------------------------------------------------


def test_a_chunk_equals_its_configurations_one_at_a_time() -> None:
    """Configurations of one call share memory, and leave no trace in it."""
    for seed in range(FIRST_SEED, FIRST_SEED + 160, 8):
        cases = [random_case(random.Random(seed + k), family=family) for k, family in enumerate([*CASES, *CASES])]
        case, requests = cases[0]
        workload = workload_of(case, requests)
        records = [records_of(case) for case, _ in cases]
        chunk = chunk_of(
            np.concatenate([one.engine for one in records]), np.concatenate([one.params for one in records])
        )
        for fast_forward in (False, True):
            rows = simulate_chunk(workload, chunk, fast_forward=fast_forward)
            for k, one in enumerate(records):
                alone = run_recorded(one, workload, fast_forward=fast_forward, record_steps=False)
                np.testing.assert_array_equal(rows.floats[k], alone.rows.floats[0], f"seed {seed}, configuration {k}")
                np.testing.assert_array_equal(rows.ints[k], alone.rows.ints[0], f"seed {seed}, configuration {k}")


# --- The comparison can fail ------------------------------------------------------------------------------------------


def test_a_difference_is_noticed() -> None:
    """Every fact, changed by one, is reported by name."""
    case, requests = random_case(random.Random(0), family="vllm", prefix_caching=True)
    outcome = simulate(case, requests)
    assert kernel_difference(case, requests, outcome) is None
    assert outcome.steps is not None
    for column in (0, 4, 5, 6, 7):
        outcome.steps[-1][column] += 1
        assert (kernel_difference(case, requests, outcome) or "").startswith(
            f"stepping: step {len(outcome.steps) - 1}: "
        )
        outcome.steps[-1][column] -= 1
    for name in set(outcome.totals) - {"stop"}:
        outcome.totals[name] += 1
        assert (kernel_difference(case, requests, outcome) or "").startswith(f"stepping: total {name}: ")
        outcome.totals[name] -= 1
    for name in set(RequestLog._fields) - {"status"}:
        changed = replace(outcome.requests[-1], **{name: getattr(outcome.requests[-1], name) + 1})
        difference = kernel_difference(case, requests, replace(outcome, requests=[*outcome.requests[:-1], changed]))
        assert (difference or "").startswith(f"stepping: request {len(requests) - 1}, {name}: ")
    last = outcome.requests[0].gaps_us.pop()
    assert (kernel_difference(case, requests, outcome) or "").startswith("stepping: histogram")
    outcome.requests[0].gaps_us.append(last)
    outcome.free_order[0], outcome.free_order[-1] = ("S", 9, 9), None
    assert (kernel_difference(case, requests, outcome) or "").startswith("stepping: free list: ")
