"""Runs a sweep on this machine: a pool of worker processes, and what happens when they die."""

from fastsim.runner.cores import available_cores
from fastsim.runner.local import Interrupted, Progress, SweepResult, check_backend, sweep

__all__ = ["Interrupted", "Progress", "SweepResult", "available_cores", "check_backend", "sweep"]
