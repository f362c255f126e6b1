"""What happens in a worker process: a job's tasks, one after the other.

A sweep's tasks are parts: run their configurations, store their rows, say so. A part runs in steps of about a fifth of
a second. Between two steps a worker can be asked to share: it then hands in the rows it has, and others help with the
rest. What a row says never depends on how its part was cut.

This package is preloaded by the fork server, from which workers are forked, so importing it must not start threads:
polars comes in later, in the worker itself.
"""

from fastsim.sweeps.worker.part_run import STEP_S, Pace, PartRun, SweepJob, part_data
from fastsim.sweeps.worker.process import OUT_OF_MEMORY, Asked, limit_threads, main
from fastsim.sweeps.worker.task import Job, Outcome, Piece, Task, TaskRunner, building

__all__ = [
    "OUT_OF_MEMORY",
    "STEP_S",
    "Asked",
    "Job",
    "Outcome",
    "Pace",
    "PartRun",
    "Piece",
    "SweepJob",
    "Task",
    "TaskRunner",
    "building",
    "limit_threads",
    "main",
    "part_data",
]
