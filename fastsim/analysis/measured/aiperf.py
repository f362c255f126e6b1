"""AIPerf's aggregate (`profile_export_aiperf.json`): one object, a table of statistics a metric, units beside."""

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

LATENCIES = {"ttft": "time_to_first_token", "tpot": "inter_token_latency", "e2e": "request_latency"}
"""AIPerf's inter-token latency is a request's mean: (E2E - TTFT) / (output - 1), which is TPOT here."""
TO_MS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "us": 1e-3, "ns": 1e-6}


def is_result(document: Any) -> bool:
    """Whether an object is such an aggregate."""
    return isinstance(document, Mapping) and (
        "aiperf_version" in document
        or ("request_latency" in document and "time_to_first_token" in document and "input_config" in document)
    )


def read(source: str, document: Mapping[str, Any]) -> MeasuredLoad:
    """A result from its object.

    Raises
    ------
    InputError
        When the number of requests is missing.
    """
    figures: dict[str, float] = {}
    for latency, name in LATENCIES.items():
        table = document.get(name)
        if isinstance(table, Mapping) and (scale := TO_MS.get(str(table.get("unit", "ms")))):
            figures |= figure_columns({latency: table}, scale)
    for key, column in (("request_throughput", THROUGHPUT), ("output_token_throughput", OUTPUT_THROUGHPUT)):
        table = document.get(key)
        if isinstance(table, Mapping) and is_number(table.get("avg")):
            figures[column] = float(table["avg"])
    counted = document.get("request_count")
    average = counted.get("avg") if isinstance(counted, Mapping) else None
    count = count_of(source, {"request_count": average}, "request_count")
    load, missing = _load(source, document)
    notes = ["AIPerf's inter_token_latency is a request's mean: it is read as TPOT"]
    if document.get("was_cancelled"):
        notes.append("the run was cancelled")
    return MeasuredLoad(
        source=source,
        tool="AIPerf",
        load={"workload.num_requests": count} | load,
        prompt=lengths_of(document.get("input_sequence_length"), "avg"),
        output=lengths_of(document.get("output_sequence_length"), "avg"),
        figures=figures,
        notes=tuple(notes),
        missing=missing,
    )


def _load(source: str, document: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """How requests were sent: the phases of newer versions, or the `loadgen` section of older ones."""
    config = document.get("input_config")
    config = config if isinstance(config, Mapping) else {}
    phases = [phase for phase in config.get("phases") or [] if isinstance(phase, Mapping)]
    profiling = [phase for phase in phases if phase.get("name") in (None, "profiling")]
    table = profiling[0] if profiling else config.get("loadgen")
    table = table if isinstance(table, Mapping) else {}
    rate, clients = table.get("request_rate", table.get("rate")), table.get("concurrency")
    if is_number(rate):
        kind = (
            "constant" if table.get("arrival_pattern") == "constant" or table.get("type") == "constant" else "poisson"
        )
        where = {"workload.arrival.kind": kind, "workload.arrival.rate_per_s": positive(source, {"rate": rate}, "rate")}
        return where, {}
    if is_number(clients):
        return {"workload.concurrency": count_of(source, {"concurrency": clients}, "concurrency")}, {}
    return {}, {
        "workload.arrival.kind": "how requests were sent: workload.arrival.kind and workload.arrival.rate_per_s, or "
        "workload.concurrency"
    }
