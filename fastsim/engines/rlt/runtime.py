"""vllm-rlt behind the contract."""

from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any

import numpy as np

from fastsim.engines.contract import NO_MODEL_LEN, Batch, BatchRuntime, Records
from fastsim.engines.encode import Take
from fastsim.engines.outputs import ITL_BINS, TOTALS_DTYPE, new_request_log
from fastsim.engines.rlt.codes import OnLivelock
from fastsim.engines.rlt.inputs import open_loop, with_page_keys
from fastsim.engines.rlt.kernel import run_many
from fastsim.engines.rlt.records import config_records
from fastsim.engines.rlt.runner import state_for
from fastsim.engines.rlt.state import RLT_TOTALS_DTYPE, new_scalars
from fastsim.metrics.columns import NULL
from fastsim.workload import Workload

MAX_LOG_ENTRIES = 2**17
"""Requests times runs whose logs are kept at once: 11 MB."""


class RltRuntime(BatchRuntime):
    """vllm-rlt: its rows are made of logs that are kept, a few runs at a time."""

    def config_records(self, take: Take, count: int, params: Records) -> Records:
        """See `fastsim.engines.rlt.records`."""
        params["max_model_len"] = NO_MODEL_LEN
        records = config_records(take, count)
        params["swap_us_per_block"] = records["swap_us_per_block"]
        return records

    def run_batches(self, workload: Workload, records: Records, *, fast_forward: bool) -> Iterator[Batch]:
        """Run every configuration. Without `fast_forward` no cycle of a livelock is skipped."""
        if not fast_forward:
            records = records.copy()
            records["on_livelock"][records["on_livelock"] == OnLivelock.SKIP] = OnLivelock.STEP
        plain = open_loop(workload)
        per_batch = max(1, MAX_LOG_ENTRIES // max(workload.num_requests, 1))
        shared_pages = np.where(records["prefix_caching"] != 0, records["block_size"], 0)
        for block_size in np.unique(shared_pages):
            offered = with_page_keys(plain, workload, int(block_size)) if block_size else plain
            alike = np.flatnonzero(shared_pages == block_size)
            state = state_for(records[alike], offered, new_request_log(0))
            for first in range(0, len(alike), per_batch):
                places = alike[first : first + per_batch]
                log = new_request_log(len(places) * workload.num_requests)
                totals = np.zeros(len(places), TOTALS_DTYPE)
                extras = np.zeros(len(places), RLT_TOTALS_DTYPE)
                itl_histogram = np.zeros((len(places), ITL_BINS), np.int64)
                scalars = new_scalars(workload.num_requests)
                start_ns = perf_counter_ns()
                run_many(records[places], scalars, state, log, totals, extras, itl_histogram)
                yield Batch(
                    places,
                    offered.prompt_tokens,
                    offered.output_tokens,
                    log,
                    totals,
                    itl_histogram,
                    perf_counter_ns() - start_ns,
                    own={f"rlt_{name}": extras[name] for name in extras.dtype.names or ()},
                    order=offered.source,
                )

    def correct_rows(self, records: Records, floats: Records, ints: Records, totals: Records) -> None:
        """Null what metrics derive from blocks a token, where a token needs a block in each of several depth planes."""
        planed = records["planes"] > 1
        for name in ("kv_capacity_req_per_s", "offered_kv_load", "offered_load"):
            floats[name][planed] = np.nan
        ints["kv_safe_num_seqs"][planed] = NULL

    def verify_case(self, case: dict[str, Any]) -> str | None:
        """Replay a recorded case, in both accountings."""
        from fastsim.engines.rlt.golden import verify_case

        return verify_case(case)


RUNTIME = RltRuntime()
