"""What a trace reader gives, and what all readers of CSV share."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from fastsim.errors import InputError
from fastsim.workload.workload import INT32_MAX, Int32Array, Int64Array, Report

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trace:
    """The usable rows of a trace in order of arrival; arrays of shape (rows,), as in `Workload`.

    `priority`, and `prefix_group` with `prefix_tokens`, are None when the format or file does not have them.
    """

    source: str
    format: str
    arrival_us: Int64Array
    prompt_tokens: Int32Array
    output_tokens: Int32Array
    report: Report
    priority: Int32Array | None = None
    prefix_group: Int32Array | None = None
    prefix_tokens: Int32Array | None = None


@dataclass(frozen=True)
class Head:
    """The beginning of a file: what formats are recognised by."""

    path: Path
    text: str
    columns: tuple[str, ...]

    @classmethod
    def of(cls, path: Path, data: bytes) -> "Head":
        """The head of a file from its first bytes; columns are those of a CSV header."""
        text = data.decode("utf-8-sig", errors="replace")
        first = text.lstrip("\r\n").splitlines()[:1]
        try:
            columns = next(csv.reader(first), [])
        except csv.Error:
            columns = []
        return cls(path, text, tuple(name.strip() for name in columns))


@dataclass(frozen=True)
class Format:
    """One trace format: its name, the columns it cannot do without, how it is recognised, how it is read."""

    name: str
    columns: tuple[str, ...]
    detect: Callable[[Head], bool]
    read: Callable[[Path], Trace]


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


def in_order(trace: Trace) -> Trace:
    """The trace with its rows in order of arrival; a note says when they were not."""
    if len(trace.arrival_us) == 0 or bool(np.all(np.diff(trace.arrival_us) >= 0)):
        return trace
    order = np.argsort(trace.arrival_us, kind="stable")

    def sort(values: Int32Array | None) -> Int32Array | None:
        return None if values is None else values[order]

    report = trace.report
    return Trace(
        trace.source,
        trace.format,
        trace.arrival_us[order],
        trace.prompt_tokens[order],
        trace.output_tokens[order],
        Report(report.rows_read, report.rows_used, report.unusable, (*report.notes, "rows were sorted by arrival")),
        sort(trace.priority),
        sort(trace.prefix_group),
        sort(trace.prefix_tokens),
    )
