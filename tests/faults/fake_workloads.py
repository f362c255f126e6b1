"""A job whose workers are killed when they build some workloads."""

import os
import signal

from fastsim.sweeps.worker import Pace, PartRun
from fastsim.workload import WorkloadPlan
from tests.fake_simulation import FakeJob

KILLS, OUT_OF_MEMORY = 13, 14
"""Numbers of requests whose workloads cannot be built."""


class DeadlyPlan(WorkloadPlan):
    """Builds workloads, but for some sizes."""

    def build(self, config):
        if config.num_requests == KILLS:
            os.kill(os.getpid(), signal.SIGKILL)
        if config.num_requests == OUT_OF_MEMORY:
            raise MemoryError
        return super().build(config)


class DeadlyJob(FakeJob):
    """Made-up rows of workloads that may kill."""

    def start(self):
        plan, pace = DeadlyPlan(), Pace()
        return lambda task, announce, asked: PartRun(self, plan, task, announce, asked, pace).run()
