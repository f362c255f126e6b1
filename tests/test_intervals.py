"""Decision intervals: whoever lies within them gets the row that running gives, byte for byte."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fastsim.cli.interval_text import intervals_text
from fastsim.config import Config, EngineConfig, RunConfig
from fastsim.engines.contract import DecisionInterval, Records
from fastsim.engines.vllm.chunk import REUSED
from fastsim.engines.vllm.intervals import KNOBS
from fastsim.engines.vllm.runtime import RUNTIME, VllmSession
from fastsim.metrics import new_rows
from fastsim.metrics.columns import PARAMS_DTYPE
from fastsim.records import records_at
from fastsim.simulation import simulate
from fastsim.sweeps.grid import Grid
from fastsim.workload import Workload, build_workload

SWEEPS = Path(__file__).parent.parent / "sweeps"
CASES = int(os.environ.get("FASTSIM_CASES", "12"))
Chunk = tuple[Workload, Records, Records]


def grid_around(rng: np.random.Generator, workload: Workload, config: EngineConfig) -> Chunk:
    """Some hundred configurations: every knob that intervals are about, over values near each other and far apart."""
    values = {
        "max_num_seqs": [int(v) for v in rng.choice((1, 2, 4, 8, 12, 16, 32, 64, 128), 4, replace=False)],
        "num_gpu_blocks": [int(v) for v in rng.integers(40, 3000, 3)],
        "max_num_batched_tokens": [128, int(rng.integers(128, 700)), 8192],
        "watermark": [0.0, 0.01, float(rng.choice((0.05, 0.3)))],
        "scheduler_reserve_full_isl": [True, False],
        "enable_prefix_caching": [False, True],
    }
    configs = []
    for _ in range(250):
        own = {name: choices[int(rng.integers(len(choices)))] for name, choices in values.items()}
        engine = config.model_copy(update=own)
        configs.append(Config(engine=engine, run=RunConfig(horizon_s=float(rng.choice((20.0, 200.0))))))
    return workload, *RUNTIME.records_of(configs)


def chunks() -> Iterator[Chunk]:
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(5, 120))
        shared = int(rng.choice((0, 0, 64)))
        workload = Workload.from_arrays(
            np.floor(np.cumsum(rng.exponential(1e6 / rng.uniform(0.3, 20), count))).astype(np.int64),
            shared + rng.integers(1, int(rng.choice((40, 500))), count),
            rng.integers(1, int(rng.choice((5, 60, 600))), count),
            priority=rng.integers(0, 3, count),
            prefix_group=np.where(rng.random(count) < 0.8, 0, -1) if shared else np.full(count, -1),
            prefix_tokens=np.full(count, shared),
        )
        engine = EngineConfig(
            policy=str(rng.choice(("fcfs", "priority"))),
            preemption_mode=str(rng.choice(("recompute", "recompute", "restart"))),
            block_size=int(rng.choice((8, 16))),
        )
        yield grid_around(rng, workload, engine)


def filled(chunk: Chunk, *, reuse: bool) -> tuple[Records, Records, list[int]]:
    workload, records, params = chunk
    rows = new_rows(len(records))
    done = VllmSession(workload, records)._fill(records, params, rows, reuse=reuse)
    return *rows, done.tolist()


def test_reused_rows_are_those_that_running_gives() -> None:
    reused = 0
    for chunk in chunks():
        floats, ints, done = filled(chunk, reuse=True)
        ran_floats, ran_ints, ran = filled(chunk, reuse=False)
        assert REUSED not in ran
        assert floats.tobytes() == ran_floats.tobytes()
        assert ints.tobytes() == ran_ints.tobytes()
        reused += Counter(done)[REUSED]
    assert reused > 20 * CASES


def test_rows_of_the_million() -> None:
    """Two of its workloads, at the least and the greatest rate: a third of the runs and more is spared."""
    grid = Grid.from_toml(SWEEPS / "million.toml")
    each = grid.configs_per_workload
    for number in (0, grid.num_workloads - 1):
        indices = np.arange(number * each, (number + 1) * each, 4)
        records = records_at(grid, indices)
        (share,) = records.shares
        chunk = (build_workload(grid.workload_config(number)), share.records, records.params)
        floats, ints, done = filled(chunk, reuse=True)
        ran_floats, ran_ints, _ = filled(chunk, reuse=False)
        assert floats.tobytes() == ran_floats.tobytes()
        assert ints.tobytes() == ran_ints.tobytes()
        assert Counter(done)[REUSED] > 0.3 * len(indices)


@pytest.mark.parametrize("name", KNOBS)
def test_every_knob_is_seen_not_to_matter(name: str) -> None:
    """A run in which nothing is short is that of any larger value: of each knob, apart from the others."""
    workload = Workload.from_arrays(np.arange(20) * 100_000, np.full(20, 50), np.full(20, 30))
    config = Config(engine=EngineConfig(num_gpu_blocks=2000, max_num_seqs=64, max_num_batched_tokens=4096))
    records, params = RUNTIME.records_of([config] * 2)
    records[name][1] += 1 if name not in ("scheduler_reserve_full_isl", "enable_prefix_caching") else 0
    if name in ("scheduler_reserve_full_isl", "enable_prefix_caching"):
        records[name][1] = 1 - records[name][0]
    if name == "max_num_seqs":
        records[name][1] += 100
    assert params.dtype == PARAMS_DTYPE
    assert filled((workload, records, params), reuse=True)[2] == [1, REUSED]


def test_a_difference_that_no_interval_is_about_is_run() -> None:
    workload = Workload.from_arrays(np.arange(20) * 100_000, np.full(20, 50), np.full(20, 30))
    config = Config(engine=EngineConfig(num_gpu_blocks=2000))
    records, params = RUNTIME.records_of([config] * 3)
    records["horizon_us"][1] = 10**6
    params["table_knots"][2] = 1
    assert REUSED not in filled((workload, records, params), reuse=True)[2]


def other_values(interval: DecisionInterval, config: Config) -> set[bool | int | float]:
    """Both ends of an interval, and something far above where there is no upper one."""
    most = interval.most
    if most is None:
        most = 1.0 if interval.key == "engine.watermark" else 2 * int(interval.least) + 1000
        if interval.key == "engine.max_num_seqs":  # vLLM starts with no more than its token budget
            most = config.engine.max_num_batched_tokens
    return {interval.least, most}


def test_ends_of_ranges_give_the_same_run() -> None:
    """What `fastsim run` says of a knob, tried: every request at the same times, on both ends of what is told."""
    told = Counter[str]()
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(5, 80))
        workload = Workload.from_arrays(
            np.floor(np.cumsum(rng.exponential(1e6 / rng.uniform(0.3, 20), count))).astype(np.int64),
            rng.integers(1, 500, count),
            rng.integers(1, int(rng.choice((5, 200))), count),
        )
        engine = EngineConfig(
            num_gpu_blocks=int(rng.integers(70, 1500)),
            max_num_seqs=int(rng.choice((4, 32, 128))),
            max_num_batched_tokens=int(rng.choice((128, 600, 4096))),
            watermark=float(rng.choice((0.0, 0.01, 0.1))),
            enable_prefix_caching=bool(rng.random() < 0.5),
        )
        config = Config(engine=engine, run=RunConfig(horizon_s=200.0))
        result = simulate(config, workload)
        for interval in result.intervals:
            knob = interval.key.removeprefix("engine.")
            assert interval.least <= interval.value
            assert interval.most is None or interval.value <= interval.most
            for value in other_values(interval, config) - {interval.value}:
                changed = config.model_copy(update={"engine": engine.model_copy(update={knob: value})})
                other = simulate(changed, workload)
                assert other.to_polars().equals(result.to_polars()), (seed, interval)
                told[knob] += 1
    assert len(told) == 6
    assert min(told.values()) >= 2


def test_words() -> None:
    free = DecisionInterval("engine.max_num_seqs", 256, 97, None)
    share = DecisionInterval("engine.watermark", 0.01, 0.0, 0.0315)
    switch = DecisionInterval("engine.enable_prefix_caching", False, False, True)
    fixed = DecisionInterval("engine.num_gpu_blocks", 7463, 7463, 7463)
    text = intervals_text([free, share, switch, fixed])
    assert "256  97 or more" in text
    assert "0.01  0 to 0.0315" in text
    assert "false  true or false" in text
    assert text.endswith("no other value is known to give the same run: num_gpu_blocks")
    assert "each setting" in intervals_text([fixed])
