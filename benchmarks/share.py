"""Where the CPU of a big sweep goes: scheduling, metrics, and everything around the kernel."""

from time import process_time

import numpy as np

from benchmarks.timing import Kernel
from fastsim.simulation import compile_kernels, engine_records, simulate_chunk
from fastsim.sweeps.grid import Grid
from fastsim.sweeps.store import schema
from fastsim.workload import Workload, WorkloadPlan

PROBES = 64
"""Configurations whose metrics are timed apart."""


def shares(grid: Grid, workloads: int) -> dict[str, float]:
    """Shares of the CPU time that a worker spends on some whole workloads of a grid, 0 to 1.

    `metrics` is timed on configurations spread over them and scaled up, `scheduling` is the rest of the kernel calls.
    """
    compile_kernels(grid)
    plan = WorkloadPlan()
    each = grid.configs_per_workload
    spent = dict.fromkeys(("workloads", "records", "kernel", "storing"), 0.0)
    metrics_s = 0.0
    chosen = np.linspace(0, grid.num_workloads - 1, workloads).astype(int).tolist()
    for number in chosen:
        first = number * each
        clock = process_time()
        workload = plan.build(grid.workload_config(number))
        spent["workloads"] += (now := process_time()) - clock
        records = engine_records(grid, first, first + each)
        spent["records"] += (clock := process_time()) - now
        rows = simulate_chunk(workload, records)
        spent["kernel"] += (now := process_time()) - clock
        indices = np.arange(first, first + each)
        frame = schema.part_frame(grid, indices, [workload.workload_id] * each, rows.floats, rows.ints)
        schema.part_bytes(frame, schema.file_metadata(grid))
        spent["storing"] += process_time() - now
        probes = np.linspace(first, first + each - 1, max(PROBES // workloads, 1)).astype(int).tolist()
        metrics_s += each * float(np.mean([_metrics_s(grid, index, workload) for index in probes]))
    total = sum(spent.values())
    shares = {name: seconds / total for name, seconds in spent.items()}
    shares["metrics"] = metrics_s / total
    shares["scheduling"] = shares.pop("kernel") - shares["metrics"]
    return shares


def _metrics_s(grid: Grid, index: int, workload: Workload) -> float:
    kernel = Kernel(grid.config(index), workload, fast_forward=True)
    kernel.run_ns()
    return kernel.metrics_ns() / 1e9
