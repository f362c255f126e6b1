"""inference-perf's lifecycle metrics of a stage (`stage_N_lifecycle_metrics.json`): one rate's figures."""

from collections.abc import Mapping
from typing import Any

from fastsim.analysis.measured.result import (
    OUTPUT_THROUGHPUT,
    THROUGHPUT,
    MeasuredLoad,
    count_of,
    figure_columns,
    is_number,
    lengths_of,
    positive,
)

LATENCIES = {
    "ttft": "time_to_first_token",
    "tpot": "time_per_output_token",
    "itl": "inter_token_latency",
    "e2e": "request_latency",
}
"""Seconds. The means and percentiles of normalized_time_per_output_token are E2E / output, which has no column."""


def is_result(document: Any) -> bool:
    """Whether an object is such a summary."""
    return isinstance(document, Mapping) and "load_summary" in document and "successes" in document


def read(source: str, document: Mapping[str, Any]) -> MeasuredLoad:
    """A result from its object.

    Raises
    ------
    InputError
        When the number of successful requests is missing.
    """
    successes = document["successes"] if isinstance(document["successes"], Mapping) else {}
    summary = document["load_summary"] if isinstance(document["load_summary"], Mapping) else {}
    latency = successes.get("latency")
    latency = latency if isinstance(latency, Mapping) else {}
    tables = {ours: latency[name] for ours, name in LATENCIES.items() if isinstance(latency.get(name), Mapping)}
    figures = figure_columns(tables, 1e3)
    throughput = successes.get("throughput")
    throughput = throughput if isinstance(throughput, Mapping) else {}
    for key, column in (("requests_per_sec", THROUGHPUT), ("output_tokens_per_sec", OUTPUT_THROUGHPUT)):
        if is_number(throughput.get(key)):
            figures[column] = float(throughput[key])
    load: dict[str, Any] = {"workload.num_requests": count_of(source, successes, "count")}
    missing: dict[str, str] = {}
    notes = []
    rate = summary.get("requested_rate", summary.get("achieved_rate"))
    if is_number(rate):
        load |= {"workload.arrival.rate_per_s": positive(source, {"requested_rate": rate}, "requested_rate")}
        load["workload.arrival.kind"] = "constant"
        notes.append(
            "the file does not say whether gaps were even or drawn: taken as even, inference-perf's default "
            "(--set workload.arrival.kind=poisson for load.type poisson)"
        )
    elif is_number(clients := summary.get("concurrency")):
        load["workload.concurrency"] = count_of(source, {"concurrency": clients}, "concurrency")
    else:
        missing["workload.arrival.rate_per_s"] = "the rate at which requests were sent: workload.arrival.rate_per_s"
    failures = document.get("failures")
    if isinstance(failures, Mapping) and is_number(failures.get("count")) and failures["count"] > 0:
        notes.append(f"{source}: {int(failures['count'])} requests failed: simulated are those completed")
    return MeasuredLoad(
        source=source,
        tool="inference-perf",
        load=load,
        prompt=lengths_of(successes.get("prompt_len")),
        output=lengths_of(successes.get("output_len")),
        figures=figures,
        notes=tuple(notes),
        missing=missing,
    )
