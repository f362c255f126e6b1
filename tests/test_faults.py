"""The short form of `python -m tests.faults`: each fault a few times, on small sweeps."""

import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fastsim.sweeps.grid import Grid
from tests.fake_simulation import sweep_with
from tests.faults import corruptions, kills, others
from tests.faults.fake_workloads import KILLS, OUT_OF_MEMORY, DeadlyJob
from tests.faults.sweeps import Target


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def target(work: Path) -> Target:
    """2,000 configurations in 35 parts."""
    return Target.prepared(work, 2_000, 2)


def silent(text: str) -> None:
    """No progress."""


@pytest.mark.parametrize("role", ["group", "server"])
def test_a_killed_sweep_goes_on(target: Target, work: Path, role: str) -> None:
    kills.kill_once(target, work / role, role, random.Random(1))


def test_damaged_folders_are_completed(target: Target, work: Path) -> None:
    counts = corruptions.inflict(target, work, random.Random(2), 6, silent)
    assert counts["cases"] == 6
    assert counts["refused"] <= 1


def test_tables_cut_at_any_byte_lose_nothing(target: Target, work: Path) -> None:
    counts = corruptions.cut_everywhere(target, work, 251, silent)
    assert min(counts["manifest_cuts"], counts["journal_cuts"]) > 2


def test_clocks_decide_nothing(target: Target, work: Path) -> None:
    assert others.change_clocks(target, work, random.Random(3), 2, silent)["clock_changes"] == 2


def test_workloads_that_keep_killing_workers_are_rows_of_status_error(tmp_path: Path) -> None:
    axes: dict[str, list[Any]] = {"workload.num_requests": [5, KILLS, 6, OUT_OF_MEMORY], "engine.max_num_seqs": [1, 2]}
    grid = Grid.from_mapping({"engine.num_gpu_blocks": 100, "sweep": {"axes": axes}})
    result = sweep_with(DeadlyJob, grid, tmp_path, workers=1)
    rows = pl.scan_parquet(tmp_path / "parts" / "*.parquet").collect()
    assert rows["status"].to_list() == [status for status in ("ok", "error", "ok", "error") for _ in range(2)]
    assert rows["workload_id"].null_count() == 4
    assert result.errors == dict.fromkeys((2, 3, 6, 7), "its workload keeps killing workers")
