"""TensorRT-LLM's schedulers behind the contract."""

from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any

import numpy as np

from fastsim.engines.contract import NO_MODEL_LEN, Batch, BatchRuntime, Records
from fastsim.engines.encode import Take
from fastsim.engines.trtllm.inputs import from_workload
from fastsim.engines.trtllm.records import config_records
from fastsim.engines.trtllm.runner import run_records
from fastsim.workload import Workload

MAX_LOG_ENTRIES = 2**17
"""Requests times runs whose logs are kept at once: 11 MB."""


class TrtllmRuntime(BatchRuntime):
    """TensorRT-LLM: its rows are made of logs that are kept, a few runs at a time."""

    def config_records(self, take: Take, count: int, params: Records) -> Records:
        """See `fastsim.engines.trtllm.records`."""
        params["max_model_len"] = NO_MODEL_LEN  # outputs are cut before metrics see them
        return config_records(take, count)

    def run_batches(self, workload: Workload, records: Records, *, fast_forward: bool) -> Iterator[Batch]:
        """Run every configuration; those with the same longest request share a batch, as outputs end there."""
        records = records.copy()
        records["fast_forward"] = fast_forward
        offered = from_workload(workload)
        per_batch = max(1, MAX_LOG_ENTRIES // max(workload.num_requests, 1))
        for longest in np.unique(records["longest"]).tolist():
            alike = np.flatnonzero(records["longest"] == longest)
            limit = np.minimum(offered.max_new_tokens, longest - offered.prompt_tokens)
            output_tokens = np.maximum(np.minimum(offered.output_tokens, limit), 1)
            for first in range(0, len(alike), per_batch):
                places = alike[first : first + per_batch]
                start_ns = perf_counter_ns()
                log, totals, histograms = run_records(records[places], offered)
                kernel_ns = perf_counter_ns() - start_ns
                yield Batch(places, offered.prompt_tokens, output_tokens, log, totals, histograms, kernel_ns)

    def verify_case(self, case: dict[str, Any]) -> str | None:
        """There are no recordings of the real scheduler."""
        from fastsim.engines.trtllm.golden import verify_case

        return verify_case(case)


RUNTIME = TrtllmRuntime()
