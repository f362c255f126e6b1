"""What all readers of CSV share: columns by name, batch by batch, faults counted."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from fastsim.errors import InputError
from fastsim.workload.readers.files import check_lines
from fastsim.workload.trace import Head, Trace, in_order
from fastsim.workload.workload import INT32_MAX, LATEST_US, Int64Array, Report

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

BATCH_ROWS = 200_000
"""Rows held as text at a time; what is kept of a row is a few numbers."""


class TraceRows(NamedTuple):
    """What a reader makes of some rows: `faults` in order of precedence, arrays by name, each of shape (rows,)."""

    faults: Sequence[tuple[str, Mask]]
    arrays: dict[str, npt.NDArray[Any]]


def has_columns(*columns: str) -> Callable[[Head], bool]:
    """Recognise a CSV by its column names, in any order, others allowed."""
    return lambda head: set(columns) <= set(head.columns)


class TraceTable(NamedTuple):
    """All usable rows: arrays by name, and what became of the others."""

    arrays: dict[str, npt.NDArray[Any]]
    report: Report

    def trace(self, path: Path, format_name: str, arrival_us: Int64Array, **other: Any) -> Trace:
        """A trace of the arrays `prompt_tokens`, `output_tokens` and `other`, in order of arrival."""
        return in_order(
            Trace(
                source=str(path),
                format=format_name,
                arrival_us=arrival_us,
                prompt_tokens=self.arrays["prompt_tokens"].astype(np.int32),
                output_tokens=self.arrays["output_tokens"].astype(np.int32),
                report=self.report,
                **other,
            )
        )


def read_table(
    path: Path, required: Sequence[str], optional: Sequence[str], convert: Callable[[pl.DataFrame], TraceRows]
) -> TraceTable:
    """Read a CSV batch by batch: the usable rows' arrays one after the other.

    Raises
    ------
    InputError
        When the file has a header but no rows, or is not CSV.
    """
    rows = 0
    unusable: Counter[str] = Counter()
    parts: dict[str, list[npt.NDArray[Any]]] = {}
    for frame in text_batches(path, required, optional):
        rows += frame.height
        faults, arrays = convert(frame)
        usable, counts = usable_rows(faults)
        unusable.update(counts)
        for name, values in arrays.items():
            parts.setdefault(name, []).append(values[usable])
    if rows == 0:
        raise InputError(f"{path}: has a header but no rows, but at least one row was expected")
    joined = {name: np.concatenate(values) for name, values in parts.items()}
    order = [reason for reason in dict.fromkeys(unusable) if unusable[reason]]
    report = Report(rows, rows - sum(unusable.values()), {reason: unusable[reason] for reason in order})
    return TraceTable(joined, report)


def text_batches(path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> Iterator[pl.DataFrame]:
    """Columns of a CSV as stripped text, located by name, `BATCH_ROWS` at a time.

    Raises
    ------
    InputError
        When the file is not CSV.
    """
    try:
        check_lines(path)
        lazy = pl.scan_csv(path, infer_schema=False, encoding="utf8-lossy", raise_if_empty=False, glob=False)
        names = {name.strip(): name for name in reversed(lazy.collect_schema().names())}
        found = [*required, *(name for name in optional if name in names)]
        for name in found:
            if name not in names:  # its header is not the line that the format was recognised by
                raise InputError(f"{path}: column {name} is missing, but it was expected")
        columns = [pl.col(names[name]).str.strip_chars().alias(name) for name in found]
        yield from lazy.select(columns).collect_batches(chunk_size=BATCH_ROWS)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{path}: not a readable CSV: {reason}") from None


def numbers(frame: pl.DataFrame, name: str) -> Floats:
    """A text column as floats, NaN where it is not a number; shape (rows,)."""
    return frame[name].cast(pl.Float64, strict=False).fill_null(float("nan")).to_numpy()


def optional_numbers(frame: pl.DataFrame, name: str, default: float) -> Floats:
    """An optional column as floats; missing columns and empty cells take the default."""
    if name not in frame.columns:
        return np.full(frame.height, float(default))
    empty = (frame[name].is_null() | (frame[name] == "")).fill_null(True).to_numpy()
    return np.where(empty, float(default), numbers(frame, name))


def not_whole(values: Floats, low: int, high: int = INT32_MAX) -> Mask:
    """Where a value is not an integer from `low` to `high` (NaN is not)."""
    whole: Mask = (values >= low) & (values <= high) & (values == np.floor(values))
    return ~whole


def length_faults(prompt: Floats, output: Floats, prompt_name: str, output_name: str) -> list[tuple[str, Mask]]:
    """What can be wrong with a prompt and an output length."""
    return [
        (f"{prompt_name} that are not a whole number of at least 1", not_whole(prompt, 1)),
        (f"{output_name} of 0", output == 0),
        (f"{output_name} that are not a whole number of at least 1", not_whole(output, 1)),
    ]


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


def microseconds(seconds: Floats) -> Int64Array:
    """Seconds as truncated microseconds; decimal fractions of whole microseconds are not cut one short."""
    return whole_us(np.round(seconds * 1e6, 3))


def whole_us(us: Floats) -> Int64Array:
    """Microseconds as integers, truncated.

    Raises
    ------
    InputError
        When they do not fit.
    """
    if len(us) and not -LATEST_US <= us.min() <= us.max() <= LATEST_US:
        raise InputError(
            f"workload.trace: arrivals reach from {us.min() / 1e6:.3g} s to {us.max() / 1e6:.3g} s, "
            f"but at most {LATEST_US / 1e6:.3g} s was expected"
        )
    whole: Int64Array = np.floor(us).astype(np.int64)
    return whole


def since_first_us(seconds: Floats) -> Int64Array:
    """Microseconds since the earliest row."""
    return microseconds(seconds - seconds.min(initial=np.inf)) if len(seconds) else np.zeros(0, np.int64)
