"""The plain-Python oracle of fleets takes every decision that the real routers took in the recorded cases."""

import copy
import gzip
import json
import math
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.reference_blis import Request, Simulator
from tests.reference_blis.metrics import aggregate
from tests.reference_fleet import blis, vllm_pd
from tests.reference_fleet.cache_aware import CacheAware
from tests.reference_fleet.kv_router import KvRouter
from tests.reference_fleet.vllm_dp import VllmDataParallel

GOLDEN = Path(__file__).parent / "golden_fleet"
NUM_CASES = {"cache-aware": 8, "dynamo-kv": 8, "vllm-dp": 12, "blis-cluster": 45, "vllm-pd": 25}
OWNERS = {"sglang-router 0.3.2": "first", "vllm-router 0.1.17": "least_loaded"}


def case_paths(family):
    return sorted((GOLDEN / family).glob("*.json.gz"))


def load(path):
    with gzip.open(path, "rt") as file:
        return json.load(file)


def cases(family):
    return pytest.mark.parametrize(
        "path", case_paths(family), ids=lambda path: f"{family}/{path.name.removesuffix('.json.gz')}"
    )


@pytest.mark.parametrize("family", NUM_CASES)
def test_no_case_is_missing(family):
    assert len(case_paths(family)) == NUM_CASES[family]


def replay_cache_aware(case):
    """Number and operation of the first decision that differs, or None; likewise below."""
    config = dict(case["config"])
    router = CacheAware(config.pop("workers"), OWNERS[case["router"]], **config)
    for number, (kind, request, *rest) in enumerate(case["ops"]):
        if kind == "finish":
            router.finish(request)
        else:
            assert kind == "route"
            prompt, chosen = rest
            if router.route(request, prompt) != chosen:
                return number, case["ops"][number]
    return None


@cases("cache-aware")
def test_cache_aware(path):
    assert replay_cache_aware(load(path)) is None


def replay_dynamo_kv(case):
    config = dict(case["config"])
    assert config.pop("temperature") == 0
    router = KvRouter(config.pop("workers"), config.pop("block_size"), **config)
    for number, (kind, *rest) in enumerate(case["ops"]):
        if kind != "route":
            {
                "prefilled": router.prefilled,
                "finish": router.finish,
                "stored": router.stored,
                "removed": router.removed,
            }[kind](*rest)
            continue
        request, prompt_tokens, blocks, overlap, load, cost, cheapest, chosen = rest
        decision = router.decide(prompt_tokens, blocks)
        same = (
            decision.overlap_blocks == overlap
            and decision.load == load
            and decision.cost == cost
            and decision.cheapest == cheapest
            and chosen in decision.cheapest
        )
        if not same:
            return number, case["ops"][number], decision
        router.start(request, chosen, prompt_tokens, blocks)
    return None


@cases("dynamo-kv")
def test_dynamo_kv(path):
    assert replay_dynamo_kv(load(path)) is None


def replay_vllm_dp(case):
    config = case["config"]
    router = VllmDataParallel(config["engines"], config["clients"], config["client_index"])
    for number, (kind, *rest) in enumerate(case["ops"]):
        if kind == "stats":
            router.snapshot(*rest)
        elif kind == "finish":
            router.finish(*rest)
        else:
            assert kind == "route"
            request, explicit_rank, chosen = rest
            if router.route(request, explicit_rank) != chosen:
                return number, case["ops"][number]
    return None


@cases("vllm-dp")
def test_vllm_dp(path):
    assert replay_vllm_dp(load(path)) is None


QUICK = (
    "k1_poisson40__n4_least_randomties",
    "k2_bursty__n4_queue_stale40ms_latency5ms",
    "k2_bursty__n4_tokenbucket_least",
    "k3_",
    "k4_prefix_zipf__n4_default_stale_kv400",
    "k4_prefix_zipf__n4_precise_nohitlru_cache2s",
    "k7_",
    "k8_",
    "k9_",
    "k10_",
    "k11_",
    "k12_",
    "k13_",
    "k14_",
    "k15_",
    "k16_",
)
"""Every policy, scorer and age; the others are seconds more of plain Python."""


def first_cluster_difference(case, cluster):
    """What differs first of the decisions, the requests' rows and the metrics, or None."""
    decisions = [decision.golden() for decision in cluster.decisions]
    for number, (recorded, got) in enumerate(zip(case["decisions"], decisions, strict=False)):
        if recorded != got:
            return f"decision {number}: recorded {recorded}, got {got}"
    if len(decisions) != len(case["decisions"]):
        return f"{len(case['decisions'])} decisions recorded, got {len(decisions)}"
    rows = {
        "id": [r.index for r in cluster.reported()],
        "ttft_us": [r.reported_ttft_us for r in cluster.reported()],
        "e2e_us": [r.reported_e2e_us for r in cluster.reported()],
        "sched_delay_us": [r.scheduling_delay_us or 0 for r in cluster.reported()],
        "instance": [cluster.replica_of[r] for r in cluster.reported()],
    }
    for name, recorded in case["requests_out"].items():
        if rows[name] != recorded:
            return f"column {name}"
    metrics = [
        (case["aggregate"], cluster.aggregate()),
        *zip(case["per_instance"], cluster.per_instance(), strict=True),
    ]
    for recorded, got in metrics:
        for name, value in recorded.items():
            if not math.isclose(got[name], value, rel_tol=1e-9):
                return f"{name}: recorded {value}, got {got[name]}"
    return None


@pytest.mark.parametrize(
    "path",
    [
        path if path.name.startswith(QUICK) else pytest.param(path, marks=pytest.mark.slow)
        for path in case_paths("blis-cluster")
    ],
    ids=lambda path: path.name.removesuffix(".json.gz"),
)
def test_blis_cluster(path):
    case = load(path)
    assert first_cluster_difference(case, blis.simulate_case(case)) is None


def test_a_difference_of_a_cluster_is_noticed():
    case = load(GOLDEN / "blis-cluster" / "k15_weights__active_loadaware_running.json.gz")
    cluster = blis.simulate_case(case)
    case["per_instance"][-1]["total_output_tokens"] += 1
    assert first_cluster_difference(case, cluster).startswith("total_output_tokens")
    case["requests_out"]["ttft_us"][-1] += 1
    assert first_cluster_difference(case, cluster) == "column ttft_us"
    case["decisions"][-1][4][-1][3] += 1
    assert first_cluster_difference(case, cluster).startswith("decision 79")
    case["decisions"].pop()
    assert first_cluster_difference(case, cluster).startswith("79 decisions")


def engine_rows(requests):
    return [(r.status, r.reported_ttft_us, r.reported_e2e_us, r.scheduling_delay_us) for r in requests]


@pytest.mark.parametrize("policy", ["round-robin", "least-loaded", "weighted"])
@pytest.mark.parametrize("name", ["k3_burst_pairs__n4_loadbalance_seqs16", "k8_edge__n2_least_latency500us"])
def test_a_fleet_of_one_is_a_single_engine(name, policy):
    case = load(GOLDEN / "blis-cluster" / f"{name}.json.gz")
    fleet_of_one = {"instances": 1, "routing_policy": policy, "routing_latency_us": 0, "admission_latency_us": 0}
    case["config"] |= fleet_of_one
    cluster = blis.simulate_case(case)
    requests = [Request(i, *row) for i, row in enumerate(case["requests"])]
    single = Simulator(cluster.engine, requests).run()
    assert engine_rows(cluster.requests) == engine_rows(requests)
    assert cluster.aggregate() == aggregate(single)


def test_round_robin_is_the_union_of_single_engines():
    case = load(GOLDEN / "blis-cluster" / "k1_poisson40__n2_rr.json.gz")
    cluster = blis.simulate_case(case)
    requests = [Request(i, *row) for i, row in enumerate(case["requests"])]
    for first in (0, 1):
        Simulator(cluster.engine, requests[first::2]).run()
    assert engine_rows(cluster.requests) == engine_rows(requests)


def first_pd_difference(case, pair):
    """The first step of either engine, or the first request, that differs."""
    for what, recorded, got in (
        ("prefill step", case["prefill_steps"], pair.prefill.rows),
        ("decode step", case["decode_steps"], pair.decode.rows),
        ("request", case["requests_out"], pair.golden()),
    ):
        for number, (a, b) in enumerate(zip_longest(recorded, got)):
            if a != b:
                return f"{what} {number}: recorded {a}, got {b}"
    return None


@cases("vllm-pd")
def test_vllm_pd(path):
    case = load(path)
    assert first_pd_difference(case, vllm_pd.simulate_case(case)) is None


def test_a_difference_of_pools_is_noticed():
    case = load(GOLDEN / "vllm-pd" / "p24_loads_over_budget.json.gz")
    pair = vllm_pd.simulate_case(case)
    case["requests_out"][-1][1] += 1
    assert first_pd_difference(case, pair).startswith("request 11")
    case["decode_steps"][-1][-1] += 1
    assert first_pd_difference(case, pair).startswith("decode step 39")
    case["prefill_steps"].pop()
    assert first_pd_difference(case, pair).startswith("prefill step 14")


ROUTERS = {"cache-aware": replay_cache_aware, "dynamo-kv": replay_dynamo_kv, "vllm-dp": replay_vllm_dp}


@pytest.mark.parametrize("family", ROUTERS)
def test_a_difference_is_noticed(family):
    """The comparison itself can fail: the last recorded choice, changed, is reported at its place."""
    case = copy.deepcopy(load(case_paths(family)[0]))
    number = max(i for i, op in enumerate(case["ops"]) if op[0] == "route")
    case["ops"][number][-1] = -1
    assert ROUTERS[family](case)[0] == number
