"""The plain CSV: `arrival_s,prompt_tokens,output_tokens[,priority][,prefix_group,prefix_tokens]`.

Arrivals are seconds from the start of the run. An empty optional cell means priority 0, no prefix group.
"""

from pathlib import Path

import numpy as np
import polars as pl

from fastsim.workload.readers.table import Floats, has_columns, not_whole, numbers, read_text_columns, usable_rows
from fastsim.workload.trace import Format, Trace, in_order
from fastsim.workload.workload import LATEST_US, Int32Array, Report

REQUIRED = ("arrival_s", "prompt_tokens", "output_tokens")
OPTIONAL = ("priority", "prefix_group", "prefix_tokens")


def read(path: Path) -> Trace:
    """Read a plain CSV.

    Raises
    ------
    InputError
        When the file is not CSV or has no rows.
    """
    frame = read_text_columns(path, REQUIRED, OPTIONAL)
    arrival_s, prompt, output = (numbers(frame, name) for name in REQUIRED)
    priority = _optional(frame, "priority", 0)
    group = _optional(frame, "prefix_group", -1)
    shared = _optional(frame, "prefix_tokens", 0)
    usable, unusable = usable_rows(
        [
            ("an arrival_s that is not a number of at least 0", ~((arrival_s >= 0) & (arrival_s * 1e6 <= LATEST_US))),
            ("prompt_tokens that are not a whole number of at least 1", not_whole(prompt, 1)),
            ("output_tokens of 0", output == 0),
            ("output_tokens that are not a whole number of at least 1", not_whole(output, 1)),
            ("a priority that is not a whole number", not_whole(priority, -(2**31))),
            ("a prefix_group that is not a whole number of at least -1", not_whole(group, -1)),
            ("prefix_tokens that are not a whole number of at least 0", not_whole(shared, 0)),
        ]
    )

    def kept(values: Floats) -> Int32Array:
        return values[usable].astype(np.int32)

    has_prefix = "prefix_group" in frame.columns and "prefix_tokens" in frame.columns
    return in_order(
        Trace(
            source=str(path),
            format=FORMAT.name,
            arrival_us=np.floor(arrival_s[usable] * 1e6).astype(np.int64),
            prompt_tokens=kept(prompt),
            output_tokens=kept(output),
            report=Report(frame.height, int(usable.sum()), unusable),
            priority=kept(priority) if "priority" in frame.columns else None,
            prefix_group=kept(group) if has_prefix else None,
            prefix_tokens=kept(shared) if has_prefix else None,
        )
    )


def _optional(frame: pl.DataFrame, name: str, default: int) -> Floats:
    """An optional column as floats; missing columns and empty cells take the default."""
    if name not in frame.columns:
        return np.full(frame.height, float(default))
    empty = (frame[name].is_null() | (frame[name] == "")).fill_null(True).to_numpy()
    return np.where(empty, float(default), numbers(frame, name))


FORMAT = Format("plain CSV", REQUIRED, has_columns(*REQUIRED), read)
