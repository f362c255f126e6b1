"""Replay of recorded cases: every column of every pass, every request, every total."""

from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.config import Config, EngineConfig, LatencyConfig
from fastsim.engines.outputs import Stop
from fastsim.engines.sglang import recorder
from fastsim.engines.sglang.codes import KINDS, NO_LIMIT
from fastsim.engines.sglang.inputs import SglangWorkload, build_workload
from fastsim.engines.sglang.knobs import NAME, SglangKnobs
from fastsim.engines.sglang.runner import SglangResult, simulate_records
from fastsim.engines.sglang.runtime import RUNTIME
from fastsim.errors import InputError

_IGNORED = {"radix_eviction_policy": "lru", "tree_core": "rust"}
"""Keys of a recording that have one value here."""
_SHARED = {"max_running_requests": "max_num_seqs", "context_length": "max_model_len"}
_TIMES = {"beta0": "b0_us", "beta1": "b1_us_per_prefill_token", "beta2": "b2_us_per_decode_token"}
_ENDS = ("horizon_us", "max_steps")

COLUMNS = (
    "t_us",
    "kind",
    "batch",
    "retracted",
    "preempted",
    "finished",
    "new_token_ratio",
    "free tokens after scheduling",
    "free tokens",
    "evictable tokens",
    "locked tokens",
    "request slots in use",
    "waiting requests",
    "batch_is_full",
    "aborted",
    "start_us",
    "end_us",
)
REQUEST_COLUMNS = (
    "first_sched_us",
    "first_token_us",
    "finish_us",
    "retractions",
    "preemptions",
    "output tokens",
    "first prefix hit",
    "prefix hits",
    "prefilled tokens",
    "max_new_tokens",
)


def case_records(case: dict[str, Any], *, fast_forward: bool = True, **changes: Any) -> npt.NDArray[np.void]:
    """The configuration of a recorded case, with changed keys, as the one record that kernels read."""
    recorded = case["config"] | changes
    for name, only in _IGNORED.items():
        if recorded.pop(name, only) != only:
            raise InputError(f"case {case.get('name')!r}: {name} = {case['config'][name]!r}, but {only!r} was expected")
    known = {*SglangKnobs.model_fields, *_SHARED, *_TIMES, *_ENDS}
    if unknown := sorted(recorded.keys() - known):
        raise InputError(f"case {case.get('name')!r}: config has {unknown[0]!r}, which this engine does not know")
    shared = {key: recorded[name] for name, key in _SHARED.items() if name in recorded}
    own = {name: recorded[name] for name in SglangKnobs.model_fields if name in recorded}
    times = {key: recorded[name] for name, key in _TIMES.items() if name in recorded}
    engine = EngineConfig(name=NAME, **shared).model_copy(update={"sglang": SglangKnobs(**own)})
    records, _ = RUNTIME.records_of([Config(engine=engine, latency=LatencyConfig().model_copy(update=times))])
    for name in _ENDS:
        if name in recorded:
            records[name] = NO_LIMIT if recorded[name] is None else recorded[name]
    records["fast_forward"] = fast_forward
    return records


def case_workload(case: dict[str, Any]) -> SglangWorkload:
    """Requests of a recorded case."""
    arrival, prompt, output, priority, group, shared, limit, ignore_eos = (
        np.array(case["requests"], np.int64).reshape(-1, 8).T
    )
    return build_workload(
        arrival,
        prompt,
        output,
        limit,
        ignore_eos=ignore_eos,
        priority=priority,
        prefix_group=group,
        prefix_tokens=shared,
    )


def replay(case: dict[str, Any]) -> dict[str, Any]:
    """`steps`, `requests_out` and `totals` of a case as fastsim decides it, batches written out."""
    result = simulate_records(case_records(case), case_workload(case), record=True)
    columns = len(COLUMNS) - 2 * case["config"].get("disable_overlap_schedule", False)
    return {
        "steps": [row[:columns] for row in _rows(result)],
        "requests_out": _requests_out(result),
        "totals": _totals(result),
    }


def _rows(result: SglangResult) -> list[list[Any]]:
    items = result.record.items.tolist()
    rows = []
    for row, ratio in zip(result.record.rows.tolist(), result.record.ratio.tolist(), strict=True):
        lists = []
        at = row[recorder.FIRST_ITEM]
        sizes = (3 * row[recorder.NUM_EXTENDS], *row[recorder.NUM_DECODES : recorder.NUM_PREEMPTED + 1])
        for size in sizes:
            lists.append(items[at : at + size])
            at += size
        extends, decodes, retracted, preempted = lists
        kind = KINDS[row[recorder.KIND]]
        finished_at = row[recorder.FIRST_FINISHED]
        is_processed = row[recorder.PROCESSED]
        after = row[recorder.FREE : recorder.WAITING + 1] if is_processed else [None] * 5
        rows.append(
            [
                row[recorder.T_US],
                kind,
                [extends, decodes] if kind == "M" else extends or decodes,
                retracted,
                sorted(preempted),
                items[finished_at : finished_at + row[recorder.NUM_FINISHED]] if is_processed else [],
                ratio,
                row[recorder.FREE_SCHEDULED],
                *after,
                row[recorder.FULL],
                [row[recorder.ABORTED]] if row[recorder.ABORTED] >= 0 else [],
                row[recorder.START_US],
                row[recorder.END_US],
            ]
        )
    return rows


def _requests_out(result: SglangResult) -> list[list[int]]:
    log, req = result.log, result.requests
    columns = (
        log.first_scheduled_us,
        log.first_token_us,
        log.finish_us,
        req.retractions,
        req.preemptions,
        req.generated,
        log.prefix_hit_tokens_first,
        log.prefix_hit_tokens,
        req.prefilled,
        req.limit,
    )
    count = result.workload.num_requests
    return [list(row) for row in zip(*(column[:count].tolist() for column in columns), strict=True)]


def _totals(result: SglangResult) -> dict[str, Any]:
    shared = {name: int(result.totals[name]) for name in ("steps", "prefill_tokens", "decode_tokens")}
    own = {name: int(result.own[name]) for name in ("retractions", "preemptions")}
    return {
        **shared,
        **own,
        "completed": int(result.totals["completed"]),
        "aborted": int(result.own["aborted"]),
        "end_us": int(result.totals["end_us"]),
        "stop": Stop(int(result.totals["stop"])).name.lower(),
    }


def verify_case(case: dict[str, Any]) -> str | None:
    """Compare a recorded case with fastsim's decisions.

    Returns None when all is identical, else one line that names the first difference: pass, column, what was expected
    and what came.
    """
    try:
        got = replay(case)
        steps = _written_out(case["steps"])
        return (
            _difference("step", COLUMNS, steps, got["steps"])
            or _difference("request", REQUEST_COLUMNS, case["requests_out"], got["requests_out"])
            or _difference(
                "totals",
                tuple(case["totals"]),
                [list(case["totals"].values())],
                [[got["totals"].get(name) for name in case["totals"]]],
            )
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"case {case.get('name')!r}: expected the keys of a SGLang recording ({error})") from error


def _written_out(steps: list[list[Any]]) -> list[list[Any]]:
    """Rows with their batches; 0 stands for that of the last row that had one."""
    batch: Any = []
    rows = []
    for step in steps:
        row = list(step)
        if row[1] != "-":
            batch = row[2] = batch if row[2] == 0 else row[2]
        rows.append(row)
    return rows


def _difference(what: str, columns: tuple[str, ...], expected: list[list[Any]], got: list[list[Any]]) -> str | None:
    for k, (want, have) in enumerate(zip_longest(expected, got)):
        if want is None or have is None:
            return f"{what} {k}: expected {len(expected)} of them, got {len(got)}"
        for name, a, b in zip_longest(columns, want, have):
            if a != b and name is not None:
                return f"{what} {k}: {name}: expected {a}, got {b}"
    return None
