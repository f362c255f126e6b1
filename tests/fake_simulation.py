"""Stands in for `fastsim.simulation` in tests of the sweep machinery: rows that follow from index and workload.

The sweep's `run.max_steps` axis carries what a configuration does: misbehave in a way that the value chooses.
"""

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fastsim.metrics import FLOAT_COLUMNS, INT_COLUMNS

FINE, RAISES, KILLS, KILLS_ONCE, SLOW, BREAKS_THE_WORKLOAD = 1, 2, 3, 4, 5, 6
_WHOSE = f"{os.getuid()}{os.environ.get('PYTEST_XDIST_WORKER', '')}"
MARKER = Path(tempfile.gettempdir()) / f"fastsim-test-{_WHOSE}-has-killed"
"""While it is missing, KILLS_ONCE kills. (Workers have the environment of the fork server, not of the test.)"""


class Rows(NamedTuple):
    floats: np.ndarray
    ints: np.ndarray


def compile_kernels(grid):
    return 0.0


def records_at(grid, indices):
    return np.stack([indices, grid.take("run.max_steps", indices)], axis=1)


def simulate_chunk(workload, records, *, fast_forward=True):
    floats = np.zeros((len(records), len(FLOAT_COLUMNS)))
    ints = np.zeros((len(records), len(INT_COLUMNS)), np.int64)
    for row, (index, what) in enumerate(records):
        misbehave(int(what))
        floats[row] = index * 1000.0 + np.arange(len(FLOAT_COLUMNS)) + workload.arrival_us.sum() / 1e9
        floats[row, index % len(FLOAT_COLUMNS)] = np.nan
        ints[row, INT_COLUMNS.index("completed")] = index
        ints[row, INT_COLUMNS.index("verdict")] = index % 6
    return Rows(floats, ints)


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
