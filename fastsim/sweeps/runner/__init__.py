"""Runs a sweep, on this machine or on a Ray cluster: a pool of worker processes, and what happens when they die."""

from fastsim.sweeps.runner.cores import available_cores
from fastsim.sweeps.runner.driver import Interrupted, SweepResult, check_backend, sweep
from fastsim.sweeps.runner.progress import Progress

__all__ = ["Interrupted", "Progress", "SweepResult", "available_cores", "check_backend", "sweep"]
