"""Stands in for the simulation in tests of the sweep machinery: rows that follow from index and workload.

The sweep's `run.max_steps` axis carries what a configuration does: misbehave in a way that the value chooses.
"""

import os
import signal
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np

from fastsim import _notice
from fastsim.metrics import FLOAT_COLUMNS, INT_COLUMNS
from fastsim.sweeps.runner import driver, sweep
from fastsim.sweeps.worker import SweepJob

FINE, RAISES, KILLS, KILLS_ONCE, SLOW, BREAKS_THE_WORKLOAD = 1, 2, 3, 4, 5, 6
_WHOSE = f"{os.getuid()}{os.environ.get('PYTEST_XDIST_WORKER', '')}"
MARKER = Path(tempfile.gettempdir()) / f"fastsim-test-{_WHOSE}-has-killed"
"""While it is missing, KILLS_ONCE kills. (Workers have the environment of the fork server, not of the test.)"""


class FakeJob(SweepJob):
    """Parts whose rows are made up, without kernels."""

    @property
    def modules(self):
        return ["fastsim.sweeps.worker"]

    def prepare(self):
        pass

    def simulate(self, workload, indices):
        floats = np.zeros((len(indices), len(FLOAT_COLUMNS)))
        ints = np.zeros((len(indices), len(INT_COLUMNS)), np.int64)
        for row, (index, what) in enumerate(zip(indices, self.grid.take("run.max_steps", indices), strict=True)):
            misbehave(int(what))
            floats[row] = index * 1000.0 + np.arange(len(FLOAT_COLUMNS)) + workload.arrival_us.sum() / 1e9
            floats[row, index % len(FLOAT_COLUMNS)] = np.nan
            ints[row, INT_COLUMNS.index("completed")] = index
            ints[row, INT_COLUMNS.index("verdict")] = index % 6
        return floats, ints


class CompilingJob(FakeJob):
    """The same, and its workers compile something first."""

    def prepare(self):
        _notice.tell(_notice.COMPILING)


def sweep_with(job, grid, out, **options):
    """A sweep whose workers do another job: `FakeJob`, or one made from it."""
    with mock.patch.object(driver, "SweepJob", job):
        return sweep(grid, out, **options)


def misbehave(what):
    if what == RAISES:
        raise RuntimeError("this configuration is not well")
    if what == KILLS:
        os.kill(os.getpid(), signal.SIGKILL)
    if what == KILLS_ONCE and not MARKER.exists():
        MARKER.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if what == SLOW:
        time.sleep(0.3)
