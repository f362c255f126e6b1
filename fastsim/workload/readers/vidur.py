"""Vidur's request traces: `arrived_at,num_prefill_tokens,num_decode_tokens`, seconds from the start."""

from pathlib import Path

import polars as pl

from fastsim.workload.readers.table import (
    TraceRows,
    has_columns,
    length_faults,
    microseconds,
    numbers,
    read_table,
)
from fastsim.workload.trace import Format, Trace
from fastsim.workload.workload import LATEST_US

COLUMNS = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")


def read(path: Path) -> Trace:
    """Read a Vidur CSV.

    Raises
    ------
    InputError
        When the file is not CSV or has no rows.
    """
    table = read_table(path, COLUMNS, (), _batch)
    return table.trace(path, FORMAT.name, microseconds(table.arrays["time_s"]))


def _batch(frame: pl.DataFrame) -> TraceRows:
    time_s, prompt, output = (numbers(frame, name) for name in COLUMNS)
    return TraceRows(
        [
            ("an arrived_at that is not a number of at least 0", ~((time_s >= 0) & (time_s * 1e6 <= LATEST_US))),
            *length_faults(prompt, output, "num_prefill_tokens", "num_decode_tokens"),
        ],
        {"time_s": time_s, "prompt_tokens": prompt, "output_tokens": output},
    )


FORMAT = Format("vidur", "Vidur CSV", COLUMNS, has_columns(*COLUMNS), read)
