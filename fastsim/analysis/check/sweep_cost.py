"""How long a sweep will take and how large it will be, from running a few of its configurations."""

from dataclasses import dataclass
from time import process_time

import numpy as np
import polars as pl

from fastsim.simulation import compile_kernels, engine_records, simulate_chunk
from fastsim.sweeps.grid import Grid
from fastsim.sweeps.store import schema
from fastsim.workload import WorkloadPlan

MAX_CHUNKS = 16
CHUNK = 64
"""Neighbours of a grid run together, as a worker runs them: alone, a short run costs several times as much."""
GOLDEN = 11_400_714_819_323_198_485
"""2**64 over the golden ratio."""
MAX_CPU_S = 4.0
"""No further configurations are tried after so much CPU time; one chunk always is."""


@dataclass(frozen=True)
class Cost:
    """An estimate from `runs` configurations in chunks spread over the grid.

    `cpu_s` and `size_bytes` are for the whole grid, compilation and the start of processes left out; `least_ms` and
    `most_ms` are CPU times of a configuration in the fastest and the slowest chunk.
    """

    runs: int
    cpu_s: float
    least_ms: float
    most_ms: float
    size_bytes: int


def sweep_cost(grid: Grid, parts: int) -> Cost:
    """Run configurations from all over the grid, and scale up: rows, workloads and parts."""
    compile_kernels(grid)
    plan = WorkloadPlan()
    run_s: list[float] = []
    build_s: list[float] = []
    frames = []
    first_s = process_time()
    for index in dict.fromkeys(_chunk_start(grid, index) for index in spread(grid.size, MAX_CHUNKS)):
        stop = min(index + CHUNK, (index // grid.configs_per_workload + 1) * grid.configs_per_workload)
        start_s = process_time()
        workload = plan.build(grid.workload_config(grid.workload_index(index)))
        built_s = process_time()
        rows = simulate_chunk(workload, engine_records(grid, index, stop))
        indices = np.arange(index, stop, dtype=np.int64)
        ids: list[str | None] = [workload.workload_id] * len(indices)
        frames.append(schema.part_frame(grid, indices, ids, rows.floats, rows.ints))
        run_s.append((process_time() - built_s) / len(indices))
        build_s.append(built_s - start_s)
        if process_time() - first_s > MAX_CPU_S:
            break
    tried = sum(frame.height for frame in frames)
    each_s = sum(s * frame.height for s, frame in zip(run_s, frames, strict=True)) / tried
    cpu_s = each_s * grid.size + sum(build_s) / len(build_s) * grid.num_workloads
    return Cost(tried, cpu_s, min(run_s) * 1e3, max(run_s) * 1e3, _size_bytes(grid, pl.concat(frames), parts))


def _chunk_start(grid: Grid, index: int) -> int:
    """Where the chunk of its workload begins in which a configuration lies."""
    return index - index % grid.configs_per_workload % CHUNK


def _size_bytes(grid: Grid, frame: pl.DataFrame, parts: int) -> int:
    """Bytes of a grid's `parts` files with rows like these: what a file costs, and what a row adds to it."""
    metadata = schema.file_metadata(grid)
    whole = len(schema.part_bytes(frame, metadata))
    if grid.size <= frame.height:
        return whole
    half = max(1, frame.height // 2)
    row = (whole - len(schema.part_bytes(frame.head(half), metadata))) / max(frame.height - half, 1)
    return round((whole - row * frame.height) * parts + row * grid.size)


def spread(size: int, count: int) -> list[int]:
    """At most `count` different integers below `size`, of which any beginning is spread evenly.

    Multiples of the golden ratio, modulo one: equal distances would meet the same values of the fast axes again.
    """
    if size <= count:
        return list(range(size))
    return list(dict.fromkeys((k * GOLDEN % 2**64 * size) >> 64 for k in range(1, count + 1)))
