"""guidellm's report where it stores no requests, or only some (`--sample-requests`): a result a benchmark."""

from collections.abc import Mapping
from typing import Any

from fastsim.analysis.measured.result import (
    OUTPUT_THROUGHPUT,
    THROUGHPUT,
    MeasuredLengths,
    MeasuredLoad,
    count_of,
    figure_columns,
    is_number,
    lengths_of,
)

TOTALS = ("metrics.request_totals.successful", "scheduler_metrics.requests_made.successful")
STRATEGY = ("config.strategy", "args.strategy", "scheduler.strategy")
LATENCIES = {
    "ttft": (("time_to_first_token_ms", 1.0),),
    "itl": (("inter_token_latency_ms", 1.0),),
    "e2e": (("request_latency", 1e3), ("request_latency_ms", 1.0)),
}
"""Metric and what makes it milliseconds. guidellm's time_per_output_token is E2E / output, which has no column."""


def is_result(document: Any) -> bool:
    """Whether an object is guidellm's report."""
    return isinstance(document, Mapping) and isinstance(document.get("benchmarks"), list) and "metadata" in document


def stored_and_made(benchmark: Any) -> tuple[int, int | None]:
    """Successful requests that a benchmark stores, and how many there were (None: it does not say)."""
    if not isinstance(benchmark, Mapping):
        return 0, None
    requests = benchmark.get("requests")
    kept = requests.get("successful") if isinstance(requests, Mapping) else requests
    stored = len(kept) if isinstance(kept, list) else 0
    totals = [_at(benchmark, place) for place in TOTALS]
    made = next((int(total) for total in totals if is_number(total)), None)
    return stored, made


def read(source: str, benchmark: Mapping[str, Any]) -> MeasuredLoad:
    """A result from one benchmark of a report.

    Raises
    ------
    InputError
        When it does not say how many requests there were.
    """
    stored, made = stored_and_made(benchmark)
    key = "request_totals.successful"
    count = count_of(source, {key: made if made is not None else stored}, key)
    figures: dict[str, float] = {}
    for latency, names in LATENCIES.items():
        for name, scale in names:
            figures = figure_columns({latency: _statistics(benchmark, name)}, scale) | figures
    for name, column in (("requests_per_second", THROUGHPUT), ("output_tokens_per_second", OUTPUT_THROUGHPUT)):
        if is_number(mean := _statistics(benchmark, name).get("mean")):
            figures[column] = float(mean)
    load, missing = _load(benchmark)
    prompt, output = (_lengths(benchmark, name) for name in ("prompt_token_count", "output_token_count"))
    return MeasuredLoad(
        source=source,
        tool="guidellm",
        load={"workload.num_requests": count} | load,
        prompt=prompt,
        output=output,
        figures=figures,
        missing=missing,
    )


def _statistics(benchmark: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Mean, median and percentiles of a metric's successful requests."""
    table = _at(benchmark, f"metrics.{metric}.successful")
    if not isinstance(table, Mapping):
        return {}
    percentiles = table.get("percentiles")
    return {**table, **{str(k).replace("p0", "p"): v for k, v in (percentiles or {}).items()}}


def _lengths(benchmark: Mapping[str, Any], metric: str) -> MeasuredLengths:
    return lengths_of(_statistics(benchmark, metric))


def _load(benchmark: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    found = next((found for place in STRATEGY if isinstance(found := _at(benchmark, place), Mapping)), None)
    strategy: Mapping[str, Any] = {} if found is None else found
    kind = strategy.get("type_")
    if kind in ("synchronous", "concurrent"):
        streams = strategy.get("streams", strategy.get("max_concurrency", 1))
        return {"workload.concurrency": max(int(streams), 1) if is_number(streams) else 1}, {}
    if kind == "throughput":
        return {"workload.arrival.kind": "all_at_once"}, {}
    if kind in ("constant", "poisson", "async") and is_number(rate := strategy.get("rate")) and rate > 0:
        return {
            "workload.arrival.kind": "poisson" if kind == "poisson" else "constant",
            "workload.arrival.rate_per_s": float(rate),
        }, {}
    return {}, {
        "workload.arrival.rate_per_s": "how requests were sent: workload.arrival.rate_per_s or workload.concurrency"
    }


def _at(table: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        table = table.get(part) if isinstance(table, Mapping) else None
    return table
