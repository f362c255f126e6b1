"""BLIS behind the contract."""

from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any

import numpy as np

from fastsim.engines.blis.inputs import BlisWorkload, build_workload
from fastsim.engines.blis.knobs import ENGINE
from fastsim.engines.blis.records import config_records
from fastsim.engines.blis.runner import BlisRunner, new_batch
from fastsim.engines.contract import NO_MODEL_LEN, Batch, BatchRuntime, Records
from fastsim.engines.encode import Take
from fastsim.errors import InputError
from fastsim.workload import Workload

MAX_LOG_ENTRIES = 2**17
"""Requests times runs whose logs are kept at once: 14 MB."""


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


OWN_COLUMNS = tuple(column.name for column in ENGINE.columns)
"""BLIS's own times; they differ from what a client sees (see `summarise_blis`)."""


class BlisRuntime(BatchRuntime):
    """BLIS: its rows are made of logs that are kept, a few runs at a time."""

    def config_records(self, take: Take, count: int, params: Records) -> Records:
        """See `fastsim.engines.blis.records`."""
        records = config_records(take, count)
        longest = records["max_model_len"]
        params["max_model_len"] = np.where(longest > 0, longest, NO_MODEL_LEN)
        return records

    def run_batches(self, workload: Workload, records: Records, *, fast_forward: bool) -> Iterator[Batch]:
        """Run every configuration; those whose clients wait equally long share the workload's deadlines."""
        records = records.copy()
        records["fast_forward"] = fast_forward
        per_batch = max(1, MAX_LOG_ENTRIES // max(workload.num_requests, 1))
        timeouts_us = records["timeout_us"]
        for timeout_us in np.unique(timeouts_us):
            offered = workload_for(workload, int(timeout_us))
            alike = np.flatnonzero(timeouts_us == timeout_us)
            runner = BlisRunner(offered, records[alike])
            for first in range(0, len(alike), per_batch):
                places = alike[first : first + per_batch]
                runner.configs = records[places]
                left = new_batch(len(places), workload.num_requests, keep_logs=True)
                start_ns = perf_counter_ns()
                runner.run(left)
                kernel_ns = perf_counter_ns() - start_ns
                own = {f"blis_{name}": left.aggregate[name] for name in left.aggregate.dtype.names or ()}
                yield Batch(
                    places,
                    offered.prompt_tokens,
                    offered.output_tokens,
                    left.log,
                    left.totals,
                    left.itl_histogram,
                    kernel_ns,
                    columns={name: own[name] for name in OWN_COLUMNS},
                    own=own,
                )

    def verify_case(self, case: dict[str, Any]) -> str | None:
        """Replay a recorded case: every number BLIS printed."""
        from fastsim.engines.blis.golden import verify_case

        return verify_case(case)


RUNTIME = BlisRuntime()
