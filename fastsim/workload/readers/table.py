"""What all readers of CSV share."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from fastsim.errors import InputError
from fastsim.workload.trace import Head
from fastsim.workload.workload import INT32_MAX

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


def has_columns(*columns: str) -> Callable[[Head], bool]:
    """Recognise a CSV by its column names, in any order, others allowed."""
    return lambda head: set(columns) <= set(head.columns)


def read_text_columns(path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> pl.DataFrame:
    """Columns of a CSV as stripped text, located by name.

    Raises
    ------
    InputError
        When the file has a header but no rows, or is not CSV.
    """
    try:
        frame = pl.read_csv(path, infer_schema=False, encoding="utf8-lossy", raise_if_empty=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{path}: not a readable CSV: {reason}") from None
    frame = frame.rename({name: name.strip() for name in frame.columns if name != name.strip()})
    if frame.height == 0:
        raise InputError(f"{path}: has a header but no rows, but at least one row was expected")
    found = [*required, *(name for name in optional if name in frame.columns)]
    return frame.select(pl.col(name).str.strip_chars() for name in found)


def numbers(frame: pl.DataFrame, name: str) -> Floats:
    """A text column as floats, NaN where it is not a number; shape (rows,)."""
    return frame[name].cast(pl.Float64, strict=False).fill_null(float("nan")).to_numpy()


def not_whole(values: Floats, low: int, high: int = INT32_MAX) -> Mask:
    """Where a value is not an integer from `low` to `high` (NaN is not)."""
    whole: Mask = (values >= low) & (values <= high) & (values == np.floor(values))
    return ~whole


def usable_rows(faults: Sequence[tuple[str, Mask]]) -> tuple[Mask, dict[str, int]]:
    """Rows without a fault, and how many rows each fault cost; a row counts for its first fault."""
    usable = np.ones(len(faults[0][1]), bool)
    unusable = {}
    for reason, wrong in faults:
        count = int(np.count_nonzero(usable & wrong))
        if count:
            unusable[reason] = count
        usable &= ~wrong
    return usable, unusable
