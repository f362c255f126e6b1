"""The short form of `python -m tests.faults`: each fault a few times, on small sweeps."""

import polars as pl

from fastsim.grid import Grid
from fastsim.runner import sweep
from tests.faults.fake_workloads import KILLS, OUT_OF_MEMORY


def test_workloads_that_keep_killing_workers_are_rows_of_status_error(tmp_path):
    axes = {"workload.num_requests": [5, KILLS, 6, OUT_OF_MEMORY], "engine.max_num_seqs": [1, 2, 3]}
    grid = Grid.from_mapping({"engine.num_gpu_blocks": 100, "sweep": {"axes": axes}})
    result = sweep(grid, tmp_path, workers=1, simulation="tests.faults.fake_workloads")
    rows = pl.scan_parquet(tmp_path / "parts" / "*.parquet").collect()
    assert rows["status"].to_list() == [status for status in ("ok", "error", "ok", "error") for _ in range(3)]
    assert rows["workload_id"].null_count() == 6
    assert result.errors == dict.fromkeys((3, 4, 5, 9, 10, 11), "its workload keeps killing workers")
