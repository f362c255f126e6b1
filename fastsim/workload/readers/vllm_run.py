"""Per-request times of a serving engine: JSON lines (as LLMServingSim's bench records vLLM's), or a CSV.

The fields are known by several names, the first of each row in `NAMES` being LLMServingSim's: tokens of prompt and
output, and times of arrival, first and last token in seconds on one clock (any zero). Where a file says how long a
request took instead (`ttft`, `e2e`, with `_s` or `_ms`), that is taken. A request arrives when the engine queued it,
if that is there: a client's arrival is before tokenisation, which no scheduler sees. A request without times is kept
as load, one that failed is not.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fastsim.errors import InputError
from fastsim.workload.readers.lines import LineRows, UnusableRowError, number, prefilled_only, read_rows, whole
from fastsim.workload.readers.table import since_first_us, text_batches
from fastsim.workload.trace import Format, Head, Trace, noted

REQUESTS = "requests.jsonl"

NAMES = {
    "prompt": (
        *("input_toks", "prompt_tokens", "num_prompt_tokens", "input_tokens", "prompt_len", "input_len"),
        *("prompt_length", "input_length", "num_input_tokens"),
    ),
    "output": (
        *("output_toks", "output_tokens", "num_generation_tokens", "num_output_tokens", "completion_tokens"),
        *("generated_tokens", "output_len", "output_length", "num_generated_tokens"),
    ),
    "arrival": (
        *("queued_ts", "queued_time", "time_queued", "arrival_ts", "arrival_time", "arrival_s", "arrival", "start_ts"),
        *("start_time", "request_start_time", "send_time", "timestamp"),
    ),
    "first": ("first_token_ts", "first_token_time", "first_token_s", "first_token", "time_first_token"),
    "last": (
        *("last_token_ts", "last_token_time", "finished_ts", "finished_time", "finish_time", "finish_ts", "end_time"),
        *("end_ts", "completion_time", "last_token", "request_end_time"),
    ),
    "ttft": ("ttft", "ttft_s", "time_to_first_token", "time_to_first_token_s", "ttft_ms", "time_to_first_token_ms"),
    "e2e": (
        "e2e",
        "e2e_s",
        "latency",
        "latency_s",
        "e2e_latency",
        "request_latency",
        "e2e_ms",
        "latency_ms",
        "e2el_ms",
    ),
    "failed": ("error", "errors", "failed"),
    "success": ("success", "ok"),
}
QUEUED = ("queued_ts", "queued_time", "time_queued")
"""Names of arrivals that are the engine's own."""


def read(path: Path) -> Trace:
    """Read a run: its `requests.jsonl`, a file of that shape, or the folder that holds it.

    Raises
    ------
    InputError
        When the file cannot be read.
    """
    file = path / REQUESTS if path.is_dir() else path
    if not file.is_file():
        raise InputError(f"{file}: is not there, but the requests of a recorded run were expected")
    rows = LineRows(queued_s="d", ttft_us="d", e2e_us="d", prompt_tokens="q", output_tokens="q")
    used: dict[str, str] = {}

    def take(row: dict[str, Any]) -> None:
        names = {
            part: next((name for name in known if row.get(name) is not None), None) for part, known in NAMES.items()
        }
        if _is_failure(row, names):
            raise UnusableRowError("an error (a failed request)")
        prompt = whole(row, names["prompt"] or NAMES["prompt"][0])
        arrival = number(row, names["arrival"] or NAMES["arrival"][0])
        output_name = names["output"] or NAMES["output"][0]
        if prefilled_only(rows, row, output_name):
            rows.add(queued_s=arrival, ttft_us=math.nan, e2e_us=math.nan, prompt_tokens=prompt, output_tokens=1)
            return
        output = whole(row, output_name)
        ttft = _seconds(row, names, "first", "ttft", arrival)
        e2e = _seconds(row, names, "last", "e2e", arrival)
        if ttft < 0 or e2e < 0 or ttft > e2e:
            wanted = [names[part] or NAMES[part][0] for part in ("arrival", "first", "last")]
            raise UnusableRowError(f"{wanted[0]}, {wanted[1]} and {wanted[2]} that are not in this order")
        used.update({part: name for part, name in names.items() if name is not None})
        rows.add(
            queued_s=arrival,
            ttft_us=ttft * 1e6,
            e2e_us=e2e * 1e6,
            prompt_tokens=prompt,
            output_tokens=output,
        )

    if _is_table(file):
        for row in _table_rows(file):
            rows.rows_read += 1
            try:
                take(row)
            except UnusableRowError as fault:
                rows.unusable[str(fault)] += 1
    else:
        read_rows(file, rows, take)
    trace = rows.trace(
        path,
        FORMAT.name,
        since_first_us(rows["queued_s"]),
        ttft_us=np.array(rows["ttft_us"]),
        e2e_us=np.array(rows["e2e_us"]),
    )
    if used.get("arrival") in QUEUED and "last" in used:
        trace = replace(trace, engine_clock=True)
    elif used:
        trace = noted(
            trace,
            f"a request arrives at its {used['arrival']}, as a client sees it: when the engine queued it is not known",
        )
    return trace


def _is_failure(row: dict[str, Any], names: dict[str, str | None]) -> bool:
    error, success = (row.get(names[part] or "") for part in ("failed", "success"))
    return (error is not None and str(error).lower() not in ("", "false", "none", "0", "0.0", "[]")) or (
        success is not None and str(success).lower() in ("false", "0")
    )


def _seconds(row: dict[str, Any], names: dict[str, str | None], moment: str, length: str, arrival: float) -> float:
    """From arrival to a moment, in seconds: from the moment itself, or as a length; NaN where the row says neither."""
    if names[moment] is not None:
        return number(row, names[moment] or "") - arrival
    name = names[length]
    if name is None:
        return math.nan
    return number(row, name) / (1e3 if name.endswith("_ms") else 1.0)


def _is_table(file: Path) -> bool:
    with file.open("rb") as content:
        return not content.read(256).lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{")


def _table_rows(file: Path) -> Iterator[dict[str, Any]]:
    """Rows of a CSV; cells that are numbers come as such, empty ones as None."""
    with file.open("rb") as content:
        columns = Head.of(file, content.read(64 * 1024)).columns
    known = [name for names in NAMES.values() for name in names if name in columns]
    for batch in text_batches(file, known):
        for row in batch.iter_rows(named=True):
            yield {name: _cell(text) for name, text in row.items()}


def _cell(text: str | None) -> Any:
    if text is None or text == "":
        return None
    try:
        value = float(text)
    except ValueError:
        return text
    return value if math.isfinite(value) else text


def _detect(head: Head) -> bool:
    if head.path.is_dir():
        return (head.path / REQUESTS).is_file()
    names = _keys(head.text) if head.text.lstrip("\ufeff \r\n").startswith("{") else set(head.columns)

    def has(*parts: str) -> bool:
        return any(names & set(NAMES[part]) for part in parts)

    return has("prompt") and has("output") and has("arrival") and has("first", "ttft") and has("last", "e2e")


def _keys(text: str) -> set[str]:
    """Keys of the first line, if it is a JSON object."""
    try:
        row = json.loads(text.lstrip("\ufeff \r\n").split("\n", 1)[0])
    except (ValueError, RecursionError):
        return set()
    return set(row) if isinstance(row, dict) else set()


FORMAT = Format("vllm-run", "vLLM engine times JSONL", (), _detect, read)
