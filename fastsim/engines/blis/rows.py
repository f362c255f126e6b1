"""A chunk of configurations over one of fastsim's workloads, a few runs at a time."""

from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.engines.blis.engine import BlisBatch, BlisRunner, new_batch
from fastsim.engines.blis.inputs import BlisWorkload, build_workload
from fastsim.errors import InputError
from fastsim.workload import Workload

MAX_LOG_ENTRIES = 2**17
"""Requests times runs whose logs are kept at once: 14 MB."""


class BlisRuns(NamedTuple):
    """Some runs: their places in the chunk, the engine's workload, what they left, nanoseconds of the kernel call."""

    places: npt.NDArray[np.intp]
    workload: BlisWorkload
    batch: BlisBatch
    kernel_ns: int


def workload_for(workload: Workload, timeout_us: int) -> BlisWorkload:
    """The engine's view of a workload. A deadline is `timeout_us` after arrival; 0: none.

    Raises
    ------
    InputError
        When prefix groups extend each other: BLIS has one shared prefix a request.
    """
    if not workload.groups.is_flat:
        raise InputError("workload: its prefix groups form a tree, but engine blis expects groups that stand alone")
    return build_workload(
        workload.arrival_us,
        workload.prompt_tokens,
        workload.output_tokens,
        priority=workload.priority,
        prefix_group=workload.prefix_group,
        prefix_tokens=workload.prefix_tokens,
        timeout_us=timeout_us,
    )


def run_batches(
    workload: Workload, records: npt.NDArray[np.void], timeouts: npt.NDArray[np.int64]
) -> Iterator[BlisRuns]:
    """Run every configuration of `records` (CONFIG_DTYPE), `timeouts` being int64 microseconds of the same shape."""
    per_batch = max(1, MAX_LOG_ENTRIES // max(workload.num_requests, 1))
    for timeout_us in np.unique(timeouts):
        offered = workload_for(workload, int(timeout_us))
        alike = np.flatnonzero(timeouts == timeout_us)
        runner = BlisRunner(offered, records[alike])
        for first in range(0, len(alike), per_batch):
            places = alike[first : first + per_batch]
            runner.configs = records[places]
            batch = new_batch(len(places), workload.num_requests, keep_logs=True)
            start_ns = perf_counter_ns()
            runner.run(batch)
            yield BlisRuns(places, offered, batch, perf_counter_ns() - start_ns)


OWN_COLUMNS = tuple(f"{kind}_{part}_ms" for kind in ("e2e", "itl") for part in ("mean", "p90", "p95", "p99"))
"""BLIS's own times, which every row has; they differ from what a client sees (see `summarise_blis`)."""


def own_columns(batch: BlisBatch) -> dict[str, npt.NDArray[np.float64]]:
    """Result columns that only BLIS fills, by name; float64, shape (runs,)."""
    return {f"blis_{name}": batch.aggregate[name] for name in OWN_COLUMNS}


def own_metrics(batch: BlisBatch) -> dict[str, Any]:
    """BLIS's own metrics of the only run of a batch: its names behind `blis_`."""
    return {f"blis_{name}": batch.aggregate[name][0].item() for name in batch.aggregate.dtype.names or ()}
