"""Results of `vllm bench serve --save-result --save-detailed` (one JSON object).

Per request: `input_lens`, `output_lens`, `ttfts`, `itls`, and in newer versions `start_times`, `errors`, `latencies`;
seconds. A result without `start_times` does not say when requests arrived: their gaps are drawn as the benchmark
draws them, gamma of the recorded `request_rate` and `burstiness`; a rate of "inf" sends all at once.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastsim.errors import InputError
from fastsim.model import shown
from fastsim.workload.readers.lines import LineRows, UnusableRowError, number, prefilled_only, read_document, whole
from fastsim.workload.readers.table import Floats, since_first_us
from fastsim.workload.trace import Format, Head, Trace, Window, in_window, noted

ARRIVALS = 10
"""Seed word of the stream of drawn arrivals."""


def read(path: Path, seed: int, window: Window) -> Trace:
    """Read a result; `seed` draws the arrivals if they were not recorded.

    Raises
    ------
    InputError
        When the file is no such result, or lacks the per-request lists.
    """
    document = read_document(path, 'a result of "vllm bench serve"')
    inputs, outputs = _list(path, document, "input_lens"), _list(path, document, "output_lens")
    count = len(inputs)
    others = {
        key: _list(path, document, key, count)
        for key in ("ttfts", "itls", "errors", "start_times", "latencies")
        if document.get(key)
    }
    if len(outputs) != count:
        raise InputError(f"{path}: output_lens has {len(outputs)} items, but {count} were expected as in input_lens")
    notes = []
    if "start_times" not in others and document.get("request_timestamps"):  # another client's name, unix seconds
        others["start_times"] = _list(path, document, "request_timestamps", count)
    if "start_times" not in others:
        others["start_times"] = _drawn_arrivals(path, document, count, seed).tolist()
        notes.append("arrivals were not recorded (start_times): they are drawn from request_rate and burstiness")
    if document.get("max_concurrency") is not None:
        notes.append(
            f"at most {shown(document['max_concurrency'])} requests were sent at once, which recorded arrivals only "
            "repeat: workload.concurrency for a closed loop, with workload.arrival.kind and its rate for what was sent"
        )
    rows = LineRows(start_s="d", ttft_us="d", e2e_us="d", prompt_tokens="q", output_tokens="q")
    rows.rows_read = count
    for index in range(count):
        row = {"input_lens": inputs[index], "output_lens": outputs[index]}
        row |= {key: values[index] for key, values in others.items()}
        try:
            _add(rows, row)
        except UnusableRowError as fault:
            rows.unusable[str(fault)] += 1
    trace = rows.trace(
        path,
        FORMAT.name,
        since_first_us(rows["start_s"]),
        ttft_us=rows["ttft_us"].copy(),
        e2e_us=rows["e2e_us"].copy(),
    )
    return in_window(noted(trace, *notes), window)


def _add(rows: LineRows, row: dict[str, Any]) -> None:
    if row.get("errors"):
        raise UnusableRowError("an error (a failed request)")
    prompt, start = whole(row, "input_lens"), number(row, "start_times")
    if prefilled_only(rows, row, "output_lens"):
        rows.add(start_s=start, ttft_us=math.nan, e2e_us=math.nan, prompt_tokens=prompt, output_tokens=1)
        return
    output = whole(row, "output_lens")
    ttft = number(row, "ttfts") if "ttfts" in row else math.nan
    if "latencies" in row:
        e2e = number(row, "latencies")
    else:
        gaps = row.get("itls")
        usable = isinstance(gaps, list) and all(isinstance(gap, int | float) and abs(gap) <= 1e9 for gap in gaps)
        e2e = ttft + math.fsum(gaps) if usable and gaps is not None else math.nan
    rows.add(start_s=start, ttft_us=ttft * 1e6, e2e_us=e2e * 1e6, prompt_tokens=prompt, output_tokens=output)


def _list(path: Path, document: dict[str, Any], key: str, count: int | None = None) -> Sequence[Any]:
    values = document.get(key)
    if not isinstance(values, list):
        raise InputError(f"{path}: {key} is missing, but a list was expected: save the result with --save-detailed")
    if count is not None and len(values) != count:
        raise InputError(f"{path}: {key} has {len(values)} items, but {count} were expected as in input_lens")
    return values


def _drawn_arrivals(path: Path, document: dict[str, Any], count: int, seed: int) -> Floats:
    """Arrivals in seconds: gamma gaps whose shape is the burstiness, as the benchmark draws them."""
    rate, shape = document.get("request_rate"), document.get("burstiness") or 1.0
    if rate in ("inf", math.inf, None):
        return np.zeros(count)
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 1e-9 <= rate <= 1e9:
        raise InputError(f'{path}: request_rate = {shown(rate)}, but a number from 1e-9 to 1e9 or "inf" was expected')
    if isinstance(shape, bool) or not isinstance(shape, int | float) or not 1e-6 <= shape <= 1e6:
        raise InputError(f"{path}: burstiness = {shown(shape)}, but a number from 1e-6 to 1e6 was expected")
    gaps = np.random.default_rng([seed, ARRIVALS]).gamma(shape, 1.0 / (rate * shape), count)
    arrivals: Floats = np.cumsum(gaps) - (gaps[0] if count else 0.0)
    return arrivals


def _detect(head: Head) -> bool:
    if not head.text.lstrip().startswith("{"):
        return False
    if '"input_lens"' in head.text:
        return True
    is_sglang = '"backend": "sglang' in head.text  # without details it is a summary, and tells so itself
    return '"total_input_tokens"' in head.text and '"request_throughput"' in head.text and not is_sglang


FORMAT = Format("vllm-bench", '"vllm bench serve" JSON', (), _detect, draw=read)
