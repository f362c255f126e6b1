"""Recorded cases of the real vLLM scheduler: read one, compare with it, name the first difference."""

from typing import Any

import numpy as np

from fastsim.config import Config, EngineConfig, LatencyConfig, RunConfig
from fastsim.engines.outputs import Stop
from fastsim.engines.vllm.groups.codes import GroupKind
from fastsim.engines.vllm.groups.layout import Group, Layout, Speculation
from fastsim.engines.vllm.groups.layouts import number_of_layout
from fastsim.engines.vllm.recorder import STEP_COLUMNS
from fastsim.engines.vllm.runtime import RUNTIME
from fastsim.workload import Workload

REQUEST_COLUMNS = (
    "first_scheduled_us",
    "first_token_us",
    "finish_us",
    "num_preemptions",
    "num_generated",
    "prefix_hit_tokens_first",
    "prefix_hit_tokens",
    "scheduled_tokens",
)
DRAFT_COLUMNS = ("verified_drafts", "accepted_drafts")
"""Columns of a request, where the recording has groups or drafts."""
HELD_COLUMNS = ("held_blocks", "verified")
"""Columns of a step, there."""
ENGINE_KEYS = (
    "block_size",
    "num_gpu_blocks",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "long_prefill_token_threshold",
    "long_prefill_token_threshold_adaptive",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "policy",
    "scheduler_reserve_full_isl",
    "watermark",
    "max_num_active_seqs",
    "max_num_scheduled_tokens",
    "prefill_schedule_interval",
)
UNLIMITED_STEPS = 10**8


def case_config(case: dict[str, Any]) -> Config:
    """The configuration of a recorded case. Its unservable requests spin, as in vLLM."""
    recorded = case["config"]
    return Config(
        engine=EngineConfig(name=case["engine"], unservable="spin", **{key: recorded[key] for key in ENGINE_KEYS}),
        latency=LatencyConfig.model_construct(
            b0_us=recorded["beta0"],
            b1_us_per_prefill_token=recorded["beta1"],
            b2_us_per_decode_token=recorded["beta2"],
        ),
        run=RunConfig.model_construct(max_steps=recorded["max_steps"] or UNLIMITED_STEPS),
    )


def recorded_layout(recorded: dict[str, Any]) -> Layout:
    """Groups and speculation of a recorded case; those of before have neither."""
    specs = recorded.get("kv_cache_groups") or [{"kind": "full", "block_size": recorded["block_size"]}]
    groups = tuple(
        Group(
            GroupKind[{"none": "STATE", "align": "ALIGNED"}.get(spec.get("mode", ""), spec["kind"].upper())],
            spec["block_size"],
            spec.get("window", spec.get("chunk", 0)),
            spec.get("spec_blocks", 0),
            spec.get("checkpoint", False),
        )
        for spec in specs
    )
    speculation = Speculation(
        method=recorded.get("spec_method"),
        k=recorded.get("num_speculative_tokens") or 0,
        lookahead_hashes=recorded.get("spec_lookahead_hashes", True),
        accept_permille=tuple(recorded.get("spec_accept_permille") or ()),
        seed=recorded.get("spec_seed", 0),
        hashed_drafts=recorded.get("spec_draft") == "hashed",
    )
    return Layout(groups, recorded.get("prefix_cache_retention_interval", 0), speculation)


def case_workload(case: dict[str, Any]) -> Workload:
    """The requests of a recorded case, by their index."""
    columns = np.array(case["requests"], np.int64).reshape(-1, 6).T
    return Workload.from_arrays(
        columns[0],
        columns[1],
        columns[2],
        priority=columns[3],
        prefix_group=columns[4],
        prefix_tokens=columns[5],
    )


def verify_case(case: dict[str, Any], *, fast_forward: bool = False, record_steps: bool = True) -> str | None:
    """Replay a recorded case: None when everything that must match does, else the first difference in one line."""
    records, params = RUNTIME.records_of([case_config(case)])
    horizon_us = case["config"]["horizon_us"]
    if horizon_us is not None:
        records["horizon_us"] = horizon_us
    records["layout"] = number_of_layout(recorded_layout(case["config"]))
    records["detect_livelock"] = 0  # recordings of requests that can never fit go on to their last step
    run = RUNTIME.run(case_workload(case), records, params, fast_forward=fast_forward, record_steps=record_steps)
    columns = {name: getattr(run.log, name) for name in REQUEST_COLUMNS}
    return first_difference(case, run.steps, columns | getattr(run, "by_request", {}), run.totals)


def first_difference(case: dict[str, Any], steps: list[Any] | None, log: dict[str, Any], totals: Any) -> str | None:
    """None when everything that must match does, else the first difference in one line."""
    difference = _step_difference(case, steps) if steps is not None else None
    return difference or _request_difference(case, log) or _total_difference(case, totals)


def _step_difference(case: dict[str, Any], steps: list[Any]) -> str | None:
    scheduled: list[int] = []
    for number, (row, step) in enumerate(zip(case["steps"], steps, strict=False)):
        expected = list(row)
        if expected[1] == 0:
            expected[1] = scheduled  # the same list as in the step before
        scheduled = expected[1]
        flat = [value for pair in step.scheduled for value in pair]
        got = [step.t_us, flat, step.preempted, step.finished]
        got += [step.free_mid, step.free_end, step.running, step.waiting]
        columns: tuple[str, ...] = STEP_COLUMNS[:8]
        if case["engine"].endswith("-async"):
            columns, got = STEP_COLUMNS, [*got, step.start_us, step.end_us]
        if len(expected) > len(got):
            columns += HELD_COLUMNS
            got += [step.held_blocks, [value for triple in step.verified for value in triple]]
        for column, a, b in zip(columns, expected, got, strict=True):
            if a != b:
                return f"step {number}, {column}: expected {a}, got {b}"
    if len(case["steps"]) != len(steps):
        return f"number of steps: expected {len(case['steps'])}, got {len(steps)}"
    return None


def _request_difference(case: dict[str, Any], log: dict[str, Any]) -> str | None:
    columns = (*REQUEST_COLUMNS, *(name for name in DRAFT_COLUMNS if name in log))
    for index, row in enumerate(case["requests_out"]):
        for column, expected in zip(columns, row, strict=True):
            got = int(log[column][index])
            if got != expected:
                return f"request {index}, {column}: expected {expected}, got {got}"
    return None


def _total_difference(case: dict[str, Any], totals: Any) -> str | None:
    for name, expected in case["totals"].items():
        got: Any = int(totals[name][0])
        if name == "stop":
            got = Stop(got).name.lower()
        if got != expected:
            return f"totals, {name}: expected {expected}, got {got}"
    return None
