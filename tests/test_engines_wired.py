"""BLIS and vllm-rlt behind `engine.name`: the same numbers as their own entries give, alone and mixed in a chunk."""

from pathlib import Path

import numpy as np
import pytest

import fastsim
from fastsim.config import Config, check_rules, load_config
from fastsim.engines.blis.golden import case_records
from fastsim.engines.blis.runner import simulate_records
from fastsim.engines.blis.runtime import workload_for as blis_workload
from fastsim.errors import InputError
from fastsim.metrics import FLOAT_COLUMNS
from fastsim.simulation import engine_records, simulate_chunk
from fastsim.sweeps.grid import Grid
from fastsim.workload import build_workload
from tests.rlt_config import RltConfig, StageLatency, simulate_rlt, workload_for

SWEEPS = Path(__file__).parents[1] / "sweeps"
SMALL = ["workload.num_requests=40", "run.horizon_s=60"]


def config(*settings: str, blocks: int = 400) -> Config:
    made = load_config(None, [*SMALL, f"engine.num_gpu_blocks={blocks}", *settings])
    check_rules(made)
    return made


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"scheduler": "sjf", "preemption_policy": "priority"},
        {"rollback_leak": True},
        {"kv_cpu_blocks": 300, "kv_transfer_base_latency_us": 7},
    ],
)
def test_blis_by_name_is_blis(settings):
    chosen = config("engine.name=blis", *(f"engine.blis.{key}={str(value).lower()}" for key, value in settings.items()))
    result = fastsim.simulate(chosen)
    case = {"total_kv_blocks": 400, "horizon_us": 60_000_000, **settings}
    latency = {"alpha": [232.46, 1.75, 3357.44], "beta": [5752.71, 17.25, 6.0]}
    records = case_records({"config": case, "latency": latency})
    own = simulate_records(records, blis_workload(build_workload(chosen.workload), 0))
    assert result.metrics["preemptions"] == own.totals["preemptions"] > 0
    assert result.metrics["completed"] == own.aggregate["completed_requests"]
    for name in own.aggregate.dtype.names:
        assert result.metrics[f"blis_{name}"] == own.aggregate[name]
    assert np.array_equal(result.requests.finish_us, own.log.finish_us)


@pytest.mark.parametrize("wavefront", [False, True])
@pytest.mark.parametrize("caching", [False, True])
def test_rlt_by_name_is_rlt(wavefront, caching):
    flags = {"wavefront": wavefront, "prefix_caching": caching, "incremental": True, "prefill_chunk_size": 64}
    chosen = config(
        "engine.name=vllm-rlt",
        "engine.policy=priority",
        "workload.prefix.groups=2",
        "workload.prefix.tokens=100",
        "workload.priority.values=[0,1,2]",
        *(f"engine.rlt.{key}={str(value).lower()}" for key, value in flags.items()),
        blocks=4000,
    )
    result = fastsim.simulate(chosen)
    b0, b1, b2, loops = 5752.71, 17.25, 6.0, 4
    latency = StageLatency(
        prefill_us=b0,
        prefill_us_per_token=b1,
        wavefront_us=b0 / loops,
        wavefront_us_per_token=b1 / loops,
        recurrent_us=b0 / loops,
        recurrent_us_per_token=b2 / loops,
    )
    own_config = RltConfig(
        num_blocks=4000,
        max_num_seqs=256,
        horizon_us=60_000_000,
        max_steps=10**8,
        latency=latency,
        **flags,
    )
    offered = build_workload(chosen.workload)
    submitted = workload_for(offered, own_config)
    own = simulate_rlt(own_config, submitted)
    assert result.metrics["steps"] == own.totals["steps"] > 0
    assert result.metrics["rlt_admissions"] == own.extra["admissions"] > 0
    assert np.array_equal(result.requests.first_token_us[submitted.source], own.log.first_token_us)


def test_a_mixed_chunk_has_the_rows_of_its_engines_alone(tmp_path):
    spec = tmp_path / "mixed.toml"
    spec.write_text(
        "engine.num_gpu_blocks = 1000\nrun.horizon_s = 30\nworkload.num_requests = 20\n[sweep.axes]\n"
        'engine.max_num_seqs = [8, 20]\nengine.name = ["blis", "vllm-0.33.0", "vllm-rlt"]\n'
    )
    grid = Grid.from_toml(spec)
    workload = build_workload(grid.config(0).workload)
    rows = simulate_chunk(workload, engine_records(grid, 0, 6))
    for index in range(6):
        alone = simulate_chunk(workload, engine_records(grid, index, index + 1))
        assert np.array_equal(rows.floats[index], alone.floats[0], equal_nan=True)
        assert np.array_equal(rows.ints[index], alone.ints[0])
    assert len({row.tobytes() for row in rows.floats}) >= 5  # the engines differ
    mean = rows.floats[:, FLOAT_COLUMNS.index("blis_e2e_mean_ms")]
    for index in range(6):
        own = fastsim.simulate(grid.config(index)).metrics["blis_e2e_mean_ms"]
        assert (own is None) == (grid.config(index).engine.name != "blis")
        assert own is None or mean[index] == own > 0


def test_rows_of_the_discussion_under_blis():
    grid = Grid.from_toml(SWEEPS / "discussion_blis.toml")
    expected = {
        (300, 256, True): (0, 291),
        (300, 256, False): (175, 3613),
        (50, 256, True): (0, 207),
        (50, 256, False): (50, 110),
        (300, 32, False): (162, 0),
        (50, 32, False): (50, 0),
    }
    for index in range(8):
        chosen = grid.config(index)
        key = (chosen.workload.num_requests, chosen.engine.max_num_seqs, chosen.engine.blis.rollback_leak)
        if key in expected:
            metrics = fastsim.simulate(chosen).metrics
            assert (metrics["completed"], metrics["preemptions"]) == expected.pop(key)
    assert not expected


@pytest.mark.parametrize(("fixed", "completed", "preemptions", "ticks"), [(False, 3, 460, 500), (True, 10, 11, 124)])
def test_livelock_of_vllm_rlt(fixed, completed, preemptions, ticks):
    chosen = load_config(
        None,
        [
            f"workload.trace={SWEEPS / 'data' / 'seedfigures_nowave.csv'}",
            *["engine.name=vllm-rlt", "engine.num_gpu_blocks=48", "engine.block_size=1", "engine.max_num_seqs=4"],
            *["engine.max_num_batched_tokens=4", "engine.policy=priority", "engine.rlt.prefill_chunk_size=3"],
            *["engine.rlt.incremental=true", "engine.rlt.on_livelock=skip", "run.horizon_s=0.0005"],
            *["latency.b0_us=1", "latency.b1_us_per_prefill_token=0", "latency.b2_us_per_decode_token=0"],
            f"engine.count_restores={str(fixed).lower()}",
            f"engine.blocked_checks_limit={str(fixed).lower()}",
        ],
    )
    metrics = fastsim.simulate(chosen).metrics
    assert (metrics["completed"], metrics["preemptions"]) == (completed, preemptions)
    assert metrics["simulated_s"] == ticks / 1e6
    assert metrics["livelock"] is not fixed


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["engine.name=blis", "engine.watermark=0.1"], ["engine.watermark = 0.1", '"blis"', "no such knob"]),
        (["engine.name=blis", "engine.policy=priority"], ["engine.blis.scheduler"]),
        (["engine.name=blis", "workload.concurrency=3"], ["workload.concurrency = 3", "closed loop"]),
        (["engine.name=vllm-rlt", "engine.preemption_mode=restart"], ["engine.preemption_mode", '"vllm-rlt"']),
        (["engine.name=vllm-rlt", "workload.timeout_s=1"], ["workload.timeout_s = 1.0", "timeouts"]),
        (
            ["engine.name=vllm-rlt", "engine.rlt.wavefront=true", "engine.max_num_batched_tokens=8"],
            ["engine.rlt.prefill_chunk_size = 512", "engine.max_num_batched_tokens = 8"],
        ),
    ],
)
def test_what_an_engine_does_not_have_is_refused(settings, words):
    with pytest.raises(InputError) as refusal:
        config(*settings)
    assert all(word in str(refusal.value) for word in words)
    assert "\n" not in str(refusal.value)


def test_steps_are_not_recorded():
    with pytest.raises(InputError, match="steps are recorded only"):
        fastsim.simulate(config("engine.name=blis"), record_steps=True)
