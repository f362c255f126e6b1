"""The same bytes however the work is cut, ordered and shared, and on whatever x86-64 processor (that one is slow)."""

import hashlib
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from fastsim.sweeps.grid import Grid
from fastsim.sweeps.runner import sweep
from fastsim.sweeps.store.merge import merge
from fastsim.sweeps.worker import Pace, PartRun, SweepJob, Task, part_data
from fastsim.workload import WorkloadPlan

SPEC = {
    "engine.block_size": 16,
    "workload.num_requests": 40,
    "workload.arrival": {"kind": "poisson", "rate_per_s": 20},
    "workload.prompt": {"dist": "lognormal", "mean": 80, "stdev": 60, "min": 1, "max": 400},
    "workload.output": {"dist": "lognormal", "mean": 60, "stdev": 60, "min": 1, "max": 300},
    "run.horizon_s": 60,
    "sweep": {
        "axes": {
            "engine.name": ["vllm-0.33.0", "vllm-0.16.0", "vllm-0.33.0-async", "blis", "vllm-rlt"],
            "engine.max_num_seqs": [2, 8, 32],
            "engine.num_gpu_blocks": [60, 120],
        },
        "seeds": 4,
    },
}
GRID = Grid.from_mapping(SPEC)
"""Four workloads of 30 configurations, five engines."""


def compute(parts, plan=None, step_s=0.2):
    """The bytes of some parts, in one process."""
    job, plan = SweepJob(GRID, None), plan or WorkloadPlan()
    pace = Pace(step_s=step_s)
    return {part.index: PartRun(job, plan, Task(part), lambda index: None, pace=pace).run().data for part in parts}


@pytest.fixture(scope="module")
def expected():
    return compute(GRID.select(rows_per_part=10).parts())


def test_the_number_of_rows_in_a_kernel_call_decides_nothing(expected):
    parts = GRID.select(rows_per_part=10).parts()
    assert compute(parts, step_s=0.0) == expected  # one row a call


def test_the_order_of_parts_and_what_ran_before_decide_nothing(expected):
    parts = [*GRID.select(rows_per_part=10).parts()]
    plan = WorkloadPlan(kept=1)
    assert compute(parts[::-1], plan) == expected
    assert compute(parts[5:], plan) == {part.index: expected[part.index] for part in parts[5:]}


@pytest.mark.parametrize("cuts", [[0, 1, 10], [0, 5, 6, 7, 10], [*range(11)]])
def test_workers_that_share_a_part_decide_nothing(expected, cuts):
    part = GRID.select(rows_per_part=10).part(4)
    plan, job = WorkloadPlan(), SweepJob(GRID, None)
    tasks = [Task(part, first=first, stop=stop) for first, stop in pairwise(cuts)]
    pieces = [PartRun(job, plan, task, lambda index: None).run().piece for task in reversed(tasks)]
    assert part_data(GRID, part, pieces[::-1]) == expected[4]


def test_workers_and_shards_decide_nothing(expected, tmp_path):
    sweep(GRID, tmp_path / "two", rows_per_part=10, workers=2, limit=50)
    for n in (1, 2):
        sweep(GRID, tmp_path / f"shard{n}", rows_per_part=10, workers=1, limit=50, shard=(n, 2))
    merge([tmp_path / "shard1", tmp_path / "shard2"], tmp_path / "merged")
    for name in ("two", "merged"):
        stored = {int(path.stem[-6:]): path.read_bytes() for path in (tmp_path / name / "parts").iterdir()}
        assert stored == {index: data for index, data in expected.items() if index in stored}
        assert len(stored) == 5


PRINT_DIGEST = """
import hashlib
from tests.test_determinism import GRID, compute
parts = compute(GRID.select(rows_per_part=60).parts())
print(hashlib.sha256(b"".join(parts.values())).hexdigest())
"""

NUMPY_WITHOUT = {"X86_V4": "X86_V4 AVX512_ICL AVX512_SPR", "X86_V3": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR"}
"""What NumPy 2.4 must be told to leave unused; other releases name these otherwise."""

PROCESSORS = {
    "generic": {"NUMBA_CPU_NAME": "generic"},
    "haswell": {"NUMBA_CPU_NAME": "haswell"},
    "no AVX-512 in NumPy": {"NPY_DISABLE_CPU_FEATURES": NUMPY_WITHOUT["X86_V4"]},
    "no AVX2 in NumPy, no FMA in the C library": {
        "NPY_DISABLE_CPU_FEATURES": NUMPY_WITHOUT["X86_V3"],
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4",
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("processor", PROCESSORS)
def test_the_processor_decides_nothing(processor):
    expected = compute(GRID.select(rows_per_part=60).parts())
    digest = hashlib.sha256(b"".join(expected.values())).hexdigest()
    done = subprocess.run(
        [sys.executable, "-c", PRINT_DIGEST],
        cwd=Path(__file__).parent.parent,
        env=os.environ | PROCESSORS[processor],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [digest]
