"""Fleets of vLLM whose router looks at its replicas: the kernel beside a fleet of plain-Python engines, exactly."""

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fastsim.cli import main
from fastsim.cli.verify import read_case
from fastsim.engines.fleets import FLEET_DTYPE, Router
from fastsim.engines.outputs import TOTALS_DTYPE, RequestLog, Status, Stop
from fastsim.engines.vllm.runtime import RUNTIME
from fastsim.fleet.golden import verify_case
from tests.reference.cases import random_case
from tests.reference.vllm import _outcome as outcome_of
from tests.reference_fleet.vllm_fleet import simulate_fleet
from tests.vllm_cases import records_of, workload_of

ROUTERS = ("power_of_two", "least_loaded", "vllm_dp")
CASES = 120


def fleet_record(replicas, router, refresh_us=0):
    fleet = np.zeros(1, FLEET_DTYPE)
    fleet["replicas"], fleet["refresh_us"] = replicas, refresh_us
    fleet["router"] = Router[router.upper()]
    return fleet


def fleet_case(seed, family):
    """A random case that a fleet can run: no closed loop, no restart. None: it has one."""
    case, requests = random_case(random.Random(seed), family=family)
    if case.get("concurrency") is not None or case.get("preemption_mode") == "restart":
        return None
    return case, requests


def kernel_run(case, requests, fleet, draws, fast_forward=True):
    records = records_of(case)
    workload = workload_of(case, requests)
    session = RUNTIME.fleet_session(workload, records.engine, int(fleet["replicas"][0]))
    return session.run(records.engine, records.params, fleet, draws, fast_forward=fast_forward)


def kernel_requests(log):
    columns = {name: getattr(log, name).tolist() for name in RequestLog._fields}
    columns["status"] = [Status(status).name.lower() for status in columns["status"]]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def expected_totals(engine):
    cap = engine.scheduler.running_cap
    totals = engine.totals | engine.scheduler.totals
    totals |= {"end_us": engine.t_us, "stop": engine.stop, "usable_blocks": engine.scheduler.pool.usable}
    return totals | {"cap_min": cap.cap_min, "cap_final": cap.cap, "cap_steps": cap.cap_steps}


def compare(case, requests, fleet, draws, label):
    replicas, router = int(fleet["replicas"][0]), Router(fleet["router"][0]).name.lower()
    served_by, engines = simulate_fleet(case, requests, replicas, router, draws.tolist(), int(fleet["refresh_us"][0]))
    want = [vars(outcome_of(engines[k].requests[i])) for i, k in enumerate(served_by)]
    for fast_forward in (True, False):
        run = kernel_run(case, requests, fleet, draws, fast_forward)
        assert run.of_request.tolist() == served_by, label
        for i, (got, expected) in enumerate(zip(kernel_requests(run.log), want, strict=True)):
            assert got == {name: expected[name] for name in got}, f"{label}, request {i}"
        for k, engine in enumerate(engines):
            expected = expected_totals(engine)
            got = {name: int(run.totals[name][k]) for name in TOTALS_DTYPE.names}
            got["stop"] = Stop(got["stop"]).name.lower()
            names = got.keys() & expected.keys()
            if case.get("livelock_steps") is None and fast_forward and got["livelock_kind"] == 0:
                names -= {"livelock_us"}
            names -= {"livelock_us", "livelock_step"} if got["livelock_kind"] == 0 else set()
            assert {n: got[n] for n in names} == {n: expected[n] for n in names}, f"{label}, replica {k}"
    return served_by, engines


@pytest.mark.parametrize("family", ["vllm", "policies", "async", "async-policies"])
def test_random_fleets(family):
    sent, preemptions, stops = Counter(), 0, Counter()
    for seed in range(CASES):
        made = fleet_case(seed, family)
        if made is None:
            continue
        case, requests = made
        router = ROUTERS[seed % 3]
        replicas = (1, 2, 3, 5)[seed // 3 % 4] if router != "power_of_two" else (2, 3, 5)[seed // 3 % 3]
        draws = np.random.default_rng(seed).random((len(requests), 2))
        fleet = fleet_record(replicas, router, (0, 1, 7000, 100_000)[seed // 5 % 4])
        served_by, engines = compare(case, requests, fleet, draws, f"{family} {seed} {router} {replicas}")
        sent.update(Counter(served_by))
        preemptions += sum(engine.scheduler.totals["preemptions"] for engine in engines)
        stops.update(engine.stop for engine in engines)
    assert sent[0] < sum(sent.values()) / 2
    assert preemptions > 100
    assert stops["drained"] > 50


@pytest.mark.parametrize("family", ["vllm", "async"])
def test_a_fleet_of_one_is_a_single_run(family):
    """The log and the totals of one replica, whatever the router, are those of a run without any."""
    for seed in range(60):
        made = fleet_case(seed, family)
        if made is None:
            continue
        case, requests = made
        records, workload = records_of(case), workload_of(case, requests)
        single = RUNTIME.run(workload, records.engine, records.params)
        for router in ROUTERS[1:]:
            run = kernel_run(case, requests, fleet_record(1, router), np.zeros((len(requests), 2)))
            for name, values in run.log._asdict().items():
                assert np.array_equal(values, getattr(single.log, name)), f"{family} {seed} {name}"
            assert run.totals[0] == single.totals[0], f"{family} {seed}"
            assert np.array_equal(run.itl_histogram[0], single.memory.gaps.histogram)


GOLDEN = Path(__file__).parent / "golden_fleet"


@pytest.mark.parametrize("path", sorted((GOLDEN / "vllm-dp").glob("*.json.gz")), ids=lambda path: path.name)
def test_the_balancer_takes_all_recorded_decisions(path):
    assert verify_case(read_case(path)) is None


def test_a_wrong_decision_is_named():
    case = read_case(GOLDEN / "vllm-dp" / "dp_real_n3_c1i0_s3.json.gz")
    route = next(op for op in case["ops"] if op[0] == "route")
    route[3] = (route[3] + 1) % 3
    assert verify_case(case) == f"decision 0: expected engine {route[3]}, got {(route[3] - 1) % 3}"


def test_verify_names_what_is_not_simulated(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["verify", str(GOLDEN)])
    printed = capsys.readouterr()
    assert ended.value.code == 0
    assert printed.out == "12/12 identical\n"
    assert "not compared: 86 cases of blis-cluster, cache-aware, dynamo-kv, vllm-pd: not simulated" in printed.err
