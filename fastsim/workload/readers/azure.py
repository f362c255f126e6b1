"""The Azure LLM inference traces (2023, 2024, 2025): `TIMESTAMP,ContextTokens,GeneratedTokens`, others ignored.

Timestamps have up to nine fractional digits and may carry an offset from UTC. Times count from the first usable
row. Rows without output occur; they cannot be simulated and are reported. The 2025 multimodal trace has a column
`NumImages`, whose images are not modelled.
"""

from pathlib import Path

import numpy as np
import polars as pl

from fastsim.workload.readers.table import Mask, TraceRows, has_columns, length_faults, numbers, read_table
from fastsim.workload.trace import Format, Trace, noted
from fastsim.workload.workload import Int64Array

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
TIMESTAMP = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d(:?\d\d)?)?$"


def read(path: Path) -> Trace:
    """Read an Azure CSV.

    Raises
    ------
    InputError
        When the file is not CSV or has no rows.
    """
    table = read_table(path, COLUMNS, ("NumImages",), _batch)
    time_us, rest_ns, images = (table.arrays[name] for name in ("time_us", "rest_ns", "images"))
    trace = table.trace(path, FORMAT.name, _since_first_us(time_us, rest_ns))
    with_images = int(np.count_nonzero(images > 0))
    return noted(trace, f"the images of {with_images} requests are not modelled") if with_images else trace


def _batch(frame: pl.DataFrame) -> TraceRows:
    time_us, rest_ns, unreadable = _timestamps(frame)
    prompt, output = numbers(frame, "ContextTokens"), numbers(frame, "GeneratedTokens")
    images = numbers(frame, "NumImages") if "NumImages" in frame.columns else np.zeros(frame.height)
    return TraceRows(
        [
            ("a TIMESTAMP that cannot be read", unreadable),
            *length_faults(prompt, output, "ContextTokens", "GeneratedTokens"),
        ],
        {"time_us": time_us, "rest_ns": rest_ns, "prompt_tokens": prompt, "output_tokens": output, "images": images},
    )


def _timestamps(frame: pl.DataFrame) -> tuple[Int64Array, Int64Array, Mask]:
    """Whole seconds in microseconds since 1970 (UTC), the fraction in nanoseconds, and where neither can be read."""
    text = pl.col("TIMESTAMP")
    offset = text.str.slice(19).str.extract(r"([+-]\d\d:?(?:\d\d)?)$").str.replace(":", "").str.pad_end(5, "0")
    minutes = offset.str.slice(1, 2).cast(pl.Int64) * 60 + offset.str.slice(3, 2).cast(pl.Int64)
    signed = pl.when(offset.str.starts_with("-")).then(-minutes).otherwise(minutes).fill_null(0)
    second = text.str.slice(0, 19).str.replace("T", " ").str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False)
    fraction = text.str.extract(r"\.(\d+)").str.pad_end(9, "0").cast(pl.Int64, strict=False).fill_null(0)
    valid = text.str.contains(TIMESTAMP).fill_null(False) & second.is_not_null()
    times = frame.select(us=(second.dt.epoch("us") - signed * 60_000_000).fill_null(0), ns=fraction, unreadable=~valid)
    return times["us"].to_numpy(), times["ns"].to_numpy(), times["unreadable"].to_numpy()


def _since_first_us(whole_us: Int64Array, rest_ns: Int64Array) -> Int64Array:
    """Microseconds since the earliest row, truncated only after the subtraction."""
    if len(whole_us) == 0:
        return whole_us
    first = np.lexsort((rest_ns, whole_us))[0]
    since_us: Int64Array = (whole_us - whole_us[first]) + (rest_ns - rest_ns[first]) // 1000
    return since_us


FORMAT = Format("azure", "Azure CSV", COLUMNS, has_columns(*COLUMNS), read)
