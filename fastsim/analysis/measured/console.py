"""The table that `vllm bench serve` and SGLang's `bench_serving` print, as people paste it."""

import re
from typing import Any

from fastsim.analysis.measured.result import (
    OUTPUT_THROUGHPUT,
    THROUGHPUT,
    MeasuredLengths,
    MeasuredLoad,
    count_of,
    figure_columns,
    sent,
)

TITLE = re.compile(r"=+ *Serving Benchmark Result *=+")
LINE = re.compile(r"^\s*([A-Za-z][^:\n]*?)\s*:\s*([-\d.,]+|inf|None|not set|[A-Za-z][\w./-]*)\s*$", re.MULTILINE)
LATENCY = re.compile(r"^(Mean|Median|P\d+) (TTFT|TPOT|ITL|E2EL|E2E Latency) \(ms\)$")
RATE = ("Traffic request rate", "Request rate configured (RPS)")
CLIENTS = ("Maximum request concurrency", "Max request concurrency")
COLUMN = {"TTFT": "ttft", "TPOT": "tpot", "ITL": "itl", "E2EL": "e2e", "E2E Latency": "e2e"}


def is_result(text: str) -> bool:
    """Whether a text holds such a table."""
    return TITLE.search(text) is not None and "Successful requests" in text


def tables(text: str) -> list[str]:
    """The tables of a text; what is printed before the first one belongs to it."""
    starts = [match.start() for match in TITLE.finditer(text)]
    return [text[start:end] for start, end in zip([0, *starts[1:]], [*starts[1:], len(text)], strict=True)]


def read(source: str, text: str) -> MeasuredLoad:
    """A result from a text with one table.

    Raises
    ------
    InputError
        When it does not say how many requests succeeded.
    """
    values = {match[1]: match[2].replace(",", "") for match in LINE.finditer(text)}
    numbers = {name: float(value) for name, value in values.items() if re.fullmatch(r"-?\d+(\.\d+)?", value)}
    completed = count_of(source, numbers, "Successful requests")
    tables: dict[str, dict[str, float]] = {}
    for name, value in numbers.items():
        if match := LATENCY.match(name):
            tables.setdefault(COLUMN[match[2]], {})[match[1].lower()] = value
    figures = figure_columns(tables)
    for name, column in (
        ("Request throughput (req/s)", THROUGHPUT),
        ("Output token throughput (tok/s)", OUTPUT_THROUGHPUT),
    ):
        if name in numbers:
            figures[column] = numbers[name]
    rate = next((values[name] for name in RATE if name in values), None)
    clients = next((values[name] for name in CLIENTS if name in values), None)
    load: dict[str, Any] = {}
    notes: list[str] = []
    missing: dict[str, str] = {}
    if rate is None and clients in (None, "None", "not"):
        missing["workload.arrival.rate_per_s"] = (
            "how requests were sent: workload.arrival.rate_per_s, workload.concurrency or "
            "workload.arrival.kind=all_at_once"
        )
    else:
        load, notes = sent(
            source,
            float(rate) if rate not in (None, "inf") else None,
            int(float(clients)) if clients is not None and clients[:1].isdigit() else None,
            numbers.get("Burstiness factor"),
        )
    prompt, output = (
        MeasuredLengths(numbers[name] / completed if name in numbers else None)
        for name in ("Total input tokens", "Total generated tokens")
    )
    return MeasuredLoad(
        source=source,
        tool="bench_serving's table",
        load={"workload.num_requests": completed} | load,
        prompt=prompt,
        output=output,
        figures=figures,
        notes=tuple(notes),
        missing=missing,
    )
