"""Replay of recorded BLIS runs: every number BLIS printed."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.config import Config, EngineConfig, LatencyConfig, RunConfig
from fastsim.engines.blis.codes import NO_LIMIT, NONE, UNSERVABLE
from fastsim.engines.blis.inputs import BlisWorkload, build_workload
from fastsim.engines.blis.knobs import NAME, BlisKnobs
from fastsim.engines.blis.runner import BlisResult, simulate_records
from fastsim.engines.blis.runtime import RUNTIME

_TOLERANCE = 1e-9
_SHARED = {"total_kv_blocks": "num_gpu_blocks"} | {
    name: name for name in ("block_size", "max_num_seqs", "max_num_batched_tokens", "long_prefill_token_threshold")
}
_OWN = {name: name for name in BlisKnobs.model_fields} | {"cpu_kv_blocks": "kv_cpu_blocks"}
_COLUMNS = {"ttft_us": "ttft_us", "e2e_us": "e2e_us", "sched_delay_us": "scheduling_delay_us"}


def case_records(case: dict[str, Any], *, fast_forward: bool = True, **changes: Any) -> npt.NDArray[np.void]:
    """The configuration of a recorded case, with changed keys, as the one record that kernels read."""
    recorded = case["config"] | changes
    shared = {key: recorded[name] for name, key in _SHARED.items() if name in recorded}
    own = {key: recorded[name] for name, key in _OWN.items() if name in recorded}
    b0, b1, b2 = case["latency"]["beta"]
    latency = LatencyConfig.model_construct(
        b0_us=b0, b1_us_per_prefill_token=b1, b2_us_per_decode_token=b2, alpha=tuple(case["latency"]["alpha"])
    )
    engine = EngineConfig(name=NAME, **shared).model_copy(update={"blis": BlisKnobs(**own)})
    config = Config(engine=engine, latency=latency, run=RunConfig())
    records, _ = RUNTIME.records_of([config])
    for name in ("horizon_us", "max_steps"):
        if name in recorded:
            records[name] = NO_LIMIT if recorded[name] is None else recorded[name]
    records["fast_forward"] = fast_forward
    return records


def case_workload(case: dict[str, Any]) -> BlisWorkload:
    """Requests of a recorded case."""
    rows = case["requests"]
    arrival, prompt, output, slo, group, prefix, deadline = zip(*rows, strict=True) if rows else ((),) * 7
    names = {name: number for number, name in enumerate(dict.fromkeys(name for name in group if name))}
    return build_workload(
        arrival,
        prompt,
        output,
        slo_class=slo,
        prefix_group=[names.get(name, NONE) for name in group],
        prefix_tokens=prefix,
        deadline_us=deadline,
    )


def verify_case(case: dict[str, Any]) -> str | None:
    """Replay a recorded case: None when all numbers are BLIS's, else one line with the first difference."""
    result = simulate_records(case_records(case), case_workload(case))
    return _compare_requests(case["requests_out"], result) or _compare_totals(case, result)


def _compare_requests(expected: dict[str, Any], result: BlisResult) -> str | None:
    ids = [i for i, status in enumerate(result.log.status) if status != UNSERVABLE]
    if ids != expected["id"]:
        return f"requests_out.id: expected {expected['id']}, got {ids}"
    for row, i in enumerate(ids):
        for column, name in _COLUMNS.items():
            got = max(int(getattr(result.blis, name)[i]), 0)
            if got != expected[column][row]:
                return f"request {i}: {column}: expected {expected[column][row]}, got {got}"
        gaps = max(int(result.workload.output_tokens[i]) - 1, 1)
        mean_ms = int(result.blis.itl_sum_us[i]) / gaps / 1000
        if not _close(mean_ms, expected["itl_ms"][row]):
            return f"request {i}: itl_ms: expected {expected['itl_ms'][row]}, got {mean_ms}"
    return None


def _compare_totals(case: dict[str, Any], result: BlisResult) -> str | None:
    aggregate = result.aggregate
    pairs = {"steps": (case["steps"], int(result.totals["steps"]))}
    failures = int(aggregate["kv_allocation_failures"])
    pairs["kv_allocation_failures"] = (case["kv_allocation_failures"], failures)
    for name, value in case["aggregate"].items():
        pairs[f"aggregate.{name}"] = (value, aggregate[name].item())
    for name, (value, got) in pairs.items():
        if not _close(got, value):
            return f"{name}: expected {value}, got {got}"
    return None


def _close(got: float, expected: float) -> bool:
    if isinstance(expected, int):
        return got == expected
    return math.isclose(got, expected, rel_tol=_TOLERANCE, abs_tol=0.0)
