"""The plain-Python oracle of the `blis` engine against recordings of BLIS."""

import gzip
import json
import math
from pathlib import Path

import pytest

from tests.reference_blis import from_case, simulate
from tests.reference_blis.metrics import itl_ms

GOLDEN = Path(__file__).parent / "golden" / "blis"
CASES = sorted(path.name.removesuffix(".json.gz") for path in GOLDEN.glob("*.json.gz"))
QUICK = [name for name in CASES if name.startswith(("w2", "w9", "w10"))] + [
    "blis_tier_running_reload",
    "w4_bursty_lognormal__c06_budget512",
    "w5_longprefill_mix__c08_budget256_lpt64_kv1500",
    "w7_shared_prefix__c14_seqs128_kv900_horizon60",
    "w8_slo_classes__c09_prio_preempt_kv2500",
]
# The kernels, which are held to the oracle, replay every case in every run of the suite.
REPLAYED = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]


def load(name):
    with gzip.open(GOLDEN / f"{name}.json.gz", "rt") as file:
        return json.load(file)


def test_all_cases_are_here():
    assert len(CASES) == 117


@pytest.mark.parametrize("name", REPLAYED)
def test_oracle_equals_recording(name):
    case = load(name)
    run = simulate(*from_case(case))
    expected = case["requests_out"]
    reported = [r for r in run.requests if r.status != "unservable"]
    assert [r.index for r in reported] == expected["id"]
    assert [r.reported_ttft_us for r in reported] == expected["ttft_us"]
    assert [r.reported_e2e_us for r in reported] == expected["e2e_us"]
    assert [r.scheduling_delay_us or 0 for r in reported] == expected["sched_delay_us"]
    assert [itl_ms(r) for r in reported] == pytest.approx(expected["itl_ms"], rel=1e-9)
    assert run.steps == case["steps"]
    assert run.allocation_failures == case["kv_allocation_failures"]
    for name, value in case["aggregate"].items():
        assert math.isclose(run.aggregate[name], value, rel_tol=1e-9), name


# Linear latency, horizon 120 s, the workload of the w1 cases: what BLIS printed at a393b435 (March 2026, with the block
# leak) and at f90a1e3a. (requests, max_num_seqs, leak, completed, evictions, requests per second)
DISCUSSION = [
    (300, 256, True, 0, 291, 0),
    (300, 256, False, 175, 3613, 1.458385),
    (50, 256, True, 0, 207, 0),
    (50, 256, False, 50, 110, 1.199068),
    (50, 32, True, 50, 0, 1.151373),
    (300, 32, False, 162, 0, 1.350026),
]


@pytest.mark.parametrize(("count", "seqs", "leak", "completed", "evictions", "rate"), DISCUSSION)
def test_rows_of_the_discussion(count, seqs, leak, completed, evictions, rate):
    config, requests = from_case(load("w1_seed7_sustained300_at10__c00_base"))
    config.max_num_seqs = seqs
    config.rollback_leak = leak
    run = simulate(config, requests[:count])
    assert run.aggregate["completed_requests"] == completed
    assert run.preemptions == evictions
    assert run.aggregate["responses_per_sec"] == pytest.approx(rate, abs=5e-7)
