"""The SGLang engine: recorded cases, drawn cases against the oracle, jumps against stepping, content, inputs."""

import copy
import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastsim._jit import entry
from fastsim.engines.outputs import ITL_BINS, Gaps, Status, Stop
from fastsim.engines.sglang.content import common_tokens, page_key
from fastsim.engines.sglang.golden import case_records, case_workload, replay, verify_case
from fastsim.engines.sglang.inputs import build_workload, from_workload
from fastsim.engines.sglang.runner import run_records, simulate_records
from fastsim.engines.sglang.state import new_state
from fastsim.errors import InputError
from fastsim.workload.prefix_tree import PrefixTree
from fastsim.workload.workload import Workload
from tests.reference_sglang import simulate
from tests.reference_sglang.golden import first_difference
from tests.sglang_cases import random_case

GOLDEN = sorted((Path(__file__).parent / "golden" / "sglang-0.5.23").glob("*.json.gz"))


def load(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt") as file:
        case: dict[str, Any] = json.load(file)
    return case


def named(name: str) -> dict[str, Any]:
    return load(next(path for path in GOLDEN if path.name.startswith(name)))


# --- recorded cases ---


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_recorded_case(path: Path) -> None:
    assert verify_case(load(path)) is None


def test_verify_names_the_first_difference() -> None:
    case = named("g03")
    for column, name in ((6, "new_token_ratio"), (7, "free tokens after scheduling"), (12, "waiting requests")):
        changed = copy.deepcopy(case)
        right = changed["steps"][40][column]
        changed["steps"][40][column] = right + 1
        assert verify_case(changed) == f"step 40: {name}: expected {right + 1}, got {right}"
    changed = copy.deepcopy(case)
    changed["requests_out"][7][5] += 1
    assert "request 7: output tokens" in str(verify_case(changed))
    changed = copy.deepcopy(case)
    changed["totals"]["completed"] += 1
    assert "totals 0: completed" in str(verify_case(changed))
    changed = copy.deepcopy(case)
    del changed["steps"][-1]
    assert "of them, got" in str(verify_case(changed))


def test_verify_refuses_what_is_no_recording() -> None:
    with pytest.raises(InputError, match="expected the keys of a SGLang recording"):
        verify_case({"name": "x", "config": {}, "steps": []})
    case = named("p11")
    case["config"]["radix_eviction_policy"] = "lfu"
    with pytest.raises(InputError, match="radix_eviction_policy = 'lfu', but 'lru' was expected"):
        verify_case(case)
    case["config"] |= {"radix_eviction_policy": "lru", "dp_size": 2}
    with pytest.raises(InputError, match="config has 'dp_size'"):
        verify_case(case)


@pytest.mark.parametrize(
    "setting", [pytest.param("NUMBA_DISABLE_JIT"), pytest.param("NUMBA_BOUNDSCHECK", marks=pytest.mark.slow)]
)
def test_cases_without_compiler_and_with_bounds_checked(setting: str) -> None:
    script = (
        "import gzip, json, sys\n"
        "from fastsim.engines.sglang.golden import case_records, case_workload, verify_case\n"
        "from fastsim.engines.sglang.runner import simulate_records\n"
        "from tests.sglang_cases import random_case\n"
        "for path in sys.argv[2:]:\n"
        "    assert verify_case(json.load(gzip.open(path))) is None, path\n"
        "for seed in range(int(sys.argv[1])):\n"
        "    case = random_case(seed)\n"
        "    result = simulate_records(case_records(case), case_workload(case))\n"
        "    print(result.totals.tolist(), result.own.tolist())\n"
    )
    checked = setting == "NUMBA_BOUNDSCHECK"
    paths = GOLDEN if checked else [path for path in GOLDEN if path.name[:3] in ("p11", "p14", "p22", "o01")]
    seeds = 600 if checked else 12
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(seeds), *map(str, paths)],
        env=os.environ | {setting: "1", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    compiled = []
    for seed in range(seeds):
        case = random_case(seed)
        result = simulate_records(case_records(case), case_workload(case))
        compiled.append(f"{result.totals.tolist()} {result.own.tolist()}")
    assert done.stdout.splitlines() == compiled


# --- drawn cases ---


def check_drawn_cases(seeds: range) -> None:
    """Kernel and oracle take the same decisions, pass by pass, and a jump leaves what stepping leaves."""
    for seed in seeds:
        case = random_case(seed)
        assert first_difference(simulate(case["config"], case["requests"]), replay(case)) is None, seed
        workload = case_workload(case)
        jumped = simulate_records(case_records(case), workload)
        stepped = simulate_records(case_records(case, fast_forward=False), workload)
        assert jumped.totals == stepped.totals, seed
        assert jumped.own == stepped.own
        np.testing.assert_array_equal(jumped.itl_histogram, stepped.itl_histogram)
        for mine, theirs in zip(jumped.log, stepped.log, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_drawn_cases() -> None:
    check_drawn_cases(range(500))


def test_drawn_cases_with_prefixes_that_extend_each_other() -> None:
    """Groups as a tree: what becomes of every request is what the oracle says."""
    hits = 0
    for seed in range(80):
        case = random_case(10_000 + seed)
        case["config"]["disable_radix_cache"] = False
        rng = np.random.default_rng(seed)
        longest = max(row[1] for row in case["requests"])
        tree = [(-1, 0), (-1, 0)]
        for _ in range(6):
            parent = int(rng.integers(0, len(tree)))
            tree.append((parent, tree[parent][1] + int(rng.integers(1, 2 + longest // 3))))
        for row in case["requests"]:
            row[4] = int(rng.integers(-1, len(tree)))
            row[5] = int(rng.integers(0, longest + 1)) if row[4] >= 0 else 0
        expected = simulate(case["config"], case["requests"], tree)
        plain = case_workload(case)
        parent, start = np.array([*tree, (-1, 0)]).T.copy()
        workload = plain._replace(group_parent=parent, group_start=start)
        result = simulate_records(case_records(case), workload)
        log, requests = result.log, result.requests
        count = workload.num_requests
        columns = (log.first_scheduled_us, log.first_token_us, log.finish_us, requests.retractions)
        columns += (requests.preemptions, requests.generated, log.prefix_hit_tokens_first, log.prefix_hit_tokens)
        got = np.array([column[:count] for column in columns]).T.tolist()
        assert got == [row[:8] for row in expected["requests_out"]], seed
        assert result.totals["steps"] == expected["totals"]["steps"]
        hits += int(log.prefix_hit_tokens.sum())
    assert hits > 1000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_drawn_cases() -> None:
    check_drawn_cases(range(500, 5500))


def test_drawn_cases_meet_every_end() -> None:
    """The draws are worth comparing: retractions, preemptions, aborts and every way to stop occur in them."""
    stops = set()
    counts = np.zeros(3, np.int64)
    for seed in range(600):
        case = random_case(seed)
        result = simulate_records(case_records(case), case_workload(case))
        stops.add(result.stop)
        counts += list(result.own.tolist())
    assert stops == set(Stop)
    assert (counts > [100, 10, 0]).all()


# --- what the scheduler does under sustained load ---


@pytest.mark.parametrize(
    ("change", "completed", "retractions"),
    [
        ({}, 250, 246),
        ({"disable_overlap_schedule": False}, 252, 246),
        ({"schedule_conservativeness": 0.0}, 197, 68),
        ({"max_running_requests": 32}, 162, 0),
        ({"enable_mixed_chunk": True}, 264, 243),
        ({"page_size": 16}, 250, 243),
        ({"disable_radix_cache": False}, 250, 246),
    ],
)
def test_sustained_load(change: dict[str, Any], completed: int, retractions: int) -> None:
    case = named("l01")
    records = np.concatenate([case_records(case, fast_forward=jumps, **change) for jumps in (True, False)])
    _, totals, own, _ = run_records(records, case_workload(case))
    assert totals["completed"].tolist() == [completed] * 2
    assert own["retractions"].tolist() == [retractions] * 2
    assert totals[0] == totals[1]


def test_ignore_eos_hides_retractions() -> None:
    case = named("l01")
    workload = case_workload(case)._replace(ignore_eos=np.ones(300, np.int64))
    records = np.concatenate([case_records(case), case_records(case, disable_radix_cache=False)])
    _, totals, own, _ = run_records(records, workload)
    assert totals["completed"].tolist() == [165, 162]
    assert own["retractions"].tolist() == [0, 0]


# --- content of the radix tree ---


def test_content_of_prefixes_that_extend_each_other() -> None:
    """Common tokens and page keys say what lists of tokens say."""
    rng = np.random.default_rng(5)
    parent, start = np.array([-1, 0, 0, 2, -1]), np.array([0, 4, 7, 9, 0])
    n = 40
    group = rng.integers(-1, 5, n)
    prompt = rng.integers(10, 24, n)
    shared = np.where(group >= 0, rng.integers(10, 24, n), 0)
    output = rng.integers(1, 4, n)
    workload = build_workload(
        np.zeros(n), prompt, output, output, prefix_group=group, prefix_tokens=shared,
        group_parent=parent, group_start=start,
    )  # fmt: skip
    state = new_state(workload, gaps=Gaps(np.zeros(ITL_BINS, np.int64)))
    state.req.stop_position[:] = np.where(rng.random(n) < 0.5, prompt + output - 1, -1)

    def token(i: int, position: int) -> Any:
        if position == state.req.stop_position[i]:
            return "stop"
        if position >= workload.shared[i]:
            return ("request", i, position)
        g = group[i]
        while start[g] > position:
            g = parent[g]
        return ("group", g, position)

    lists = [[token(i, p) for p in range(prompt[i] + output[i])] for i in range(n)]
    keys: dict[Any, Any] = {}
    for i in range(n):
        for j in range(n):
            limit = min(len(lists[i]), len(lists[j]))
            common = next((p for p in range(limit) if lists[i][p] != lists[j][p]), limit)
            assert common_of(state, i, j, limit) == common
        for size in (1, 4):
            for end in range(size, len(lists[i]) + 1, size):
                before, page = tuple(lists[i][: end - size]), tuple(lists[i][end - size : end])
                if end >= 2:
                    key = (before, size, page_key_of(state, i, end))
                    assert keys.setdefault(key, page) == page
                    assert keys.setdefault((before, size, page), key) == key


@entry
def common_of(state: Any, i: int, j: int, limit: int) -> int:
    return common_tokens(state, i, j, limit)


@entry
def page_key_of(state: Any, i: int, end: int) -> int:
    return page_key(state, i, end)


# --- inputs ---


@pytest.mark.parametrize("change", [{"page_size": 0}, {"schedule_policy": "hrrn"}, {"prefill_max_requests": 0}])
def test_recordings_of_impossible_configurations(change: dict[str, Any]) -> None:
    case = named("g03")
    case["config"] |= change
    with pytest.raises(InputError, match=f"{next(iter(change))}"):
        verify_case(case)


def records_with(**config: Any) -> Any:
    return case_records({"config": config})


def test_prompts_that_are_too_long_are_refused() -> None:
    workload = build_workload([0, 5], [94, 93], [2, 2], [2, 2])
    result = simulate_records(records_with(max_total_tokens=100), workload)
    assert result.log.status.tolist() == [Status.UNSERVABLE, Status.FINISHED]
    assert result.stop is Stop.DRAINED


def test_no_requests() -> None:
    result = simulate_records(records_with(max_total_tokens=100), build_workload([], [], [], []))
    assert result.stop is Stop.DRAINED
    assert result.totals["steps"] == 0


def test_shared_workloads_become_the_engines() -> None:
    tree = PrefixTree(np.array([-1, 0], np.int32), np.array([0, 40], np.int32))
    shared = Workload.from_arrays(
        [0, 10**6, 2 * 10**6], [90, 90, 50], [2, 2, 2], max_tokens=[0, 9, 0],
        prefix_group=[1, 1, 0], prefix_tokens=[80, 60, 50], groups=tree,
    )  # fmt: skip
    workload = from_workload(shared)
    assert workload.max_new_tokens.tolist() == [2, 9, 2]
    result = simulate_records(records_with(max_total_tokens=1000), workload)
    assert result.log.prefix_hit_tokens.tolist() == [0, 60, 40]
    with pytest.raises(InputError, match=r"workload\.concurrency = 2, but an open loop"):
        from_workload(replace(shared, concurrency=2))


def test_a_tree_that_outgrows_its_room_is_run_anew() -> None:
    case = named("c04")
    records, workload = case_records(case), case_workload(case)
    roomy = simulate_records(records, workload)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastsim.engines.sglang.runner.tree_nodes", lambda *_: 3)
        tight = simulate_records(records, workload)
        _, totals, _, _ = run_records(np.repeat(records, 2), workload)
    assert tight.totals == roomy.totals
    assert (totals == roomy.totals).all()
