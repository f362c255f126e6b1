"""The vllm-rlt engine: recorded cases, the livelock and its fix, drawn workloads, inputs."""

import copy
import gzip
import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastsim.config import load_config
from fastsim.engines.outputs import Status, Stop
from fastsim.engines.rlt.golden import verify_case
from fastsim.engines.rlt.inputs import build_workload, group_page_keys, prompt_page_keys
from fastsim.errors import InputError
from fastsim.records import record_of
from fastsim.workload.workload import Workload
from tests.reference_rlt import simulate
from tests.rlt_config import RltConfig, StageLatency, run_configs, simulate_rlt, workload_for
from tests.rlt_tight import TIGHT_BASE, TightSpace, run_tight_cases, seedfigures_nowave, tight_case

GOLDEN = sorted((Path(__file__).parent / "golden" / "vllm-rlt").glob("*.json.gz"))
BOTH = [(False, "before"), (True, "after")]


def load(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt") as file:
        case: dict[str, Any] = json.load(file)
    return case


def accounting(config: RltConfig, fixed: bool) -> RltConfig:
    return replace(config, count_restores=fixed, blocked_checks_limit=fixed)


# --- recorded cases ---


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_recorded_case(path: Path) -> None:
    assert verify_case(load(path)) is None


def test_verify_names_the_first_difference() -> None:
    case = load(GOLDEN[0])
    changed = copy.deepcopy(case)
    changed["variants"]["fixed"]["steps"][30]["free_blocks"] += 1
    free = case["variants"]["fixed"]["steps"][30]["free_blocks"]
    assert verify_case(changed) == f"fixed step 30: free_blocks: expected {free + 1}, got {free}"
    changed = copy.deepcopy(case)
    changed["variants"]["buggy"]["summary"]["preemptions"] += 1
    assert "buggy summary: preemptions" in str(verify_case(changed))
    changed = copy.deepcopy(case)
    del changed["variants"]["buggy"]["steps"][-1]
    assert "steps" in str(verify_case(changed))


def test_verify_refuses_what_is_no_recording() -> None:
    with pytest.raises(InputError, match="expected the keys of a vllm-rlt recording"):
        verify_case({"name": "x", "variants": {"fixed": {"steps": [], "summary": {}}}})
    with pytest.raises(InputError, match=r"variants\.other"):
        verify_case({"variants": {"other": {}}})


@pytest.mark.parametrize(
    "setting", [pytest.param("NUMBA_DISABLE_JIT"), pytest.param("NUMBA_BOUNDSCHECK", marks=pytest.mark.slow)]
)
def test_recorded_cases_without_compiler_and_with_bounds_checked(setting: str) -> None:
    script = (
        "import gzip, json, sys\n"
        "from fastsim.engines.rlt.golden import verify_case\n"
        "from tests.rlt_tight import TightSpace, run_tight_cases\n"
        "for path in sys.argv[1:]:\n"
        "    assert verify_case(json.load(gzip.open(path))) is None, path\n"
        "print(run_tight_cases(TightSpace(), 7, 0, 5).totals['preemptions'].tolist())\n"
    )
    paths = [str(path) for path in GOLDEN if path.name.endswith(("00.json.gz", "nowave.json.gz"))]
    root = Path(__file__).parents[1]
    environment = os.environ | {setting: "1", "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *paths],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    compiled = run_tight_cases(TightSpace(), 7, 0, 5).totals["preemptions"].tolist()
    assert json.loads(done.stdout) == compiled


# --- the livelock ---


def test_seedfigures() -> None:
    config, workload = seedfigures_nowave()
    _, totals, extras, _ = run_configs([accounting(config, fixed) for fixed, _ in BOTH], workload)
    assert totals["completed"].tolist() == [3, 10]
    assert totals["end_us"].tolist() == [500, 124]
    assert totals["preemptions"].tolist() == [460, 11]
    assert totals["empty_steps"].tolist() == [453, 1]
    assert totals["livelock_step"].tolist() == [37, -1]
    assert extras["livelock_period"].tolist() == [1, 0]
    assert extras["skipped_steps"][0] > 400


def test_a_livelock_ends_the_run_at_its_first_repeated_step() -> None:
    config, workload = seedfigures_nowave()
    result = simulate_rlt(replace(accounting(config, False), on_livelock="stop", horizon_us=None), workload)
    assert result.stop is Stop.LIVELOCK
    assert result.totals["end_us"] == 49  # ticks 47 and 48 are the first two that are equal
    assert result.totals["empty_steps"] == 2
    assert result.totals["livelock_kind"] == 1
    endless = replace(accounting(config, False), on_livelock="step", horizon_us=None)
    assert simulate_rlt(endless, workload).totals == result.totals
    assert np.count_nonzero(result.log.status == Status.FINISHED) == 3


def test_a_livelock_is_skipped_up_to_the_next_arrival() -> None:
    config, workload = seedfigures_nowave()
    late = build_workload(
        [*workload.arrival_us, 1_000_000],
        [*workload.prompt_tokens, 1],
        [*workload.output_tokens, 1],
        [*workload.priority, 0],
    )
    stop = replace(accounting(config, False), on_livelock="stop", horizon_us=None)
    result = simulate_rlt(stop, late)
    assert result.extra["skipped_steps"] > 999_000
    stepped = simulate_rlt(replace(stop, on_livelock="step", horizon_us=1_000_100), late)
    skipped = simulate_rlt(replace(stop, on_livelock="skip", horizon_us=1_000_100), late)
    assert skipped.totals == stepped.totals
    assert result.stop is Stop.LIVELOCK  # the newcomer does not fit either
    assert result.totals["livelock_us"] > 1_000_000


SPACE = TightSpace()
NOT_ORACLES = {"count_restores", "blocked_checks_limit", "horizon_us", "max_steps", "on_livelock", "latency"}


def oracle_of(config: RltConfig, index: int, seed: int, fixed: bool, horizon: int) -> dict[str, Any]:
    drawn, workload = tight_case(SPACE, seed, index, config)
    names = [item.name for item in fields(RltConfig) if item.name not in NOT_ORACLES]
    columns = (workload.arrival_us, workload.prompt_tokens, workload.output_tokens, workload.priority)
    requests = [
        {"id": str(i), "arrival": a, "prompt": [0] * p, "max_tokens": o, "priority": priority}
        for i, (a, p, o, priority) in enumerate(zip(*(column.tolist() for column in columns), strict=True))
    ]
    return simulate(
        {name: getattr(drawn, name) for name in names},
        requests,
        count_restores=fixed,
        blocked_checks_limit=fixed,
        horizon=horizon,
    )


def test_drawn_cases_equal_the_oracle() -> None:
    runs = run_tight_cases(SPACE, 3, 0, 60)
    for index in range(60):
        for fixed, _ in BOTH:
            expected = oracle_of(TIGHT_BASE, index, 3, fixed, 500)
            totals = runs.totals[index, int(fixed)]
            summary = expected["summary"]
            assert totals["completed"] == summary["finished"]
            assert totals["preemptions"] == summary["preemptions"]
            assert totals["empty_steps"] == summary["idle"]
            assert totals["end_us"] == summary["steps"]
            assert totals["livelock_step"] == expected["totals"]["livelock_step"]


@pytest.mark.parametrize(
    ("index", "fixed", "period"),
    [
        pytest.param(524, True, 1, id="fix leaves one: the victim is restored ahead of everybody"),
        pytest.param(4382, False, 2, id="two victims take turns"),
    ],
)
def test_livelocks_the_recordings_do_not_have(index: int, fixed: bool, period: int) -> None:
    seed = 0 if index == 524 else 1
    runs = run_tight_cases(SPACE, seed, index, 1)
    totals = runs.totals[0, int(fixed)]
    assert totals["livelock_step"] > 0
    assert runs.extras[0, int(fixed)]["livelock_period"] == period
    expected = oracle_of(TIGHT_BASE, index, seed, fixed, 1500)
    assert expected["totals"]["livelock_step"] == totals["livelock_step"]
    assert expected["summary"]["finished"] == totals["completed"] < 10
    stepped = run_tight_cases(SPACE, seed, index, 1, replace(TIGHT_BASE, on_livelock="step"))
    assert runs.extras[0, int(fixed)]["skipped_steps"] > 0
    assert stepped.totals[0, int(fixed)] == totals
    rows = expected["steps"][-10:]
    assert all(row["stage"] is None for row in rows)
    for earlier, later in zip(rows, rows[period:], strict=False):
        assert (earlier["waiting"], earlier["events"]) == (later["waiting"], later["events"])


# --- drawn workloads ---


def splitmix64(state: int) -> tuple[int, int]:
    mask = 2**64 - 1
    state = (state + 0x9E3779B97F4A7C15) & mask
    return state, mix64(state)


def mix64(z: int) -> int:
    mask = 2**64 - 1
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
    return z ^ (z >> 31)


def test_draws_are_splitmix64() -> None:
    assert splitmix64(0)[1] == 0xE220A8397B1DCDAF  # the published first output for seed 0
    config, workload = tight_case(SPACE, 12, 34)
    state = mix64((mix64(12) + 34) % 2**64)

    def draw(name: str) -> int:
        nonlocal state
        low, high, step = getattr(SPACE, name)
        state, z = splitmix64(state)
        return int(low + step * ((z >> 32) * ((high - low) // step + 1) >> 32))

    n = draw("num_requests")
    for name in ("num_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens", "prefill_chunk_size"):
        assert getattr(config, name) == draw(name)
    assert workload.arrival_us.tolist() == sorted(draw("arrival_us") for _ in range(n))
    capacity = config.num_blocks // config.planes * config.block_size
    for i in range(n):
        prompt = min(draw("prompt_tokens"), capacity)
        assert workload.prompt_tokens[i] == prompt
        assert workload.output_tokens[i] == min(draw("output_tokens"), capacity - prompt + 1)
        assert workload.priority[i] == draw("priority")


def test_drawn_cases_do_not_depend_on_the_chunk() -> None:
    whole = run_tight_cases(SPACE, 5, 100, 40)
    for first, count in ((100, 15), (115, 25)):
        part = run_tight_cases(SPACE, 5, first, count)
        rows = slice(first - 100, first - 100 + count)
        np.testing.assert_array_equal(part.cases, whole.cases[rows])
        np.testing.assert_array_equal(part.totals, whole.totals[rows])
        np.testing.assert_array_equal(part.extras, whole.extras[rows])


def test_every_drawn_request_could_run_alone() -> None:
    runs = run_tight_cases(TightSpace(prompt_tokens=(1, 99, 1), output_tokens=(1, 99, 1)), 1, 0, 200)
    assert np.all(runs.totals["unservable"] == 0)
    assert np.all(runs.cases["largest_blocks"] <= runs.cases["num_blocks"])


def test_wavefront_cases_are_drawn_too() -> None:
    base = replace(TIGHT_BASE, wavefront=True, max_num_batched_tokens=4, prefill_chunk_size=4)
    runs = run_tight_cases(SPACE, 2, 0, 50, base)
    config, workload = tight_case(SPACE, 2, 17, base)
    assert simulate_rlt(replace(config, on_livelock="step"), workload).totals == runs.totals[17, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt_tokens": (0, 3, 1)}, r"tight\.prompt_tokens = \[0, 3, 1\]: expected low, high, step with 1 <= low"),
        ({"priority": (4, 3, 1)}, r"tight\.priority"),
        ({"arrival_us": (0, 3, 0)}, r"step >= 1"),
    ],
)
def test_bad_spaces(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TightSpace(**change)


# --- time ---


def test_time_is_stage_base_plus_tokens_plus_swaps() -> None:
    latency = StageLatency(
        prefill_us=100,
        prefill_us_per_token=10,
        prelude_us=3,
        recurrent_us=20,
        recurrent_us_per_token=2.5,
        coda_us=7,
    )
    config = RltConfig(num_blocks=64, block_size=1, max_loops=2, prefill_chunk_size=4, latency=latency)
    result = simulate_rlt(config, build_workload([50], [6], [3], [0]))
    first = 50 + (100 + 40) + (100 + 20) + 7
    a_token = 3 + 2 * 22 + 7
    assert result.log.first_token_us[0] == first
    assert result.log.finish_us[0] == first + 2 * a_token == result.totals["end_us"]
    assert result.totals["busy_us"] == result.totals["end_us"] - 50
    assert result.totals["prefill_tokens"] == 6
    assert result.totals["decode_tokens"] == 2
    assert result.totals["itl_max_us"] == a_token
    assert result.extra["recurrent_steps"] == 4


def test_linear_latency_spreads_a_pass_over_its_loops() -> None:
    given = ["engine.name=vllm-rlt", "engine.num_gpu_blocks=9", "engine.rlt.max_loops=4", "latency.rlt.swap_us=5"]
    linear = ["latency.b0_us=4000", "latency.b1_us_per_prefill_token=16", "latency.b2_us_per_decode_token=8"]
    record = record_of(load_config(None, [*given, *linear])).engine[0]
    assert (record["recurrent_us"], record["recurrent_us_per_token"]) == (1000.0, 2.0)
    assert (record["wavefront_us"], record["wavefront_us_per_token"]) == (1000.0, 4.0)
    assert (record["prefill_us"], record["prefill_us_per_token"], record["swap_us"]) == (4000.0, 16.0, 5.0)


def test_steps_stop_at_max_steps_and_horizon() -> None:
    config, workload = seedfigures_nowave()
    full = simulate_rlt(replace(config, on_livelock="step"), workload, record=True)
    short = simulate_rlt(replace(config, on_livelock="step", max_steps=40), workload, record=True)
    assert short.stop is Stop.MAX_STEPS
    assert short.steps == full.steps[:40]
    cut = simulate_rlt(replace(config, on_livelock="step", horizon_us=60), workload, record=True)
    assert cut.stop is Stop.HORIZON
    assert cut.steps == [step for step in full.steps if step["step"] < 60]
    stuck = replace(accounting(config, False), on_livelock="skip", horizon_us=None, max_steps=1000)
    assert simulate_rlt(stuck, workload).totals["steps"] == 1000


# --- inputs ---


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("engine.rlt.mode=mixed", 'engine.rlt.mode = "mixed", but one of "refill", "no_refill"'),
        ("engine.rlt.watermark_ratio=1.0", "engine.rlt.watermark_ratio = 1.0, but a number"),
        ("engine.rlt.max_loops=128", "engine.rlt.max_loops = 128, but an integer from 1 to 127"),
        ("engine.rlt.prefill_chunk_size=0", "engine.rlt.prefill_chunk_size = 0, but an integer from 1"),
        ("latency.rlt.coda_us=-1", "latency.rlt.coda_us = -1, but a number from 0"),
    ],
)
def test_bad_configurations(setting: str, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        load_config(None, ["engine.name=vllm-rlt", "engine.num_gpu_blocks=9", setting])
    assert message in str(refusal.value)


def test_bad_workloads() -> None:
    with pytest.raises(InputError, match=r"workload\.prompt_tokens: expected at least 1 token, found 0"):
        build_workload([0], [0], [1], [0])
    with pytest.raises(InputError, match="expected 2 values, one a request, found 1"):
        build_workload([0, 1], [1, 1], [1], [0, 0])
    with pytest.raises(InputError, match="no arrival before 0"):
        build_workload([-1], [1], [1], [0])
    with pytest.raises(InputError, match="a limit of at least the output"):
        build_workload([0], [1], [3], [0], max_tokens=[2])
    with pytest.raises(InputError, match="exit depths from 1"):
        build_workload([0], [1], [3], [0], depths=[[4, 0]])
    caching = RltConfig(block_size=4, prefix_caching=True)
    with pytest.raises(InputError, match="a workload with page keys"):
        simulate_rlt(caching, build_workload([0], [9], [1], [0]))
    with pytest.raises(InputError, match='recording steps expects "step"'):
        simulate_rlt(RltConfig(), build_workload([0], [9], [1], [0]), record=True)


def test_what_can_never_fit_is_named_and_never_runs() -> None:
    config = RltConfig(num_blocks=8, block_size=1, max_loops=4, max_num_batched_tokens=8)
    result = simulate_rlt(config, build_workload([0, 0], [2, 1], [2, 2], [0, 0]))
    assert result.log.status.tolist() == [Status.UNSERVABLE, Status.FINISHED]
    assert result.totals["unservable"] == 1
    assert result.stop is Stop.DRAINED


def test_no_requests() -> None:
    result = simulate_rlt(RltConfig(), build_workload([], [], [], []))
    assert result.stop is Stop.DRAINED
    assert result.totals["steps"] == 0


def test_shared_workloads_become_the_engines() -> None:
    shared = Workload.from_arrays(
        [5, 0, 3], [9, 9, 6], [2, 2, 2], max_tokens=[4, 0, 1], prefix_group=[1, 1, -1], prefix_tokens=[8, 5, 0]
    )
    config = RltConfig(block_size=2, num_blocks=200, prefix_caching=True, max_num_seqs=1, prefill_chunk_size=4)
    workload = workload_for(shared, config)
    assert workload.source.tolist() == [1, 2, 0]
    assert workload.max_tokens.tolist() == [2, 2, 4]
    assert np.diff(workload.key_start).tolist() == [4, 2, 4]
    keys = [workload.page_keys[a:b].tolist() for a, b in pairwise(workload.key_start)]
    assert keys[0][:2] == keys[2][:2]  # two whole pages of five shared tokens
    assert len({*keys[0], *keys[1], *keys[2]}) == 8
    assert simulate_rlt(config, workload).log.prefix_hit_tokens.tolist() == [0, 0, 4]
    with pytest.raises(InputError, match="expects an open loop"):
        workload_for(replace(shared, concurrency=2), config)


def test_page_keys_of_groups_are_those_of_prompts() -> None:
    prompts = [[7, 7, 7, 1, 1, 1, 1], [7, 7, 7, 2, 2], [7, 7, 7, 7, 3, 3, 3, 3, 3]]
    start, keys = group_page_keys(np.array([7, 5, 9]), np.array([0, 0, 0]), np.array([3, 3, 3]), 2)
    symbolic = [keys[a:b].tolist() for a, b in pairwise(start)]
    listed = prompt_page_keys(prompts, 2)
    for mine, theirs in zip(symbolic, listed, strict=True):
        assert len(mine) == len(theirs)
    flat = [pair for mine, theirs in zip(symbolic, listed, strict=True) for pair in zip(mine, theirs, strict=True)]
    for (mine, theirs), (other, their_other) in combinations(flat, 2):
        assert (mine == other) == (theirs == their_other)
