"""guidellm's `benchmarks.json`: the requests of its benchmarks, in the order in which they were sent.

Read are the successful requests' `prompt_tokens`, `output_tokens`, start, first and last token; the names of the
times differ between versions. A file may hold several benchmarks that ran one after the other: they are one trace,
of which a window chooses one.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastsim.errors import InputError
from fastsim.workload.readers.lines import LineRows, UnusableRowError, read_document, whole
from fastsim.workload.readers.table import since_first_us
from fastsim.workload.trace import Format, Head, Trace, noted

START = ("request_start_time", "start_time", "info.timings.request_start", "info.timings.resolve_start")
FIRST = ("info.timings.first_token_iteration", "first_token_time", "info.timings.first_iteration")
LAST = ("info.timings.last_token_iteration", "last_token_time", "info.timings.last_iteration", "end_time")
TOTALS = ("metrics.request_totals.successful", "scheduler_metrics.requests_made.successful")
"""Where a report says how many requests succeeded."""
PROMPT = ("prompt_tokens", "input_metrics.text_tokens", "request_prompt_tokens")
OUTPUT = ("output_tokens", "output_metrics.text_tokens", "response_output_tokens")


def read(path: Path) -> Trace:
    """Read a guidellm report.

    Raises
    ------
    InputError
        When the file is no such report.
    """
    document = read_document(path, "a guidellm report")
    benchmarks = document.get("benchmarks")
    if not isinstance(benchmarks, list) or not benchmarks:
        raise InputError(f"{path}: benchmarks is missing or empty, but guidellm's list of benchmarks was expected")
    _check_whole(path, benchmarks)
    rows = LineRows(start_s="d", ttft_us="d", e2e_us="d", prompt_tokens="q", output_tokens="q", benchmark="q")
    for index, benchmark in enumerate(benchmarks):
        for success, request in _requests(path, index, benchmark):
            rows.rows_read += 1
            try:
                _add(rows, request, success, index)
            except UnusableRowError as fault:
                rows.unusable[str(fault)] += 1
    arrival_us = since_first_us(rows["start_s"])
    trace = rows.trace(path, FORMAT.name, arrival_us, ttft_us=rows["ttft_us"].copy(), e2e_us=rows["e2e_us"].copy())
    if len(benchmarks) == 1 or not len(arrival_us):
        return trace
    spans = []
    for index in range(len(benchmarks)):
        inside = arrival_us[rows["benchmark"] == index]
        if len(inside):
            spans.append(f"{inside.min() / 1e6:.1f} to {inside.max() / 1e6:.1f} s")
    shown = ", ".join([*spans[:12], *(["..."] if len(spans) > 12 else [])])
    return noted(
        trace,
        f"{len(benchmarks)} benchmarks one after the other ({shown}); "
        "choose one by workload.window_start_s and workload.window_end_s",
    )


def _check_whole(path: Path, benchmarks: list[Any]) -> None:
    """Refuse a report that stores only some of its requests, or none: a part is not the traffic."""
    for index, benchmark in enumerate(benchmarks):
        if not isinstance(benchmark, dict):
            continue
        requests = benchmark.get("requests")
        kept = requests.get("successful") if isinstance(requests, dict) else requests
        stored = len(kept) if isinstance(kept, list) else 0
        made = next((int(total) for name in TOTALS if (total := _first(benchmark, (name,))) is not None), None)
        sampled = _first(benchmark, ("config.sample_requests",))
        if made is not None and stored < made:
            said = "" if sampled is None else f" (sample_requests {sampled:g})"
            raise InputError(
                f"{path}: benchmarks[{index}] stores {stored} of its {made} requests{said}, but all of them were "
                "expected: a part is not the traffic; guidellm stores every request without --sample-requests"
            )


def _requests(path: Path, index: int, benchmark: Any) -> Iterator[tuple[bool, dict[str, Any]]]:
    """All requests of a benchmark, and whether each succeeded."""
    requests = benchmark.get("requests") if isinstance(benchmark, dict) else None
    if isinstance(requests, dict):
        groups = [(name == "successful", requests.get(name) or []) for name in ("successful", "incomplete", "errored")]
        for name in ("successful", "incomplete", "errored"):
            if not isinstance(requests.get(name) or [], list):
                raise InputError(f"{path}: benchmarks[{index}].requests.{name} is no list, but requests were expected")
    elif isinstance(requests, list):
        groups = [(True, requests)]
    else:
        raise InputError(
            f"{path}: benchmarks[{index}].requests is missing, but the requests of the benchmark were expected"
        )
    for success, group in groups:
        for request in group:
            yield success, request if isinstance(request, dict) else {}


def _add(rows: LineRows, request: dict[str, Any], success: bool, index: int) -> None:
    if not success:
        raise UnusableRowError("a status that is not successful")
    start = _first(request, START)
    if start is None:
        raise UnusableRowError("no start time")
    found = {"prompt_tokens": _first(request, PROMPT), "output_tokens": _first(request, OUTPUT)}
    first, last = _first(request, FIRST), _first(request, LAST)
    ttft_ms, latency_s = _first(request, ("time_to_first_token_ms",)), _first(request, ("request_latency",))
    rows.add(
        start_s=start,
        ttft_us=ttft_ms * 1e3 if ttft_ms is not None else math.nan if first is None else (first - start) * 1e6,
        e2e_us=(last - start) * 1e6 if last is not None else math.nan if latency_s is None else latency_s * 1e6,
        prompt_tokens=whole(found, "prompt_tokens"),
        output_tokens=whole(found, "output_tokens"),
        benchmark=index,
    )


def _first(request: dict[str, Any], names: tuple[str, ...]) -> float | None:
    """The first of these fields, dotted through objects, that is a number (a finite one)."""
    for name in names:
        value: Any = request
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e18:
            return float(value)
    return None


def _detect(head: Head) -> bool:
    text = head.text.lstrip()
    return text.startswith("{") and ('"benchmarks"' in text or "guidellm" in text.lower())


FORMAT = Format("guidellm", "guidellm JSON", (), _detect, read)
