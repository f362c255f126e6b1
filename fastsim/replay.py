"""Replay recorded cases of the real vLLM schedulers through the kernels."""

from typing import Any

from fastsim.config import resolved
from fastsim.engines.vllm.golden import case_config, case_workload, first_difference
from fastsim.records import record_of
from fastsim.simulation import run_recorded


def verify_case(case: dict[str, Any], *, fast_forward: bool = False, record_steps: bool = True) -> str | None:
    """Replay a recorded case: None when everything that must match does, else the first difference in one line."""
    records = record_of(resolved(case_config(case)))
    horizon_us = case["config"]["horizon_us"]
    if horizon_us is not None:
        records.engine["horizon_us"] = horizon_us
    records.engine["detect_livelock"] = 0  # recordings of requests that can never fit go on to their last step
    outcome = run_recorded(records, case_workload(case), fast_forward=fast_forward, record_steps=record_steps)
    return first_difference(case, outcome.steps, outcome.memory.log, outcome.memory.totals)
