"""The Azure LLM inference traces (2023, 2024): `TIMESTAMP,ContextTokens,GeneratedTokens`.

Timestamps have up to nine fractional digits and may carry an offset from UTC. Times count from the first usable
row. Rows without output occur; they cannot be simulated and are reported.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from fastsim.workload.readers.table import Mask, has_columns, not_whole, numbers, read_text_columns, usable_rows
from fastsim.workload.trace import Format, Trace, in_order
from fastsim.workload.workload import Report

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
TIMESTAMP = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)?$"


def read(path: Path) -> Trace:
    """Read an Azure CSV.

    Raises
    ------
    InputError
        When the file is not CSV or has no rows.
    """
    frame = read_text_columns(path, COLUMNS)
    whole_us, rest_ns, unreadable = _timestamps(frame)
    prompt, output = numbers(frame, "ContextTokens"), numbers(frame, "GeneratedTokens")
    usable, unusable = usable_rows(
        [
            ("a TIMESTAMP that cannot be read", unreadable),
            ("ContextTokens that are not a whole number of at least 1", not_whole(prompt, 1)),
            ("GeneratedTokens of 0", output == 0),
            ("GeneratedTokens that are not a whole number of at least 1", not_whole(output, 1)),
        ]
    )
    return in_order(
        Trace(
            source=str(path),
            format=FORMAT.name,
            arrival_us=_since_first_us(whole_us[usable], rest_ns[usable]),
            prompt_tokens=prompt[usable].astype(np.int32),
            output_tokens=output[usable].astype(np.int32),
            report=Report(frame.height, int(usable.sum()), unusable),
        )
    )


def _timestamps(frame: pl.DataFrame) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Mask]:
    """Whole seconds in microseconds since 1970 (UTC), the fraction in nanoseconds, and where neither can be read."""
    text = pl.col("TIMESTAMP")
    offset = text.str.extract(r"([+-]\d\d:\d\d)$")
    minutes = offset.str.slice(1, 2).cast(pl.Int64) * 60 + offset.str.slice(4, 2).cast(pl.Int64)
    signed = pl.when(offset.str.starts_with("-")).then(-minutes).otherwise(minutes).fill_null(0)
    second = text.str.slice(0, 19).str.replace("T", " ").str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False)
    fraction = text.str.extract(r"\.(\d+)").str.pad_end(9, "0").cast(pl.Int64, strict=False).fill_null(0)
    valid = text.str.contains(TIMESTAMP).fill_null(False) & second.is_not_null()
    times = frame.select(us=(second.dt.epoch("us") - signed * 60_000_000).fill_null(0), ns=fraction, unreadable=~valid)
    return times["us"].to_numpy(), times["ns"].to_numpy(), times["unreadable"].to_numpy()


def _since_first_us(whole_us: npt.NDArray[np.int64], rest_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Microseconds since the earliest row, truncated only after the subtraction."""
    if len(whole_us) == 0:
        return whole_us
    first = np.lexsort((rest_ns, whole_us))[0]
    since_us: npt.NDArray[np.int64] = (whole_us - whole_us[first]) + (rest_ns - rest_ns[first]) // 1000
    return since_us


FORMAT = Format("Azure CSV", COLUMNS, has_columns(*COLUMNS), read)
