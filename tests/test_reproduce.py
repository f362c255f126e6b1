"""`fastsim run DIR --config-id N` gives a sweep's row again, to the last bit, over engines, policies and traces."""

import math
import os
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fastsim.cli.run import choose_config
from fastsim.metrics import COLUMNS
from fastsim.simulation import simulate
from fastsim.sweeps.grid import Grid
from fastsim.sweeps.runner import sweep
from fastsim.workload import build_workload

DATA = Path(__file__).parent / "data"

VLLM = {
    "engine.num_gpu_blocks": 300,
    "workload.num_requests": 40,
    "workload.rate_scale": 4,
    "engine.max_num_seqs": 24,
    "sweep": {
        "axes": {
            "workload.trace": [
                str(DATA / "azure2023_conv_first2000.csv"),
                str(DATA / "mooncake_conversation_first300.jsonl"),
                str(DATA / "vllm-0.19.0_RTX4090_Llama-3.1-8B"),
            ],
            "engine.name": ["vllm-0.33.0", "vllm-0.16.0"],
            "engine.num_gpu_blocks": [300, 3000],
            "engine.enable_prefix_caching": [True, False],
            "run.horizon_s": ["none", 20.5],
        },
        "choice": {
            "remedy": {
                "none": {},
                "watermark": {"engine.watermark": 0.05},
                "victim": {"engine.victim": "least_computed"},
                "restart": {"engine.preemption_mode": "restart"},
                "swap": {"engine.preemption_mode": "swap", "engine.swap_space_blocks": 500},
                "projected": {"engine.admission": "projected", "engine.projection": "mean"},
                "bypass": {"engine.bypass": True},
                "feedback": {"engine.running_cap": "feedback"},
                "shortest": {"engine.queue_order": "sjf"},
                "timeouts": {"workload.timeout_s": 3.0},
                "random": {"engine.victim": "random"},
                "limits": {"workload.max_tokens.dist": "constant", "workload.max_tokens.mean": 300},
            }
        },
    },
}
"""The vLLM engines with every kind of remedy, over three traces: 576 configurations."""

ALL = {
    "engine.num_gpu_blocks": 64,
    "workload.num_requests": 24,
    "workload.prompt": {"dist": "uniform", "min": 16, "max": 200},
    "workload.output": {"dist": "uniform", "min": 1, "max": 100},
    "sweep": {
        "seeds": 4,
        "axes": {
            "workload.arrival.rate_per_s": [5.0, 50.0],
            "engine.name": ["vllm-0.33.0", "vllm-0.16.0", "vllm-0.33.0-async", "blis", "vllm-rlt"],
            "engine.max_num_seqs": [1, 3, 8, 32],
            "engine.num_gpu_blocks": [32, 64, 200],
        },
    },
}
"""Every engine, over drawn workloads: 480 configurations."""


def swept(table: dict[str, Any], out: Path) -> pl.DataFrame:
    """The rows of all configurations, from a sweep with two workers."""
    grid = Grid.from_mapping(table)
    result = sweep(grid, out, workers=2)
    assert result.errors == {}
    return pl.scan_parquet(out / "parts" / "*.parquet").collect()


def assert_reproduced(out: Path, row: dict[str, Any]) -> None:
    """Take the way of `fastsim run OUT --config-id N`, and compare every column."""
    config = choose_config(out, row["config_id"], [])
    workload = build_workload(config.workload)
    metrics = simulate(config, workload).metrics
    assert workload.workload_id == row["workload_id"]
    for column in COLUMNS:
        expected, got = row[column.name], metrics[column.name]
        same = expected == got or (isinstance(got, float) and expected is None and math.isnan(got))
        assert same, f"config_id {row['config_id']}: {column.name} is {got}, was {expected}"


def reproduce(out: Path, rows: pl.DataFrame, count: int, seed: int) -> int:
    """Reproduce `count` random rows; how many there were."""
    chosen = random.Random(seed).sample(range(rows.height), min(count, rows.height))
    for index in chosen:
        assert_reproduced(out, rows.row(index, named=True))
    return len(chosen)


def test_twenty_random_rows_are_reproduced(tmp_path: Path) -> None:
    table = {**ALL, "sweep": {**ALL["sweep"], "seeds": 1}}
    rows = swept(table, tmp_path)
    assert rows["engine.name"].n_unique() == 5
    assert reproduce(tmp_path, rows, 20, 1) == 20


@pytest.mark.slow
def test_a_thousand_random_rows_are_reproduced(tmp_path: Path) -> None:
    """`FASTSIM_CASES=1000 python -m pytest -m slow tests/test_reproduce.py -s` prints the count."""
    count = int(os.environ.get("FASTSIM_CASES", "1000"))
    done = 0
    for name, table in (("vllm", VLLM), ("all", ALL)):
        rows = swept(table, tmp_path / name)
        done += reproduce(tmp_path / name, rows, round(count * (0.56 if name == "vllm" else 0.44)), 2)
    print(f"\n{done} rows reproduced")
    assert done >= min(count, 1000)
