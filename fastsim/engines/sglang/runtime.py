"""SGLang behind the contract."""

from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.engines.contract import NO_MODEL_LEN, Batch, BatchRuntime, Records
from fastsim.engines.encode import Take
from fastsim.engines.outputs import new_request_log
from fastsim.engines.sglang.inputs import I64, SglangWorkload, from_workload
from fastsim.engines.sglang.records import config_records
from fastsim.engines.sglang.runner import run_records
from fastsim.workload import Workload

MAX_LOG_ENTRIES = 2**17
"""Requests times runs whose logs are kept at once: 11 MB."""


CLIPS = ("pool", "page_size", "context_length")
"""What SGLang cuts `max_new_tokens` by."""


class SglangRuntime(BatchRuntime):
    """SGLang: its rows are made of logs that are kept, a few runs at a time."""

    def config_records(self, take: Take, count: int, params: Records) -> Records:
        """See `fastsim.engines.sglang.records`."""
        records = config_records(take, count)
        params["max_model_len"] = NO_MODEL_LEN
        params["block_size"] = records["page_size"]
        chunk = np.where(records["chunks"] != 0, records["chunked_prefill_size"], records["max_prefill_tokens"])
        params["token_budget"] = chunk
        return records

    def run_batches(self, workload: Workload, records: Records, *, fast_forward: bool) -> Iterator[Batch]:
        """Run every configuration; those that let the requests generate as much share a batch."""
        records = records.copy()
        records["fast_forward"] = fast_forward
        per_batch = max(1, MAX_LOG_ENTRIES // max(workload.num_requests, 1))
        plain = from_workload(workload)
        for ignores in (0, 1):
            offered = plain._replace(ignore_eos=np.full(workload.num_requests, ignores))
            mine = np.flatnonzero(records["ignore_eos"] == ignores)
            for alike, output_tokens in _by_outputs(records, mine, offered):
                for first in range(0, len(alike), per_batch):
                    yield _run(records, alike[first : first + per_batch], offered, output_tokens)

    def verify_case(self, case: dict[str, Any]) -> str | None:
        """Replay a recorded case: every column of every pass."""
        from fastsim.engines.sglang.golden import verify_case

        return verify_case(case)


def _run(records: Records, places: npt.NDArray[np.intp], offered: SglangWorkload, output_tokens: I64) -> Batch:
    log = new_request_log(len(places) * offered.num_requests)
    start_ns = perf_counter_ns()
    log, totals, own, itl_histogram = run_records(records[places], offered, log)
    kernel_ns = perf_counter_ns() - start_ns
    columns = {
        "sglang_retractions": own["retractions"].astype(np.float64),
        "sglang_priority_preemptions": own["preemptions"].astype(np.float64),
        "sglang_aborted": own["aborted"].astype(np.float64),
    }
    return Batch(places, offered.prompt_tokens, output_tokens, log, totals, itl_histogram, kernel_ns, columns=columns)


def _by_outputs(
    records: Records, places: npt.NDArray[np.intp], offered: SglangWorkload
) -> Iterator[tuple[npt.NDArray[np.intp], I64]]:
    """Configurations that let every request generate the same number of tokens, and these numbers."""
    groups: dict[bytes, tuple[list[int], I64]] = {}
    known: dict[tuple[int, int, int], I64] = {}
    for place in places.tolist():
        pool, page_size, context_length = (int(records[name][place]) for name in CLIPS)
        key = pool, page_size, context_length
        if key not in known:
            known[key] = _outputs(pool, page_size, context_length, offered)
        outputs = known[key]
        groups.setdefault(outputs.tobytes(), ([], outputs))[0].append(place)
    for members, outputs in groups.values():
        yield np.array(members, np.intp), outputs


def _outputs(pool: int, page_size: int, context_length: int, offered: SglangWorkload) -> I64:
    """Tokens that each request generates if it is served: its output, cut where SGLang cuts `max_new_tokens`."""
    prompt = offered.prompt_tokens
    whole = -(-prompt // page_size) * page_size
    limit = np.minimum(offered.max_new_tokens, min(context_length, pool) - 1 - prompt - 1)
    limit = np.maximum(np.minimum(limit, pool - whole - page_size - 1), 1)  # a limit of 0 yields a token all the same
    return np.where(offered.ignore_eos != 0, limit, np.minimum(limit, offered.output_tokens))


RUNTIME = SglangRuntime()
