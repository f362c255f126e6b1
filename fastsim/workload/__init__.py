"""Workloads: the requests of a run, made from distributions or read from a trace."""

from fastsim.workload.workload import Report, Workload

__all__ = ["Report", "Workload"]
