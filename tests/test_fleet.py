"""Fleets: every replica's requests as if it ran alone, and a row in plain Python of what they left together."""

from typing import Any

import numpy as np
import pytest

from fastsim.config import check_rules, load_config
from fastsim.config.fleet import BLIND_ROUTERS
from fastsim.config.spec import spec_from_mapping
from fastsim.engines.contract import Batch, runtime_of
from fastsim.engines.vllm.runtime import VllmRun
from fastsim.errors import InputError
from fastsim.metrics import COLUMNS, named_values
from fastsim.records import record_of, records_at
from fastsim.simulation import simulate, simulate_chunk
from fastsim.sweeps.grid import Grid
from fastsim.workload import Workload, build_workload
from tests.metrics_rows import SHARED, differences, gaps_of, params_of, requests_of, totals_of
from tests.reference.metrics import OF_FLEETS, fleet_columns, row
from tests.reference_fleet.totals import by_session, fleet_totals, round_robin
from tests.specs.draw import random_spec

SETTINGS = [
    "engine.num_gpu_blocks=400",
    "workload.num_requests=120",
    "workload.arrival.rate_per_s=40",
    "workload.prompt.dist=lognormal",
    "workload.prompt.mean=300",
    "workload.prompt.stdev=200",
    "workload.output.mean=60",
    "workload.output.dist=constant",
]
ROUTERS = ("round_robin", "session", "least_loaded", "power_of_two", "vllm_dp")
ENGINES = ("vllm-0.33.0", "vllm-0.33.0-async", "vllm-0.16.0", "blis", "vllm-rlt", "sglang-0.5.23")


def dealt(config: Any, workload: Workload) -> list[int]:
    """Who serves each request, in plain Python."""
    replicas = config.fleet.replicas
    if config.fleet.router == "round_robin":
        return round_robin(workload.arrival_us.tolist(), replicas)
    if config.fleet.router == "session":
        return by_session(workload.prefix_group.tolist(), workload.group_parent.tolist(), replicas)
    draws = np.random.default_rng([config.workload.seed, 14]).random((workload.num_requests, 2))
    return [int(draw * replicas) for draw in draws[:, 0]]


def part_of(workload: Workload, members: list[int]) -> Workload:
    """The requests of one replica, as a workload of their own."""
    names = ("arrival_us", "prompt_tokens", "output_tokens", "max_tokens", "priority", "prefix_group", "prefix_tokens")
    return Workload.from_arrays(
        **{name: [getattr(workload, name)[i] for i in members] for name in names},
        groups=workload.groups,
    )


def alone(config: Any, workload: Workload) -> tuple[Batch, dict[str, Any]]:
    """What one replica leaves, and its row, both by the engine's own way."""
    single = config.model_copy(update={"fleet": config.fleet.model_copy(update={"replicas": 1})})
    records = record_of(single)
    (share,) = records.shares
    runtime = runtime_of(share.engine)
    run = runtime.run(workload, share.records, records.params)
    row_of_run = named_values(run.rows.floats[0], run.rows.ints[0])
    if isinstance(run, VllmRun):
        histogram = run.memory.gaps.histogram[None]
        lengths = workload.prompt_tokens, workload.output_tokens
        return Batch(np.zeros(1, np.intp), *lengths, run.log, run.totals, histogram, 0), row_of_run
    (batch,) = runtime.batches(workload, share.records, records.params, fast_forward=True)
    return batch, row_of_run


def expected(config: Any, workload: Workload) -> tuple[dict[str, Any], list[dict[str, Any]], list[int]]:
    """The fleet's row in plain Python from what its replicas leave alone, the log by request, and who served it."""
    if config.fleet.router not in BLIND_ROUTERS:
        return expected_of_looking(config, workload)
    of_request = dealt(config, workload)
    requests: list[dict[str, Any]] = [{} for _ in of_request]
    totals, rows = [], []
    gaps = gaps_of(np.zeros(1, np.int64))
    for replica in range(config.fleet.replicas):
        members = [i for i, chosen in enumerate(of_request) if chosen == replica]
        batch, its_row = alone(config, part_of(workload, members))
        entries = range(len(members)) if batch.order is None else batch.order.tolist()
        left = requests_of(batch.log, batch.prompt_tokens, batch.output_tokens)
        for entry, request in zip(entries, left, strict=True):
            requests[members[entry]] = request
        totals.append(totals_of(batch.totals))
        gaps += gaps_of(batch.itl_histogram[0])
        rows.append(its_row)
    return fleet_row(config, requests, totals, gaps, rows, of_request), requests, of_request


def expected_of_looking(config: Any, workload: Workload) -> tuple[dict[str, Any], list[dict[str, Any]], list[int]]:
    """The same where the router looks at replicas: who serves whom is `test_fleet_vllm`'s."""
    records = record_of(config)
    (share,) = records.shares
    draws = np.random.default_rng([config.workload.seed, 14]).random((workload.num_requests, 2))
    session = runtime_of(share.engine).fleet_session(workload, share.records, config.fleet.replicas)
    run = session.run(share.records, records.params, records.fleet, draws, fast_forward=False)
    requests = requests_of(run.log, workload.prompt_tokens, workload.output_tokens)
    totals, rows = [], []
    (params,) = records.params
    for replica in range(config.fleet.replicas):
        totals.append(totals_of(run.totals[replica : replica + 1]))
        mine = [request for request, k in zip(requests, run.of_request.tolist(), strict=True) if k == replica]
        gaps = gaps_of(run.itl_histogram[replica])
        rows.append(row(mine, totals[-1], gaps, params_of(params) | {"replicas": 1}))
    gaps = gaps_of(run.itl_histogram.sum(axis=0))
    of_request = run.of_request.tolist()
    return fleet_row(config, requests, totals, gaps, rows, of_request), requests, of_request


def fleet_row(
    config: Any, requests: Any, totals: Any, gaps: Any, rows: list[dict[str, Any]], of_request: list[int]
) -> dict[str, Any]:
    """The fleet's row from its requests, and the totals, gaps and rows of its replicas."""
    merged = fleet_totals(totals, rows)
    (params,) = record_of(config).params
    sent = [of_request.count(k) for k in range(config.fleet.replicas)]
    return row(requests, merged, gaps, params_of(params)) | fleet_columns(sent, totals, merged)


def check(config: Any, workload: Workload) -> dict[str, Any]:
    """A fleet against plain Python; returns its row."""
    want, requests, of_request = expected(config, workload)
    result = simulate(config, workload)
    assert result.replicas is not None
    assert result.replicas.of_request.tolist() == of_request
    log = requests_of(result.requests, workload.prompt_tokens, workload.output_tokens)
    lengths = {"prompt", "output"}  # SGLang and BLIS change them on their way in
    assert [{k: v for k, v in each.items() if k not in lengths} for each in log] == [
        {k: v for k, v in each.items() if k not in lengths} for each in requests
    ]
    nulled = {name for name in SHARED if result.metrics[name] is None and name not in OF_FLEETS}
    nulled -= {name for name in nulled if not name.startswith(("kv_capacity", "kv_safe", "offered_"))}
    names = [name for name in SHARED if name not in nulled]
    assert differences(result.metrics, want, names, result.metrics["simulated_s"]) == []
    return result.metrics


@pytest.mark.parametrize("router", ["power_of_two", "least_loaded", "vllm_dp"])
@pytest.mark.parametrize("engine", ENGINES[:3])
def test_a_row_of_a_fleet_that_is_looked_at(engine, router):
    settings = [*SETTINGS, f"engine.name={engine}", "fleet.replicas=3", f"fleet.router={router}"]
    settings += ["workload.prefix.groups=7", "workload.prefix.tokens=64", "slo.ttft_ms=100"]
    config = load_config(None, settings)
    metrics = check(config, build_workload(config.workload))
    assert metrics["completed"] == 120
    assert 1 <= metrics["imbalance_requests"] < 2


@pytest.mark.parametrize("router", BLIND_ROUTERS)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_fleet_is_its_replicas_alone(engine, router):
    settings = [*SETTINGS, f"engine.name={engine}", "fleet.replicas=3", f"fleet.router={router}"]
    if engine != "vllm-rlt":
        settings += ["workload.prefix.groups=7", "workload.prefix.tokens=64"]
    config = load_config(None, [*settings, "slo.ttft_ms=100"])
    metrics = check(config, build_workload(config.workload))
    assert metrics["completed"] + metrics["unservable"] == 120
    assert metrics["replicas"] == 3
    assert metrics["imbalance_requests"] == 1.0 if router == "round_robin" else metrics["imbalance_requests"] > 1


def test_random_specs_as_fleets():
    done = 0
    for seed in range(120):
        spec = random_spec(seed) | {
            "fleet.replicas": seed % 4 + 2,
            "fleet.router": ("round_robin", "session")[seed % 2],
        }
        if seed % 3:
            spec |= {"engine.starvation_window_s": 0.001, "engine.starvation_overtakes": 1}
        try:
            config = spec_from_mapping(spec).base
            check_rules(config, "spec")
            workload = build_workload(config.workload)
            simulate(config, workload)
        except InputError:
            continue
        check(config, workload)
        done += 1
    assert done > 40


@pytest.mark.parametrize("engine", ENGINES)
def test_one_replica_is_no_fleet(engine):
    config = load_config(None, [*SETTINGS, f"engine.name={engine}"])
    other = load_config(None, [*SETTINGS, f"engine.name={engine}", "fleet.replicas=1", "fleet.router=random"])
    plain, fleet = simulate(config), simulate(other)
    assert plain.metrics == fleet.metrics
    assert fleet.replicas is None
    assert all(fleet.metrics[name] is None for name in OF_FLEETS)
    assert fleet.metrics["replica_seconds"] == pytest.approx(fleet.metrics["simulated_s"], rel=0.1)


def test_replicas_routers_and_engines_are_axes():
    axes = {
        "fleet.replicas": [1, 2, 5],
        "fleet.router": ["round_robin", "random", "least_loaded", "vllm_dp"],
        "engine.name": ["vllm-0.33.0", "vllm-0.33.0-async"],
        "engine.max_num_seqs": [4, 64],
    }
    table = {"engine.num_gpu_blocks": 400, "workload.num_requests": 60, "workload.arrival.rate_per_s": 40}
    grid = Grid.from_mapping(table | {"sweep": {"axes": axes}})
    workload = build_workload(grid.base.workload)
    rows = simulate_chunk(workload, records_at(grid, np.arange(grid.size)))
    for index in range(grid.size):
        result = simulate(grid.config(index), workload)
        assert named_values(rows.floats[index], rows.ints[index]) == {
            column.name: result.metrics[column.name] for column in COLUMNS
        }


def test_classes_of_requests_in_a_fleet():
    settings = ["engine.num_gpu_blocks=400", "fleet.replicas=3", "workload.num_requests=90"]
    settings += ["workload.classes.chat.share=0.5", "workload.classes.code.share=0.5"]
    settings += ["workload.classes.chat.slo.ttft_ms=1"]
    config = load_config(None, settings)
    result = simulate(config)
    assert result.metrics["num_requests[chat]"] + result.metrics["num_requests[code]"] == 90
    assert result.metrics["misses_slo"] is True
    requests = result.to_polars()
    assert set(requests["class"]) == {"chat", "code"}
    assert set(requests["replica"]) == {0, 1, 2}


def test_sessions_stay_on_their_replica():
    settings = [*SETTINGS, "workload.sessions.turns=4", "fleet.router=session"]
    config = load_config(None, [*settings, "fleet.replicas=4"])
    workload = build_workload(config.workload)
    parts = simulate(config, workload).replicas.of_request
    more = simulate(load_config(None, [*settings, "fleet.replicas=5"]), workload).replicas.of_request
    root = list(range(len(workload.group_parent)))
    for group, parent in enumerate(workload.group_parent.tolist()):
        root[group] = root[parent] if parent >= 0 else group
    turns: dict[int, set[int]] = {}
    for group, replica in zip(workload.prefix_group.tolist(), parts.tolist(), strict=True):
        if group >= 0:
            turns.setdefault(root[group], set()).add(replica)
    assert len(turns) > 20
    assert all(len(each) == 1 for each in turns.values())
    assert set(more[more != parts]) == {4}  # one replica more: only its own conversations move


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("fleet.replicas=0", "fleet.replicas = 0"),
        ("fleet.replicas=2000", "fleet.replicas = 2000"),
        ("fleet.router=best", "fleet.router"),
        ("workload.concurrency=4", "do not wait for answers"),
        ("engine.name=blis", "cannot be looked at"),
        ("engine.preemption_mode=restart", "counted when all is done"),
        ("fleet.refresh_ms=-1", "fleet.refresh_ms = -1"),
        ("fleet.autoscale.max_replicas=4", "autoscaling is not simulated"),
    ],
)
def test_bad_fleets_are_one_sentence(setting, words):
    fleet = ["fleet.replicas=2", "fleet.router=vllm_dp"]
    settings = [each for each in fleet if each.split("=")[0] != setting.split("=")[0]]
    with pytest.raises(InputError, match=words):
        check_rules(load_config(None, [*SETTINGS, *settings, setting]))


def test_steps_of_a_fleet_are_refused():
    with pytest.raises(InputError, match=r"fleet\.replicas = 2"):
        simulate(load_config(None, [*SETTINGS, "fleet.replicas=2"]), record_steps=True)
