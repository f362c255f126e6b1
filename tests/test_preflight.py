"""`fastsim check`: bounds against runs, and the estimate of a sweep against the sweep."""

from pathlib import Path

import numpy as np
import pytest

from fastsim.analysis.check.preflight import Fit, Regime, load_of
from fastsim.analysis.check.sweep_cost import spread, sweep_cost
from fastsim.cli import main
from fastsim.config import load_config
from fastsim.metrics import named_values
from fastsim.simulation import engine_records, simulate_chunk
from fastsim.sweeps.grid import Grid
from fastsim.sweeps.runner import sweep
from fastsim.workload import WorkloadPlan, build_workload

DISCUSSION = "sweeps/discussion.toml"


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ([], Regime.THRASH),
        (["engine.max_num_seqs=32"], Regime.OVERLOAD),
        (["workload.arrival.rate_per_s=0.5"], Regime.HOLDS),
        (["engine.max_num_seqs=32", "workload.arrival.kind=all_at_once", "workload.num_requests=20"], Regime.HOLDS),
        (["workload.arrival.kind=all_at_once", "workload.num_requests=50"], Regime.THRASH),
        (["engine.admission=projected"], Regime.OVERLOAD),
        (["workload.concurrency=100"], Regime.THRASH),
        (["workload.concurrency=20"], Regime.HOLDS),
    ],
)
def test_the_regime_of_known_cases(sets: list[str], expected: Regime) -> None:
    config = load_config(DISCUSSION, sets)
    load = load_of(config, build_workload(config.workload))
    assert load is not None
    assert load.regime is expected


def test_littles_law_against_a_long_run() -> None:
    """A stable run of constant lengths: the mean number running is what the closed form says."""
    sets = ["num_requests=1500", "arrival.rate_per_s=2", "prompt.dist=constant", "prompt.mean=200"]
    sets = [f"workload.{text}" for text in [*sets, "output.dist=constant", "output.mean=1000"]]
    grid = Grid.from_toml(None, ["engine.num_gpu_blocks=20000", *sets])
    workload = build_workload(grid.base.workload)
    load = load_of(grid.base, workload)
    rows = simulate_chunk(workload, engine_records(grid, 0, 1))
    metrics = named_values(rows.floats[0], rows.ints[0])
    assert load is not None
    assert load.regime is Regime.HOLDS
    assert load.concurrency == pytest.approx(metrics["running_mean"], rel=0.05)
    assert load.kv_share == pytest.approx(metrics["kv_use_mean"], rel=0.1)


def test_capacity_against_an_overloaded_run() -> None:
    """Slots full all the time: requests leave at the rate that the closed form calls the capacity."""
    sets = ["num_requests=600", "arrival.rate_per_s=50", "prompt.dist=constant", "prompt.mean=200"]
    sets = [f"workload.{text}" for text in [*sets, "output.dist=constant", "output.mean=300"]]
    grid = Grid.from_toml(None, ["engine.num_gpu_blocks=20000", "engine.max_num_seqs=16", *sets])
    workload = build_workload(grid.base.workload)
    load = load_of(grid.base, workload)
    rows = simulate_chunk(workload, engine_records(grid, 0, 1))
    metrics = named_values(rows.floats[0], rows.ints[0])
    assert load is not None
    assert load.regime is Regime.OVERLOAD
    assert load.capacity_per_s == pytest.approx(metrics["request_throughput_req_per_s"], rel=0.05)


def test_holds_never_thrashes_and_thrash_never_holds() -> None:
    axes = ["workload.arrival.rate_per_s=1,2,3,5,10", "engine.max_num_seqs=16,32,48,64,128,256"]
    grid = Grid.from_toml(DISCUSSION, ["engine.name=vllm-0.33.0", "engine.preemption_mode=recompute"], axes)
    plan = WorkloadPlan()
    seen = set()
    for index in range(grid.size):
        config = grid.config(index)
        workload = plan.build(config.workload)
        load = load_of(config, workload)
        rows = simulate_chunk(workload, engine_records(grid, index, index + 1))
        metrics = named_values(rows.floats[0], rows.ints[0])
        assert load is not None
        if load.regime is Regime.HOLDS:
            assert metrics["recomputed_share"] < 0.1, index
        if load.regime is Regime.THRASH:
            assert metrics["preemptions"] > 0, index
        seen.add(load.regime)
    assert seen == set(Regime)


def test_fit_counts_what_can_never_fit() -> None:
    config = load_config(None, ["engine.num_gpu_blocks=50", "workload.num_requests=100"])
    workload = build_workload(config.workload)
    fit = Fit.of(config, workload)
    needed = -(-(workload.prompt_tokens + workload.output_tokens - 1) // 16)
    assert [cause.count for cause in fit.unservable] == [int((needed > 49).sum())] != [0]


def test_the_estimate_of_a_sweep_against_the_sweep(tmp_path: Path) -> None:
    grid = Grid.from_toml("sweeps/watermark.toml", ["workload.num_requests=60"])
    parts = sum(1 for _ in grid.select().parts())
    cost = sweep_cost(grid, parts)
    sweep(grid, tmp_path / "s", workers=1)
    size = sum(path.stat().st_size for path in (tmp_path / "s" / "parts").glob("*.parquet"))
    assert 0.5 * size < cost.size_bytes < 2 * size
    assert 0 < cost.least_ms <= cost.most_ms
    assert 16 <= cost.runs <= grid.size
    assert cost.cpu_s * 1e3 < 4 * cost.most_ms * grid.size + 2000


def test_spread_meets_every_value_of_every_axis() -> None:
    """2**20 configurations with axes of powers of two: equal distances would always meet the same ones."""
    picks = np.array(spread(2**20, 256))
    assert len(set(picks.tolist())) == 256
    assert picks.min() >= 0
    assert picks.max() < 2**20
    for bit in range(20):
        assert 0.3 < ((picks >> bit) & 1).mean() < 0.7, bit
    early = np.sort(picks[:16]) / 2**20
    assert np.diff(early).max() < 0.13
    assert spread(5, 256) == [0, 1, 2, 3, 4]
    assert max(spread(2**62, 256)) < 2**62


def test_the_command_says_what_to_expect(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["check", DISCUSSION])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "expected, from averages: near the edge 4, thrash 8, overload 4 (of 16)" in shown
    assert "a sweep of 16 rows takes about" in shown
    assert "arrivals / capacity" in shown
