"""Stands in for `fastsim.simulation`, as `tests.fake_simulation` does; building some workloads kills the worker."""

import os
import signal

from fastsim.workload import WorkloadPlan
from tests.fake_simulation import records_at, simulate_chunk

__all__ = ["compile_kernels", "records_at", "simulate_chunk"]

KILLS, OUT_OF_MEMORY = 13, 14
"""Numbers of requests whose workloads cannot be built."""


def compile_kernels(grid):
    """Called once in every worker, before it works."""
    build = WorkloadPlan.build

    def build_or_die(plan, config):
        if config.num_requests == KILLS:
            os.kill(os.getpid(), signal.SIGKILL)
        if config.num_requests == OUT_OF_MEMORY:
            raise MemoryError
        return build(plan, config)

    WorkloadPlan.build = build_or_die
    return 0.0
