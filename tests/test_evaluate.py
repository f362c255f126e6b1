"""The evaluator gives the rows of a sweep, whatever is asked for in whatever order, here or in worker processes."""

import os
import signal
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from fastsim import Config, Grid, InputError, WorkError, build_workload, scan, simulate, sweep
from fastsim.analysis.evaluate import evaluate
from fastsim.analysis.evaluate.evaluate import Evaluator, EvaluatorJob
from fastsim.analysis.evaluate.loads import WINDOW_REQUESTS, Load, LoadPlan, changed
from fastsim.config.derived import with_values
from fastsim.records import record_of
from fastsim.simulation import Session
from fastsim.sweeps.worker import TaskRunner

SPEC = {
    "engine": {"num_gpu_blocks": 400},
    "workload": {
        "num_requests": 40,
        "prompt": {"dist": "uniform", "min": 20, "max": 200},
        "output": {"dist": "uniform", "min": 10, "max": 100},
    },
    "sweep": {
        "seeds": 3,
        "axes": {"engine.max_num_seqs": [4, 8, 16], "engine.name": ["vllm-0.33.0", "blis"]},
    },
}


@pytest.fixture(scope="module")
def grid() -> Grid:
    return Grid.from_mapping(SPEC)


@pytest.fixture(scope="module")
def swept(grid: Grid, tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    out = tmp_path_factory.mktemp("sweep") / "out"
    sweep(grid, out, workers=1)
    return scan(out).collect()


def test_rows_are_those_of_a_sweep_in_the_order_asked(grid: Grid, swept: pl.DataFrame) -> None:
    order = np.random.default_rng(0).permutation(grid.size)
    with Evaluator(grid) as evaluator:
        rows = evaluator.rows(order.tolist())
        assert rows.equals(swept[order], null_equal=True)
        assert rows.schema == swept.schema
        again = evaluator.rows([5, 5, 0])
        assert again.equals(swept[[5, 5, 0]], null_equal=True)
        assert evaluator.runs == grid.size + 3


def test_workers_give_the_same_rows_and_end(grid: Grid, swept: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "POOL_PAYS_S", -1.0)
    with Evaluator(grid, workers=2) as evaluator:
        assert evaluator.rows(range(grid.size)).equals(swept, null_equal=True)
        assert evaluator._pool is not None
        processes = [worker.process for worker in evaluator._pool.workers]
        assert all(process.is_alive() for process in processes)
        bad = with_values(grid.base, {"workload.trace": "/nowhere.csv"}).workload
        with pytest.raises(InputError, match=r"/nowhere\.csv"):
            evaluator.table([(Load(bad), grid.base), (Load(grid.base.workload), grid.base)])
    assert not any(process.is_alive() for process in processes)


class DeadlyJob(EvaluatorJob):
    """Whatever its workers are given kills them."""

    def start(self) -> TaskRunner:
        return lambda task, announce, asked: os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_is_one_sentence_and_all_end(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "POOL_PAYS_S", -1.0)
    monkeypatch.setattr(evaluate, "EvaluatorJob", DeadlyJob)
    with Evaluator(grid, workers=2) as evaluator:
        with pytest.raises(WorkError, match=r"a worker process died \(killed by SIGKILL\); fewer workers need less"):
            evaluator.rows(range(grid.size))
        assert evaluator._pool is None
        monkeypatch.undo()
        assert evaluator.rows([0, 1])["config_id"].to_list() == [0, 1]


def test_a_table_has_the_metrics_of_configurations_over_loads(grid: Grid) -> None:
    loads = [Load(grid.base.workload), Load(grid.base.workload, output_factor=1.5)]
    configs = [with_values(grid.base, {"engine.max_num_seqs": seqs}) for seqs in (4, 16)]
    pairs = [(load, config) for config in configs for load in loads]
    table = Evaluator().table(pairs)
    for place, (load, config) in enumerate(pairs):
        alone = simulate(config, changed(build_workload(config.workload), load)).metrics
        for name in ("ttft_p99_ms", "completed", "e2e_served_mean_ms"):
            assert table[name][place] == alone[name]
    assert table["steps"][1] > table["steps"][0]


def test_what_cannot_be_asked_is_one_sentence(grid: Grid) -> None:
    evaluator = Evaluator(grid)
    with pytest.raises(InputError, match=f"config-id 18, but an integer from 0 to {grid.size - 1}"):
        evaluator.rows([0, 18])
    with pytest.raises(InputError, match="without a grid"):
        Evaluator().rows([0])
    with pytest.raises(InputError, match="workers = 0"):
        Evaluator(grid, workers=0)


def test_a_session_gives_what_single_runs_give(grid: Grid) -> None:
    workload = build_workload(grid.base.workload)
    session = Session(workload, record_of(grid.base))
    for b0_us in (4000.0, 9000.0, 4000.0):
        config = with_values(grid.base, {"latency.b0_us": b0_us})
        session.run(record_of(config))
        assert np.array_equal(session.log.finish_us, simulate(config, workload).requests.finish_us)
    assert session.runs == 3
    with pytest.raises(InputError, match=r"calibration runs vllm-0\.33\.0"):
        Session(workload, record_of(with_values(grid.base, {"engine.name": "blis"})))


def test_loads_change_what_they_say_and_nothing_else() -> None:
    config = Config().workload.model_copy(update={"num_requests": 300})
    plan = LoadPlan(kept=2)
    plain = plan.build(Load(config))
    assert plan.build(Load(config)) is plain
    longer = plan.build(Load(config, output_factor=1.25))
    assert np.array_equal(longer.output_tokens, np.rint(plain.output_tokens * 1.25))
    assert np.array_equal(longer.arrival_us, plain.arrival_us)
    third = plan.build(Load(config, replicas=3))
    assert np.array_equal(third.arrival_us, plain.arrival_us[::3])
    assert len(plan._loads) == 2

    other = plan.build(Load(config, exchange=1))
    assert np.array_equal(other.arrival_us, plain.arrival_us)
    pairs = np.stack([plain.prompt_tokens, plain.output_tokens])
    swapped = np.stack([other.prompt_tokens, other.output_tokens])
    assert not np.array_equal(pairs, swapped)
    for start in range(0, 300, WINDOW_REQUESTS):
        part = slice(start, start + WINDOW_REQUESTS)
        assert sorted(map(tuple, pairs[:, part].T)) == sorted(map(tuple, swapped[:, part].T))
    assert not np.array_equal(other.prompt_tokens, plan.build(Load(config, exchange=2)).prompt_tokens)

    clients = replace(plain, concurrency=10, arrival_us=np.zeros(300, np.int64))
    assert changed(clients, Load(config, replicas=3)).concurrency == 3
