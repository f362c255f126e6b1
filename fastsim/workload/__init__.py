"""Workloads: the requests of a run, made from distributions or read from a trace.

`build_workload(config)` gives a `Workload`; a `WorkloadPlan` does the same for many configurations and builds each
distinct one once. `load_trace` reads a file of recorded requests.
"""

from fastsim.workload.build import WorkloadPlan, build_workload
from fastsim.workload.classes import configured_rate
from fastsim.workload.trace import Trace, Window, load_trace
from fastsim.workload.workload import Report, Workload

__all__ = ["Report", "Trace", "Window", "Workload", "WorkloadPlan", "build_workload", "configured_rate", "load_trace"]
