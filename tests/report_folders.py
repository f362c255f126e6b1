"""Sweeps' folders with made-up rows, for tests of the report: no simulation, the real files."""

import numpy as np

from fastsim.metrics import FLOAT_COLUMNS, INT_COLUMNS
from fastsim.metrics.columns import STATUSES, VERDICTS
from fastsim.sweeps.grid import Grid
from fastsim.sweeps.store import SweepFolder, write_part
from fastsim.sweeps.store.schema import empty_rows, file_metadata, part_bytes, part_frame

BASE = {"engine": {"num_gpu_blocks": 1000}, "workload": {"num_requests": 10}}
FULL = {
    "sweep": {
        "seeds": 3,
        "axes": {"workload.arrival.rate_per_s": [1, 2, 4], "engine.max_num_seqs": [8, 16, 32]},
        "choice": {"remedy": {"none": {}, "watermark": {"engine.watermark": 0.05}}},
    },
    "answer": {
        "question": "Which remedy?",
        "where": ["ttft_p99_ms <= 2000"],
        "best": ["most output_throughput_tok_per_s", "least recomputed_share"],
        "for_each": ["workload.arrival.rate_per_s"],
        "show": ["preemptions"],
    },
}


def make_folder(path, table, *, failing=(), verdicts=VERDICTS[::-1], parts=4, limit=None):
    """A folder of that sweep: throughput grows with the index, a fifth of the rows lack TTFT p99, `failing` failed."""
    grid = Grid.from_mapping(BASE | table)
    rows = max(1, -(-(limit or grid.size) // parts))
    with SweepFolder(path, grid, grid.select(rows_per_part=rows, limit=limit)) as folder:
        for part in list(folder.missing_parts()):
            indices = part.indices()
            frame = part_frame(grid, indices, workload_ids(grid, indices), *figures(indices, failing, verdicts))
            errors = {int(index): "ValueError: <it> broke" for index in indices if index in failing}
            folder.add(write_part(folder.path, part, part_bytes(frame, file_metadata(grid)), errors))
        folder.write_manifest("complete")
    return path


def workload_ids(grid, indices):
    return [f"w{grid.workload_index(int(index))}" for index in indices]


def figures(indices, failing, verdicts):
    """Metrics of some rows: numbers that follow from the index."""
    floats, ints = empty_rows(len(indices))
    noise = np.random.default_rng(1).random((int(indices[-1]) + 1, 8))[indices]
    ran = ~np.isin(indices, failing)
    values = {
        "request_throughput_req_per_s": 1 + noise[:, 0],
        "output_throughput_tok_per_s": 100.0 + indices + 10 * noise[:, 1],
        "goodput_req_per_s": noise[:, 0],
        "ttft_p50_ms": 100 * noise[:, 2],
        "ttft_p99_ms": np.where(indices % 5 == 4, np.nan, 10 + 4000 * noise[:, 3]),
        "ttft_served_p99_ms": 10 + 3000 * noise[:, 3],
        "tpot_served_mean_ms": 5 + noise[:, 4],
        "tpot_served_p99_ms": 9 + noise[:, 4],
        "e2e_p50_ms": 1000 * noise[:, 5],
        "recomputed_share": noise[:, 6] * (indices % 2),
        "kv_use_mean": noise[:, 7],
    }
    for name, column in values.items():
        floats[:, FLOAT_COLUMNS.index(name)] = np.where(ran, column, np.nan)
    codes = [VERDICTS.index(verdicts[int(index) % len(verdicts)]) for index in indices]
    counts = {"status": STATUSES.index("ok"), "verdict": codes, "preemptions": indices % 7, "completed": 10}
    for name, column in counts.items():
        ints[ran, INT_COLUMNS.index(name)] = np.broadcast_to(column, len(indices))[ran]
    return floats, ints
