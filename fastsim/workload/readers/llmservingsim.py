"""LLMServingSim's workloads (JSON lines): `input_toks`, `output_toks`, `arrival_time_ns`."""

from pathlib import Path
from typing import Any

from fastsim.workload.readers.lines import LineRows, UnusableRowError, has_keys, number, read_rows, whole
from fastsim.workload.readers.table import whole_us
from fastsim.workload.trace import Format, Trace


def read(path: Path) -> Trace:
    """Read an LLMServingSim JSONL; arrivals count from the start of the workload.

    Raises
    ------
    InputError
        When the file cannot be read.
    """
    rows = LineRows(time_ns="d", prompt_tokens="q", output_tokens="q")

    def take(row: dict[str, Any]) -> None:
        time_ns = number(row, "arrival_time_ns")
        if time_ns < 0:
            raise UnusableRowError("an arrival_time_ns below 0")
        rows.add(time_ns=time_ns, prompt_tokens=whole(row, "input_toks"), output_tokens=whole(row, "output_toks"))

    read_rows(path, rows, take)
    return rows.trace(path, FORMAT.name, whole_us(rows["time_ns"] / 1e3))


FORMAT = Format(
    "llmservingsim", "LLMServingSim JSONL", (), has_keys("input_toks", "output_toks", "arrival_time_ns"), read
)
