"""The `blis` engine against recordings of BLIS and against the plain-Python oracle."""

import copy
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fastsim.config import load_config
from fastsim.engines.blis.codes import PreemptionPolicy, Scheduler
from fastsim.engines.blis.golden import case_records, case_workload, verify_case
from fastsim.engines.blis.inputs import build_workload
from fastsim.engines.blis.kernel import run_many
from fastsim.engines.blis.runner import run_records, simulate_records
from fastsim.engines.outputs import Stop
from fastsim.errors import InputError
from tests.blis_cases import KINDS, random_case
from tests.blis_compare import differences, run_kernel, run_oracle
from tests.reference_blis.requests import SLO_PRIORITY

GOLDEN = Path(__file__).parent / "golden" / "blis"
CASES = sorted(path.name.removesuffix(".json.gz") for path in GOLDEN.glob("*.json.gz"))
SUSTAINED = "w1_seed7_sustained300_at10__c00_base"


def load(name):
    with gzip.open(GOLDEN / f"{name}.json.gz", "rt") as file:
        return json.load(file)


def default_records(**config):
    """BLIS's defaults, but for some keys in the words of the recordings."""
    beta, alpha = [5752.71, 17.25, 6.0], [232.46, 1.75, 3357.44]
    return case_records({"config": {"total_kv_blocks": 7463} | config, "latency": {"alpha": alpha, "beta": beta}})


def test_all_recordings_are_identical():
    assert len(CASES) == 117
    assert {name: verify_case(load(name)) for name in CASES} == dict.fromkeys(CASES)


def test_verify_names_the_first_difference():
    case = load("w9_edge__c00_base")
    assert verify_case(case) is None
    changed = copy.deepcopy(case)
    changed["requests_out"]["e2e_us"][3] += 1
    assert verify_case(changed) == "request 3: e2e_us: expected 19159425, got 19159424"
    changed = copy.deepcopy(case)
    changed["aggregate"]["ttft_p99_ms"] *= 1 + 1e-8
    assert verify_case(changed).startswith("aggregate.ttft_p99_ms: expected ")
    changed = copy.deepcopy(case)
    changed["steps"] += 1
    assert verify_case(changed) == "steps: expected 2004, got 2003"


@pytest.mark.parametrize("fast_forward", [True, False], ids=["jumping", "stepping"])
@pytest.mark.parametrize("kind", KINDS)
def test_random_cases_equal_the_oracle(kind, fast_forward):
    """150 cases a kind and a mode, 2,100 in all; every field of the logs, the totals and BLIS's aggregates."""
    for seed in range(150):
        case = random_case(kind, seed + (0 if fast_forward else 150))
        found = differences(case, run_oracle(case), run_kernel(case, fast_forward=fast_forward))
        assert not found, (seed, found[:5])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_more_random_cases(kind):
    for seed in range(1000, 4000):
        case = random_case(kind, seed)
        run = run_oracle(case)
        for fast_forward in (True, False):
            found = differences(case, run, run_kernel(case, fast_forward=fast_forward))
            assert not found, (seed, found[:5])


def same(left, right):
    """Whether two results are the same, bit for bit."""
    arrays = zip((*left.log, *left.blis), (*right.log, *right.blis), strict=True)
    records = (left.totals.tobytes() == right.totals.tobytes(), left.aggregate.tobytes() == right.aggregate.tobytes())
    return all(np.array_equal(a, b) for a, b in arrays) and all(records)


@pytest.mark.parametrize("preemption", [policy.name.lower() for policy in PreemptionPolicy])
@pytest.mark.parametrize("scheduler", [scheduler.name.lower().replace("_", "-") for scheduler in Scheduler])
@pytest.mark.parametrize("leak", [False, True])
def test_jumping_equals_stepping_at_full_size(scheduler, preemption, leak):
    """Workloads of the recordings, under every policy: too long for the oracle, not for stepping."""
    for name in (SUSTAINED, "w7_shared_prefix__c00_base", "w8_slo_classes__c00_base", "w9_edge__c00_base"):
        case = load(name)
        for blocks, threshold in ((7463, 0), (1500, 64)):
            changes = {
                "scheduler": scheduler,
                "preemption_policy": preemption,
                "rollback_leak": leak,
                "total_kv_blocks": blocks,
                "long_prefill_token_threshold": threshold,
            }
            workload = case_workload(case)
            jumped = simulate_records(case_records(case, **changes), workload)
            stepped = simulate_records(case_records(case, **changes, fast_forward=False), workload)
            assert same(jumped, stepped), (name, changes)
            assert np.array_equal(jumped.itl_histogram, stepped.itl_histogram)


def test_histogram_holds_the_gaps_on_the_clock():
    result = run_kernel(random_case("starved", 7))
    assert result.itl_histogram.sum() == result.totals["itl_count"] > 0
    assert result.itl_histogram.min() >= 0


# (requests, max_num_seqs, leak, horizon, completed, evictions, requests per second), as BLIS printed them: with the
# leak at a393b435 (March 2026), without it at f90a1e3a
DISCUSSION = [
    (300, 256, True, 120_000_000, 0, 291, 0),
    (300, 256, False, 120_000_000, 175, 3613, 1.458385),
    (300, 256, False, None, 300, 4865, 1.500886),
    (50, 256, True, 120_000_000, 0, 207, 0),
    (50, 256, False, 120_000_000, 50, 110, 1.199068),
    (50, 32, True, 120_000_000, 50, 0, 1.151373),
    (50, 32, False, 120_000_000, 50, 0, 1.151373),
    (300, 32, True, 120_000_000, 162, 0, 1.350026),
    (300, 32, False, 120_000_000, 162, 0, 1.350026),
]


@pytest.mark.parametrize(("count", "seqs", "leak", "horizon_us", "completed", "evictions", "rate"), DISCUSSION)
def test_rows_of_the_discussion(count, seqs, leak, horizon_us, completed, evictions, rate):
    case = load(SUSTAINED)
    case["requests"] = case["requests"][:count]
    config = case_records(case, max_num_seqs=seqs, rollback_leak=leak, horizon_us=horizon_us)
    result = simulate_records(config, case_workload(case))
    assert result.totals["completed"] == completed
    assert result.totals["preemptions"] == evictions
    assert result.aggregate["responses_per_sec"] == pytest.approx(rate, abs=5e-7)


def test_the_leak_is_a_livelock():
    """Without a horizon the run ends where BLIS would spin for ever: all blocks lost, nothing runs, nothing fits."""
    case = load(SUSTAINED)
    result = simulate_records(case_records(case, rollback_leak=True, horizon_us=None), case_workload(case))
    assert result.stop == Stop.LIVELOCK
    assert result.totals["completed"] == 0
    assert result.totals["livelock_step"] == result.totals["steps"] - 1
    spinning = simulate_records(case_records(case, rollback_leak=True), case_workload(case))
    assert spinning.stop == Stop.HORIZON
    assert spinning.totals["livelock_step"] == result.totals["livelock_step"]


def test_nothing_completes_after_a_livelock():
    """What is taken for a livelock is one: 100 times as many steps change nothing."""
    found = 0
    for kind, seed in ((kind, seed) for kind in ("endless", "leak") for seed in range(400)):
        case = random_case(kind, seed)
        case["config"] |= {"horizon_us": None, "max_steps": 2_000}
        stopped = run_kernel(case)
        if stopped.stop != Stop.LIVELOCK:
            continue
        found += 1
        case["config"] |= {"horizon_us": 10**9, "max_steps": 100 * int(stopped.totals["steps"])}
        spinning = run_kernel(case, fast_forward=False)
        assert spinning.stop == Stop.MAX_STEPS, (kind, seed)
        assert spinning.totals["completed"] == stopped.totals["completed"]
        assert spinning.totals["livelock_step"] == stopped.totals["livelock_step"] == stopped.totals["steps"] - 1
    assert found >= 20


@pytest.mark.parametrize(("prompt", "completes"), [(100, False), (96, True)])
def test_a_request_that_never_fits_is_a_livelock(prompt, completes):
    """10 blocks of 16. A prompt that ends with a block is cached as a whole in its second life: then it takes none."""
    workload = build_workload([0], [prompt], [100])
    result = simulate_records(default_records(total_kv_blocks=10, horizon_us=None), workload)
    assert result.stop == (Stop.DRAINED if completes else Stop.LIVELOCK)
    assert result.totals["preemptions"] == (1 if completes else 3)
    assert result.totals["completed"] == completes


def test_a_batch_equals_single_runs():
    """Buffers are reset and enlarged on the way: a batch of very different configurations leaves no trace."""
    case = load("w7_shared_prefix__c00_base")
    workload = case_workload(case)
    configs = [
        case_records(case, **changes)
        for changes in (
            {},
            {"block_size": 8, "total_kv_blocks": 600, "kv_cpu_blocks": 50},
            {"max_num_seqs": 8},
            {"total_kv_blocks": 400, "long_prefill_token_threshold": 64},
            {"max_num_batched_tokens": 20},
            {"total_kv_blocks": 400, "rollback_leak": True},
            {},
        )
    ]
    batch = run_records(np.concatenate(configs), workload)
    n = len(workload.arrival_us)
    for k, config in enumerate(configs):
        single = simulate_records(config, workload)
        row = slice(k * n, (k + 1) * n)
        for name in single.log._fields:
            assert np.array_equal(getattr(batch.log, name)[row], getattr(single.log, name)), (k, name)
        for name in single.blis._fields:
            assert np.array_equal(getattr(batch.blis, name)[row], getattr(single.blis, name)), (k, name)
        assert batch.totals[k].tobytes() == single.totals.tobytes()
        assert batch.aggregate[k].tobytes() == single.aggregate.tobytes()
        assert np.array_equal(batch.itl_histogram[k], single.itl_histogram)
    overwritten = run_records(np.concatenate(configs), workload, keep_logs=False)
    assert len(overwritten.log.finish_us) == n
    assert np.array_equal(overwritten.log.finish_us, batch.log.finish_us[-n:])


def test_one_compilation_serves_all():
    simulate_records(default_records(), build_workload([0], [5], [5]))
    run_records(
        np.concatenate([default_records(), default_records(kv_cpu_blocks=4)]), build_workload(np.array([3]), [5], (5,))
    )
    if hasattr(run_many, "signatures"):
        assert len(run_many.signatures) == 1


def test_no_requests_and_no_configurations():
    empty = build_workload([], [], [])
    result = simulate_records(default_records(), empty)
    assert result.stop == Stop.DRAINED
    assert result.totals["steps"] == 0
    assert result.aggregate["cache_hit_rate"] == 0
    assert len(run_records(default_records()[:0], empty).totals) == 0


@pytest.mark.parametrize(
    ("second_prompt", "end_us", "kv_block_us"),
    [
        (10, 10 + 10 + 10 * 90, 10 * 5 + 910 * 10),  # the second step goes on when the first is over
        (1, 10 + 5 * 90, 10 * 5 + 450 * 1),  # it is over before the first
    ],
)
def test_overlapping_steps_count_no_moment_twice(second_prompt, end_us, kv_block_us):
    """A request that is queued while the last step executes starts one of its own: at 10, within 0 .. 460."""
    config = {"total_kv_blocks": 20, "block_size": 1, "max_num_seqs": 4, "max_num_batched_tokens": 100}
    config |= {"long_prefill_token_threshold": 0, "preemption_policy": "fcfs", "scheduler": "fcfs"}
    config |= {"horizon_us": None, "cpu_kv_blocks": 0}
    rows = [[0, 5, 1, "", "", 0, 0], [10, second_prompt, 1, "", "", 0, 0]]
    case = {"config": config, "latency": {"alpha": [0, 0, 0], "beta": [10.0, 90.0, 0.0]}, "requests": rows}
    totals = run_kernel(case).totals
    assert (totals["steps"], totals["end_us"]) == (2, end_us)
    assert (totals["busy_us"], totals["running_us"], totals["kv_block_us"]) == (end_us, end_us, kv_block_us)


def test_nothing_lasts_longer_than_the_run():
    """Whatever overlaps, and whatever a horizon cuts: no share of the run's time exceeds 1."""
    for kind in KINDS:
        for seed in range(40):
            case = random_case(kind, seed)
            totals = run_kernel(case).totals
            span_us = totals["end_us"] - max(totals["first_arrival_us"], 0)
            assert totals["busy_us"] <= span_us, (kind, seed)
            assert totals["kv_block_us"] <= span_us * case["config"]["total_kv_blocks"], (kind, seed)
            assert totals["running_us"] <= span_us * case["config"]["max_num_seqs"], (kind, seed)


def test_priorities_are_those_of_the_oracle():
    workload = build_workload([0] * 7, [1] * 7, [1] * 7, slo_class=[*SLO_PRIORITY, "unheard of"])
    assert workload.priority.tolist() == [*SLO_PRIORITY.values(), 1]


def test_timeout_gives_a_deadline_to_those_that_have_none():
    workload = build_workload([5, 6], [1, 1], [1, 1], deadline_us=[0, 50], timeout_us=300)
    assert workload.deadline_us.tolist() == [305, 50]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("engine.blis.scheduler=lifo", 'engine.blis.scheduler = "lifo", but one of "fcfs", "sjf"'),
        ("engine.blis.preemption_policy=tail", 'engine.blis.preemption_policy = "tail", but one of "fcfs", "priority"'),
        ("engine.blis.kv_transfer_bandwidth=0", "engine.blis.kv_transfer_bandwidth = 0, but a number from"),
        ("latency.alpha=[1, nan, 0]", "latency.alpha = "),
        ("latency.b1_us_per_prefill_token=-1", "latency.b1_us_per_prefill_token = -1, but"),
    ],
)
def test_bad_configurations_are_refused(setting, message):
    with pytest.raises(InputError) as error:
        load_config(None, ["engine.name=blis", "engine.num_gpu_blocks=9", setting])
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"prompt_tokens": [0]}, "prompt_tokens of request 0 is 0"),
        ({"output_tokens": [1, 2]}, "output_tokens has shape (2,), but (1,) was expected"),
        ({"arrival_us": [0.5]}, "arrival_us has dtype float64, but integers were expected"),
        ({"slo_class": ["critical"], "priority": [1]}, "slo_class and priority were both given"),
    ],
)
def test_bad_workloads_are_refused(columns, message):
    given = {"arrival_us": [0], "prompt_tokens": [1], "output_tokens": [1]} | columns
    with pytest.raises(InputError) as error:
        build_workload(**given)
    assert message in str(error.value)


REPLAY = """
from tests.blis_cases import KINDS, random_case
from tests.blis_compare import differences, run_kernel, run_oracle
for kind in KINDS:
    for seed in range({count}):
        case = random_case(kind, seed)
        case["config"]["max_steps"] = 60
        found = differences(case, run_oracle(case), run_kernel(case))
        assert not found, (kind, seed, found[:5])
"""


@pytest.mark.parametrize(
    ("switch", "count"),
    [("NUMBA_DISABLE_JIT", 8), pytest.param("NUMBA_BOUNDSCHECK", 200, marks=pytest.mark.slow)],
)
def test_kernels_without_compiler_and_with_bounds_checks(switch, count):
    """The same sources run as plain Python, where an overflow is a warning, and never index outside an array."""
    environment = os.environ | {switch: "1"}
    command = [sys.executable, "-W", "error", "-c", REPLAY.format(count=count)]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
