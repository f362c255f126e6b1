"""BurstGPT, versions 1 to 3: `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type`.

Timestamps are seconds that need not begin at 0: times count from the first usable row. Version 3 puts `Session ID`
and `Elapsed time` after the timestamp. A response of 0 tokens is a request that failed.
"""

from pathlib import Path

import polars as pl

from fastsim.workload.readers.table import (
    TraceRows,
    has_columns,
    not_whole,
    numbers,
    read_table,
    since_first_us,
)
from fastsim.workload.trace import Format, Trace

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


def read(path: Path) -> Trace:
    """Read a BurstGPT CSV.

    Raises
    ------
    InputError
        When the file is not CSV or has no rows.
    """
    table = read_table(path, COLUMNS, (), _batch)
    return table.trace(path, FORMAT.name, since_first_us(table.arrays["time_s"]))


def _batch(frame: pl.DataFrame) -> TraceRows:
    time_s, prompt, output = (numbers(frame, name) for name in COLUMNS)
    return TraceRows(
        [
            ("a Timestamp that is not a number of seconds", ~(abs(time_s) < 1e11)),
            ("0 Response tokens (a failed request)", output == 0),
            ("Request tokens that are not a whole number of at least 1", not_whole(prompt, 1)),
            ("Response tokens that are not a whole number of at least 1", not_whole(output, 1)),
        ],
        {"time_s": time_s, "prompt_tokens": prompt, "output_tokens": output},
    )


FORMAT = Format("burstgpt", "BurstGPT CSV", COLUMNS, has_columns(*COLUMNS), read)
