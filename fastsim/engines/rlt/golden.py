"""Replay of recorded cases: every decision of every step, and the summary, in both accountings."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.config import Config, EngineConfig, LatencyConfig
from fastsim.engines.rlt.inputs import RltWorkload, build_workload, prompt_page_keys
from fastsim.engines.rlt.knobs import NAME, RltKnobs, RltLatency
from fastsim.engines.rlt.runner import RltResult, simulate_records
from fastsim.engines.rlt.runtime import RUNTIME
from fastsim.errors import InputError

_SHARED = {"num_blocks": "num_gpu_blocks"} | {
    name: name
    for name in (
        "block_size",
        "max_num_seqs",
        "max_num_batched_tokens",
        "policy",
        "admission_scan_limit",
        "max_admission_bypasses",
    )
}
_TICKS = {name: 0.0 if "per_" in name or name == "swap_us" else 1.0 for name in RltLatency.model_fields}
"""Every step takes one microsecond: a tick."""


def case_records(case: dict[str, Any], variant: str) -> npt.NDArray[np.void]:
    """The configuration of a recorded case as the one record that kernels read.

    `buggy` is the accounting before upstream's fix, `fixed` the one after.
    """
    recorded = case["config"]
    shared = {key: recorded[name] for name, key in _SHARED.items() if name in recorded}
    own = {name: recorded[name] for name in RltKnobs.model_fields if name in recorded}
    fixed = variant == "fixed"
    engine = EngineConfig(name=NAME, count_restores=fixed, blocked_checks_limit=fixed, **shared).model_copy(
        update={"rlt": RltKnobs(**own, on_livelock="step")}
    )
    latency = LatencyConfig().model_copy(update={"rlt": RltLatency(**_TICKS)})
    records, _ = RUNTIME.records_of([Config(engine=engine, latency=latency)])
    records["horizon_us"] = case["limit_ticks"]
    return records


def case_workload(case: dict[str, Any]) -> RltWorkload:
    """Requests of a recorded case, ticks as microseconds."""
    requests = case["workload"]
    config = case["config"]
    prompts = [request["prompt"] for request in requests]
    return build_workload(
        [request["arrival"] for request in requests],
        [len(prompt) for prompt in prompts],
        [request["max_tokens"] for request in requests],
        [request["priority"] for request in requests],
        depths=[request.get("depths") for request in requests],
        page_keys=prompt_page_keys(prompts, config["block_size"]) if config["prefix_caching"] else None,
    )


def replay(case: dict[str, Any], variant: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(steps, summary) of a case as fastsim decides it, in the form of the recording, idle ticks included."""
    ids = [request["id"] for request in case["workload"]]
    result = simulate_records(case_records(case, variant), case_workload(case), record=True)
    steps: list[dict[str, Any]] = []
    for row in result.steps:
        while len(steps) < row["step"]:
            steps.append(_idle_tick(steps, len(steps), case["config"]["num_blocks"]))
        steps.append(_with_ids(row, ids))
    while len(steps) < min(result.totals["end_us"], case["limit_ticks"]):
        steps.append(_idle_tick(steps, len(steps), case["config"]["num_blocks"]))
    return steps, _summary(result, steps)


def _idle_tick(steps: list[dict[str, Any]], tick: int, num_blocks: int) -> dict[str, Any]:
    """A tick at which nothing is unfinished: no engine step, and the state as before."""
    lists = ("arrivals", "items", "events", "tokens", "finished", "waiting")
    row: dict[str, Any] = {"step": tick, "stage": None, **{name: [] for name in lists}}
    free = steps[-1]["free_blocks"] if steps else num_blocks
    preemptions = steps[-1]["preemptions"] if steps else 0
    return row | {"free_blocks": free, "active": 0, "bypasses": {}, "preemptions": preemptions}


def _with_ids(row: dict[str, Any], ids: list[str]) -> dict[str, Any]:
    """A step with the recording's request ids instead of indices."""

    def event(entry: list[Any]) -> list[Any]:
        match entry:
            case ["stop", _]:
                return entry
            case ["preempt", reason, requester, victim]:
                return ["preempt", reason, ids[requester], ids[victim]]
            case [kind, request, *rest]:
                return [kind, ids[request], *rest]
        raise AssertionError(entry)

    named = {name: [ids[i] for i in row[name]] for name in ("arrivals", "tokens", "finished", "waiting")}
    return {
        **row,
        **named,
        "items": [[ids[i], *rest] for i, *rest in row["items"]],
        "events": [event(entry) for entry in row["events"]],
        "bypasses": {ids[i]: count for i, count in row["bypasses"].items()},
    }


def _summary(result: RltResult, steps: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "finished": int(result.totals["completed"]),
        "total": result.workload.num_requests,
        "steps": len(steps),
        "idle": int(result.totals["empty_steps"]),
        "preemptions": int(result.totals["preemptions"]),
        "resumptions": int(result.extra["resumptions"]),
        "order": [request for step in steps for request in step["finished"]],
        "free_end": int(result.extra["free_end_blocks"]),
        "snapshots_end": int(result.extra["snapshots_end"]),
    }


def verify_case(case: dict[str, Any]) -> str | None:
    """Compare a recorded case with fastsim's decisions, in every variant it holds.

    Returns None when all is identical, else one line that names the first difference: variant, step, field, what was
    expected and what came.
    """
    try:
        variants = case["variants"]
        for variant, expected in variants.items():
            if variant not in ("buggy", "fixed"):
                raise InputError(f"variants.{variant}: expected 'buggy' or 'fixed'")
            if difference := _first_difference(case, variant, expected):
                return difference
    except (KeyError, TypeError) as error:
        raise InputError(f"case {case.get('name')!r}: expected the keys of a vllm-rlt recording ({error})") from error
    return None


def _first_difference(case: dict[str, Any], variant: str, expected: dict[str, Any]) -> str | None:
    steps, summary = replay(case, variant)
    for want, got in zip(expected["steps"], steps, strict=False):
        for name in want:
            if want[name] != got.get(name):
                return f"{variant} step {want['step']}: {name}: expected {want[name]}, got {got.get(name)}"
    for name, value in expected["summary"].items():
        if name in summary and summary[name] != value:
            return f"{variant} summary: {name}: expected {value}, got {summary[name]}"
    if len(steps) != len(expected["steps"]):
        return f"{variant}: expected {len(expected['steps'])} steps, got {len(steps)}"
    return None
