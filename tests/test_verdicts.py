"""Verdicts that a user would sign: runs of every engine, each with its label and the reason why it is that one.

A case is (label, why, spec). A spec is lines of `key = value`, of which the last of a key holds; it begins from BASE:
requests of 300 + 200 tokens, which alone take 1.2 s and 32 blocks of the 5,000.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import fastsim
from fastsim.cli.run_text import reason
from fastsim.config import Config, spec_from_mapping
from fastsim.engines import engines
from fastsim.metrics import COLUMNS
from fastsim.sweeps.grid import Grid
from fastsim.sweeps.store.contents import read_contents
from fastsim.sweeps.store.manifest import FORMAT, rewritten

BASE = """
engine.num_gpu_blocks = 5001
workload.num_requests = 200
workload.prompt = { dist = "constant", mean = 300 }
workload.output = { dist = "constant", mean = 200 }
"""
STEADY = "workload.arrival = { kind = 'poisson', rate_per_s = 4 }\n"
AT_ONCE = "workload.arrival.kind = 'all_at_once'\n"
CLOSED = "workload.concurrency = 16\n"
GROWING = """
workload.prompt.mean = 300
workload.output.mean = 3500
engine.num_gpu_blocks = 7463
"""
"""Requests of the discussion: each grows to 238 blocks, 31 of them fit, and alone one takes 20 s."""

LONG = """
engine.num_gpu_blocks = 11456
engine.max_model_len = 32768
engine.max_num_batched_tokens = 8192
latency.b0_us = 18990
latency.b1_us_per_prefill_token = 100.3
latency.b2_us_per_decode_token = 1.0
latency.b3_us_per_context_token = 0.08
workload.num_requests = 128
workload.concurrency = 32
workload.prompt.mean = 16384
workload.output.mean = 512
"""

BLIS = "engine.name = 'blis'\n"
ASYNC = "engine.name = 'vllm-0.33.0-async'\n"
RLT = "engine.name = 'vllm-rlt'\nengine.policy = 'fcfs'\n"
TOO_MANY = "workload.arrival = { kind = 'poisson', rate_per_s = 16 }\nengine.max_num_seqs = 8\n"
GROWING_AT_10 = GROWING + "workload.arrival = { kind = 'poisson', rate_per_s = 10 }\nworkload.num_requests = 60\n"
LONG_AT_ONCE = GROWING + AT_ONCE + "workload.num_requests = 100\n"
ON_8 = AT_ONCE + "workload.num_requests = 2000\nengine.max_num_seqs = 8\n"
SWAP = "engine.preemption_mode = 'swap'\nengine.swap_space_blocks = 100000\n"
DEAR = GROWING_AT_10 + SWAP + "engine.swap_us_per_block = 2000"
CYCLE = AT_ONCE + "engine.preemption_mode = 'restart'\nengine.victim = 'most_computed'\nengine.num_gpu_blocks = 2001\n"
FEW_BLOCKS = "engine.num_gpu_blocks = 96\nworkload.prompt.mean = 600\nworkload.output.mean = 400\n"
FEW = """
engine.num_gpu_blocks = 600
workload.prompt = { dist = 'constant', mean = 300 }
workload.arrival = { kind = 'poisson', rate_per_s = 1.5 }
workload.output = { dist = 'uniform', min = 200, max = 1000 }
"""

CASES: dict[str, tuple[str, str, str]] = {
    # --- ok ---
    "steady": ("ok", "4 requests/s of 1.2 s each; the backlog stands", STEADY),
    "steady, 0.16.0": ("ok", "the same under another release", STEADY + "engine.name = 'vllm-0.16.0'"),
    "steady, async": ("ok", "the same with two batches in flight", STEADY + ASYNC),
    "steady, blis": ("ok", "the same under BLIS", STEADY + BLIS),
    "steady, rlt": ("ok", "the same under vllm-rlt", STEADY + RLT),
    "steady, cut": ("ok", "cut at 40 s with a few in flight; nothing grows", STEADY + "run.horizon_s = 40"),
    "steady, SLO met": ("ok", "it serves, within its SLO", STEADY + "slo.ttft_ms = 500\nslo.e2e_ms = 5000"),
    "closed": ("ok", "16 clients, all served", CLOSED),
    "closed, cut": ("ok", "16 clients, ten rounds before the cut", CLOSED + "run.horizon_s = 14"),
    "closed, waits": ("ok", "more clients than slots: they wait, as they must", CLOSED + "engine.max_num_seqs = 8"),
    "closed, long prompts": ("ok", "start-up takes 34 s, 1 % is computed again, all complete", LONG),
    "closed, few blocks": (
        "ok",
        "preemptions repeat a sixth of the tokens, but hardly any time",
        FEW_BLOCKS + "workload.concurrency = 2",
    ),
    "some preemptions": (
        "ok",
        "125 preemptions of 200 requests, 8 % of the tokens, a thousandth of the time",
        FEW_BLOCKS + "workload.arrival = { kind = 'poisson', rate_per_s = 0.4 }\nengine.num_gpu_blocks = 100",
    ),
    "few requests": (
        "ok",
        "a quarter of the load; that three more are in flight at the end than in the middle is chance",
        FEW + "workload.num_requests = 40\nworkload.seed = 1",
    ),
    "few requests, TTFT p99 0.2 s": (
        "ok",
        "60 % of the load, 80 requests: the backlog goes up by 4 and down again",
        FEW + "workload.num_requests = 80\nworkload.arrival.rate_per_s = 3",
    ),
    "two priorities": (
        "ok",
        "and room for both",
        STEADY + "engine.policy = 'priority'\nworkload.priority.values = [0, 1]",
    ),
    "patience": ("ok", "the clients' patience suffices", STEADY + "workload.timeout_s = 1.5"),
    "SLO met by 99 %": (
        "ok",
        "the one in 200 that is late is less than one in a hundred",
        STEADY + "slo.e2e_ms = 1300",
    ),
    # --- drained ---
    "one request": ("drained", "one request is no load", "workload.num_requests = 1"),
    "burst": ("drained", "200 at once, all served", AT_ONCE),
    "burst, SLO met": ("drained", "and soon enough", AT_ONCE + "slo.e2e_ms = 60000"),
    "burst, async": ("drained", "the same, two batches in flight", AT_ONCE + ASYNC),
    "burst, blis": ("drained", "100 of them under BLIS", AT_ONCE + BLIS + "workload.num_requests = 100"),
    "burst, rlt": ("drained", "the same under vllm-rlt", AT_ONCE + RLT),
    "2,000 on 8 slots": ("drained", "the last waits 5 minutes; without an SLO nobody said that this is bad", ON_8),
    "quick burst": (
        "drained",
        "30 requests within a second: no rate that lasts",
        "workload.arrival = { kind = 'poisson', rate_per_s = 30 }\nworkload.num_requests = 30",
    ),
    # --- not judged ---
    "nobody": (
        "not_judged",
        "nobody arrives before the end",
        "workload.arrival = { kind = 'poisson', rate_per_s = 0.001 }\nrun.horizon_s = 0.5",
    ),
    "too soon": ("not_judged", "the run ends before anybody can be done", STEADY + "run.horizon_s = 0.9"),
    "closed, few rounds": (
        "not_judged",
        "cut when 32 are in flight and a hundred done: so it is in a closed loop",
        "workload.concurrency = 32\nengine.max_num_seqs = 16\nrun.horizon_s = 7.9",
    ),
    "burst, nearly done": (
        "not_judged",
        "cut when all but the last two of a burst are done",
        AT_ONCE + "workload.output = { dist = 'uniform', min = 20, max = 200 }\nrun.horizon_s = 2.4",
    ),
    "burst, cut soon": (
        "not_judged",
        "16 at once, cut when one alone could just have been done",
        AT_ONCE + "workload.num_requests = 16\nrun.horizon_s = 1.25",
    ),
    # --- misses the SLO ---
    "burst, SLO missed": ("misses_slo", "the last first token comes after minutes", ON_8 + "slo.ttft_ms = 2000"),
    "steady, TTFT": ("misses_slo", "no first token comes within 5 ms", STEADY + "slo.ttft_ms = 5"),
    "steady, TPOT": ("misses_slo", "no token comes every 2 ms", STEADY + "slo.tpot_ms = 2"),
    "steady, E2E": ("misses_slo", "nobody is done within 1 s", STEADY + "slo.e2e_ms = 1000"),
    "steady, cut, E2E": ("misses_slo", "cut or not", STEADY + "slo.e2e_ms = 1000\nrun.horizon_s = 40"),
    "steady, blis, E2E": ("misses_slo", "BLIS neither", STEADY + BLIS + "slo.e2e_ms = 1000"),
    "closed, TTFT": ("misses_slo", "clients wait for a slot", CLOSED + "engine.max_num_seqs = 8\nslo.ttft_ms = 500"),
    # --- overloaded ---
    "1,000/s on 8 slots": (
        "overloaded",
        "40 of 5,000 are done when the run is cut",
        TOO_MANY + "workload.arrival.rate_per_s = 1000\nworkload.num_requests = 5000\nrun.horizon_s = 7",
    ),
    "all time out": (
        "overloaded",
        "none of 3 completes: their clients leave",
        AT_ONCE + "workload.num_requests = 3\nworkload.timeout_s = 0.5",
    ),
    "many time out": ("overloaded", "most clients leave", TOO_MANY + "workload.timeout_s = 4"),
    "grows": ("overloaded", "16 requests/s on 8 slots: the queue grows and grows", TOO_MANY),
    "grows, blis": ("overloaded", "the same under BLIS", TOO_MANY + BLIS),
    "grows, async": ("overloaded", "the same, two batches in flight", TOO_MANY + ASYNC),
    "grows, rlt": ("overloaded", "the same under vllm-rlt", TOO_MANY + RLT),
    "short and too much": (
        "overloaded",
        "200 requests in 2 s on 8 slots: at 10 s most are not done",
        TOO_MANY + "workload.arrival.rate_per_s = 100\nrun.horizon_s = 10",
    ),
    "queue limit": ("overloaded", "half are refused at the door", TOO_MANY + "engine.max_num_queued_reqs = 4"),
    "closed, hopeless": (
        "overloaded",
        "64 clients on one slot: most of those sent are not done",
        "workload.concurrency = 64\nengine.max_num_seqs = 1\nrun.horizon_s = 20",
    ),
    "burst, cut": ("overloaded", "a third of a burst is done", AT_ONCE + "engine.max_num_seqs = 16\nrun.horizon_s = 6"),
    "overloaded and SLO": ("overloaded", "the cause comes before the symptom", TOO_MANY + "slo.ttft_ms = 10"),
    "discussion": (
        "overloaded",
        "three times what there is arrives; repeating takes just a tenth of the time",
        GROWING_AT_10 + "workload.num_requests = 300\nrun.horizon_s = 120",
    ),
    # --- thrash ---
    "long at once": (
        "thrash",
        "an eighth of the time is repeated",
        LONG_AT_ONCE + "latency.b1_us_per_prefill_token = 40",
    ),
    "restart": ("thrash", "preemption decodes anew", GROWING_AT_10 + "engine.preemption_mode = 'restart'"),
    "restart, blis": ("thrash", "BLIS restarts too", GROWING_AT_10 + BLIS),
    "dear swap": ("thrash", "moving blocks takes a third of the time", DEAR),
    # --- starved ---
    "passed by": (
        "starved",
        "of the second class many wait for most of a minute while the first come and go",
        TOO_MANY + "workload.arrival.rate_per_s = 8\nworkload.num_requests = 600\nengine.policy = 'priority'\n"
        "workload.priority.values = [0, 0, 0, 0, 0, 0, 0, 1]",
    ),
    "shortest first": (
        "starved",
        "the longest prompts wait while shorter ones come and go",
        TOO_MANY + "workload.arrival.rate_per_s = 9\nworkload.num_requests = 600\nengine.queue_order = 'sjf'\n"
        "workload.prompt = { dist = 'uniform', min = 100, max = 1500 }",
    ),
    "nobody served": (
        "starved",
        "for two minutes nobody is done: all evict each other and begin anew",
        GROWING + CYCLE + "workload.num_requests = 60\nrun.horizon_s = 120",
    ),
    # --- livelock, unservable ---
    "cycle": (
        "livelock",
        "and so for ever",
        GROWING + CYCLE + "workload.num_requests = 60\nengine.livelock_steps = 20000",
    ),
    "never fits": ("unservable", "the prompt needs more blocks than there are", STEADY + "engine.num_gpu_blocks = 15"),
    "never fits, spin": (
        "livelock",
        "vLLM waits for ever at the head of the queue",
        STEADY + "engine.num_gpu_blocks = 15\nengine.unservable = 'spin'",
    ),
}


def config_of(spec: str) -> Config:
    """The configuration of a spec; a table takes the place of everything that was said of its keys before."""
    settings: dict[str, Any] = {}
    for line in (BASE + spec).splitlines():
        name, _, text = line.partition(" = ")
        value = tomllib.loads(f"value = {text}")["value"] if name else {}
        if isinstance(value, dict):
            settings = {key: old for key, old in settings.items() if not name or not key.startswith(f"{name}.")}
            settings |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            settings[name] = value
    return spec_from_mapping(settings).config()


@cache
def run(name: str) -> dict[str, Any]:
    return fastsim.simulate(config_of(CASES[name][2])).metrics


@pytest.mark.parametrize("name", CASES)
def test_a_user_would_sign(name: str) -> None:
    label, why, _ = CASES[name]
    metrics = run(name)
    assert metrics["verdict"] == label, (why, reason(metrics))


def test_few_requests_are_no_overload_by_chance() -> None:
    """Of 60 runs of 40 requests at 13 to 40 % of what there is, hardly any; of as many at 150 %, nearly all."""
    shares = []
    for rate in (0.5, 1.5, 6.0):
        load = FEW + f"workload.num_requests = 40\nworkload.arrival.rate_per_s = {rate}\n"
        verdicts = [
            fastsim.simulate(config_of(load + f"workload.seed = {seed}")).metrics["verdict"] for seed in range(60)
        ]
        shares.append(verdicts.count("overloaded") / 60)
    assert shares[0] <= 0.05
    assert shares[1] <= 0.15
    assert shares[2] >= 0.75


def test_every_column_is_filled_by_some_run() -> None:
    """Those of engines and features that no case here runs are filled in their own tests."""
    filled = {name for case in CASES for name, value in run(case).items() if value is not None}
    elsewhere = {own.name for engine in engines() for own in engine.columns if not own.name.startswith("blis_")}
    elsewhere |= {"imbalance_requests", "imbalance_tokens", "imbalance_busy", "hottest_replica_share"}  # of fleets
    assert {column.name for column in COLUMNS} - filled <= elsewhere


def test_a_folder_of_an_old_format_says_that_its_verdicts_are_old() -> None:
    """In what `status`, `compare`, `report` and answers print: they all say a folder's notes."""
    old = read_contents(Path(__file__).parent / "data" / "sweep-format-1")
    assert old.manifest is not None
    said = [note for note in old.notes() if "verdicts are of the old kind" in note]
    assert len(said) == 1
    assert rewritten(old.manifest.format) != FORMAT  # compacted or merged they stay so
    assert rewritten(FORMAT) == FORMAT


SAMPLED = 641
"""A prime, so that the sample takes every value of every axis in turn."""


def test_of_a_million_no_group_is_ok_at_its_worst() -> None:
    """A spread sample of the million: no row is ok that leaves many behind, and no group's row of least throughput.

    A group is a rate with a number of slots: 3 to 33 requests/s, of which each holds a slot for 20 s or longer.
    """
    grid = Grid.from_toml(Path(__file__).parents[1] / "sweeps" / "million.toml")
    worst: dict[tuple[object, ...], dict[str, Any]] = {}
    labels: set[str] = set()
    step = grid.size // SAMPLED
    for config_id in range(step // 3, grid.size, step):
        config = grid.config(config_id)
        row = fastsim.simulate(config).metrics
        labels.add(row["verdict"])
        key = (config.value("workload.arrival.rate_per_s"), config.value("engine.max_num_seqs"))
        if (
            key not in worst
            or row["completed"] / row["simulated_s"] < worst[key]["completed"] / worst[key]["simulated_s"]
        ):
            worst[key] = row
        unfinished = row["offered"] - row["completed"]
        if row["verdict"] == "ok":
            assert row["not_judged"] is None, config_id
            assert unfinished <= 0.1 * row["offered"] or (row["offered_load"] or 0) <= 1, config_id
    assert len(worst) > 100
    assert {key for key, row in worst.items() if row["verdict"] == "ok"} == set()
    assert "ok" in labels or "drained" in labels  # it is not for want of good service
