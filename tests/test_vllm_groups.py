"""The kernel for several KV cache groups and for drafts: against recordings, and the oracle on random cases.

`FASTSIM_CASES` sets how many random cases of each kind are run, `FASTSIM_SEED` the first of them.
"""

import hashlib
import os
import random
from pathlib import Path

import pytest

from tests.groups_cases import MODES, check, group_records_of, kernel_difference, kernel_facts, run_recorded
from tests.processes import run_elsewhere
from tests.reference.golden import case_paths, from_golden, load_case
from tests.reference.group_cases import FAMILIES, random_group_case
from tests.reference.vllm import simulate
from tests.vllm_cases import workload_of

FIRST_SEED = int(os.environ.get("FASTSIM_SEED", "0"))
CASES = int(os.environ.get("FASTSIM_CASES", "12"))
FOLDERS = ("vllm-0.33.0-groups", "vllm-0.33.0-spec", "vllm-0.33.0-async-groups", "vllm-0.33.0-async-spec")
KINDS = [
    pytest.param(family, policies, asynchronous, id=f"{family}{'-policies' * policies}{'-async' * asynchronous}")
    for family in FAMILIES
    for policies in (False, True)
    for asynchronous in (False, True)
]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=f"{folder}/{path.name.removesuffix('.json.gz')}")
        for folder in FOLDERS
        for path in case_paths(folder)
    ],
)
def test_kernel_equals_recording(path: Path) -> None:
    case = load_case(path)
    config, requests = from_golden(case)
    for fast_forward, record_steps in MODES.values():
        records, params = group_records_of(config)
        workload = workload_of(config, requests)
        run = run_recorded(records, params, workload, fast_forward=fast_forward, record_steps=record_steps)
        facts = kernel_facts(run, config)
        if record_steps:
            assert facts.steps is not None
            for number, (recorded, got) in enumerate(zip(case["steps"], facts.steps, strict=True)):
                assert got == recorded, f"step {number}"
        columns = ("first_scheduled_us", "first_token_us", "finish_us", "num_preemptions", "num_generated")
        columns += ("prefix_hit_tokens_first", "prefix_hit_tokens", "scheduled_tokens")
        columns += ("verified_drafts", "accepted_drafts")
        assert [[row[name] for name in columns] for row in facts.requests] == case["requests_out"]
        assert {name: facts.totals[name] for name in case["totals"]} == case["totals"]


@pytest.mark.parametrize(("family", "policies", "asynchronous"), KINDS)
def test_random_cases(family: str, policies: bool, asynchronous: bool) -> None:
    """Every kind of group, mixed block sizes, every retention, every method; both policies, and fastsim's own."""
    preemptions = drafts = 0
    for seed in range(FIRST_SEED, FIRST_SEED + CASES):
        case, requests = random_group_case(
            random.Random(seed), family=family, policies=policies, asynchronous=asynchronous
        )
        totals = check(case, requests, f"{family}, seed {seed}").totals
        preemptions += totals["preemptions"]
        drafts += totals["drafts"]
    assert preemptions > 0
    assert (drafts > 0) == (family != "groups")


def digests(count: int) -> list[str]:
    """All that random cases leave behind, in every mode, as hashes."""
    found = []
    for seed in range(count):
        case, requests = random_group_case(
            random.Random(seed), family=FAMILIES[seed % 3], policies=seed % 4 > 1, asynchronous=bool(seed % 2)
        )
        hashed = hashlib.blake2b(digest_size=8)
        for fast_forward, record_steps in MODES.values():
            records, params = group_records_of(case)
            workload = workload_of(case, requests)
            run = run_recorded(records, params, workload, fast_forward=fast_forward, record_steps=record_steps)
            facts = kernel_facts(run, case)
            hashed.update(repr((facts.steps, facts.requests, facts.totals, facts.free_order)).encode())
            hashed.update(run.floats.tobytes() + run.ints.tobytes())
        found.append(hashed.hexdigest())
    return found


def digests_elsewhere(count: int, **environment: str) -> list[str]:
    """`digests` in another process."""
    program = f"from tests.test_vllm_groups import digests; print(*digests({count}))"
    done = run_elsewhere(program, **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


def test_interpreted_equals_compiled() -> None:
    assert digests_elsewhere(6, NUMBA_DISABLE_JIT="1") == digests(6)


@pytest.mark.timeout(900)
def test_every_index_is_in_bounds() -> None:
    """Compiled code does not notice an index out of bounds; this build of it does, and raises."""
    assert digests_elsewhere(90, NUMBA_BOUNDSCHECK="1") == digests(90)


def test_a_difference_is_noticed() -> None:
    """The comparison itself can fail: another acceptance, another pool, wherever the oracle itself says so."""
    noticed = {"spec_seed": 0, "num_gpu_blocks": 0}
    for seed in range(40):
        case, requests = random_group_case(random.Random(seed), family="both")
        outcome = simulate(case, requests)
        for key in noticed:
            changed = case | {key: case[key] + 1}
            if simulate(changed, requests).steps != outcome.steps:
                assert kernel_difference(changed, requests, outcome) is not None
                noticed[key] += 1
        if min(noticed.values()):
            return
    raise AssertionError(f"no case tells: {noticed}")


UNUSED_PREFIX = """
from fastsim.config.spec import spec_from_mapping
from fastsim.simulation import simulate

chat = {"prompt": {"dist": "constant", "mean": 18}, "sessions": {"turns": 5, "gap_s": 0.0}}
config = spec_from_mapping({
    "engine": {"num_gpu_blocks": 17, "block_size": 1, "max_model_len": 17},
    "spec.method": "mtp",
    "workload": {
        "num_requests": 3,
        "seed": 1,
        "arrival": {"kind": "poisson", "rate_per_s": 500.0},
        "output": {"dist": "constant", "mean": 3},
        "classes": {"chat": chat, "batch": {"prompt": {"dist": "constant", "mean": 40}}},
    },
}).base
result = simulate(config)
assert (result.workload.group_start_tokens > result.workload.group_end_tokens).any()
print(result.totals["steps"])
"""


def test_a_prefix_group_that_nobody_uses_takes_no_room_from_others() -> None:
    """Such a group may end before it starts; uncompiled code raises where an index is out of bounds."""
    done = run_elsewhere(UNUSED_PREFIX, NUMBA_DISABLE_JIT="1")
    assert done.returncode == 0, done.stderr[-2000:]
