"""`fake_simulation`, whose workers compile something first."""

from fastsim import _notice
from tests.fake_simulation import records_at, simulate_chunk

__all__ = ["compile_kernels", "records_at", "simulate_chunk"]


def compile_kernels(grid):
    _notice.tell(_notice.COMPILING)
    return 0.0
