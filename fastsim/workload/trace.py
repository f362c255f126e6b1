"""Recorded requests: what a trace and a trace format are, and which format a file has."""

import csv
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from fastsim.errors import InputError
from fastsim.workload.workload import Int32Array, Int64Array, Report

HEAD_BYTES = 64 * 1024


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


def load_trace(path: str | Path) -> Trace:
    """Read a trace in any known format; an unchanged file is read once.

    Raises
    ------
    InputError
        When the file is missing, empty, of no known format or without a usable row.
    """
    path = Path(path)
    try:
        stat = path.stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}), but a trace file was expected") from None
    return _load(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=2)
def _load(path: Path, _mtime_ns: int, _size: int) -> Trace:
    trace = detect_format(path).read(path)
    if len(trace.arrival_us) == 0:
        reasons = "; ".join(f"{count} with {reason}" for reason, count in trace.report.unusable.items())
        raise InputError(f"{path}: none of {trace.report.rows_read} rows can be used: {reasons}")
    return trace


def detect_format(path: Path) -> Format:
    """The format that recognises the head of the file.

    Raises
    ------
    InputError
        When none does; the sentence names the missing columns of the closest one.
    """
    try:
        with path.open("rb") as file:
            data = file.read(HEAD_BYTES)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}), but a trace file was expected") from None
    if not data.strip():
        raise InputError(f"{path}: is empty, but a trace with a header and rows was expected")
    from fastsim.workload.readers import FORMATS  # here: the readers need polars, which a run without a trace does not

    head = Head.of(path, data)
    for known in FORMATS:
        if known.detect(head):
            for name in known.columns:
                if head.columns.count(name) > 1:
                    raise InputError(f"{path}: column {name} is there twice, but one was expected")
            return known
    closest = max(FORMATS, key=lambda known: len(set(known.columns) & set(head.columns)))
    missing = [name for name in closest.columns if name not in head.columns]
    if len(missing) < len(closest.columns):
        raise InputError(
            f"{path}: column {missing[0]} is missing, but the {closest.name} format was expected to have it"
        )
    known_formats = "; ".join(f"{known.name}: {','.join(known.columns)}" for known in FORMATS)
    raise InputError(f"{path}: not a known trace format, but one of these headers was expected: {known_formats}")


def in_order(trace: Trace) -> Trace:
    """The trace with its rows in order of arrival; a note says when they were not."""
    if len(trace.arrival_us) == 0 or bool(np.all(np.diff(trace.arrival_us) >= 0)):
        return trace
    order = np.argsort(trace.arrival_us, kind="stable")

    def sort(values: Int32Array | None) -> Int32Array | None:
        return None if values is None else values[order]

    return replace(
        trace,
        arrival_us=trace.arrival_us[order],
        prompt_tokens=trace.prompt_tokens[order],
        output_tokens=trace.output_tokens[order],
        report=replace(trace.report, notes=(*trace.report.notes, "rows were sorted by arrival")),
        priority=sort(trace.priority),
        prefix_group=sort(trace.prefix_group),
        prefix_tokens=sort(trace.prefix_tokens),
    )
