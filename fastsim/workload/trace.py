"""Recorded requests: what a trace and a trace format are, and which format a file has."""

import csv
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.errors import InputError
from fastsim.workload.prefix_tree import Grouped, PrefixTree, pruned
from fastsim.workload.workload import Int32Array, Int64Array, Report

HEAD_BYTES = 64 * 1024


@dataclass(frozen=True, eq=False)
class Trace:
    """The usable rows of a trace in order of arrival; arrays of shape (rows,), as in `Workload`.

    What is None, the format or file does not have. `groups` is the tree of prefix groups; without it every group
    stands alone. `ttft_us` and `e2e_us` are what was measured, float64 microseconds from arrival to the first and
    last token, NaN where a request has no such time; `engine_clock` says whether the engine itself took them.
    """

    source: str
    format: str
    arrival_us: Int64Array
    prompt_tokens: Int32Array
    output_tokens: Int32Array
    report: Report
    max_tokens: Int32Array | None = None
    priority: Int32Array | None = None
    prefix_group: Int32Array | None = None
    prefix_tokens: Int32Array | None = None
    groups: PrefixTree | None = None
    ttft_us: npt.NDArray[np.float64] | None = None
    e2e_us: npt.NDArray[np.float64] | None = None
    engine_clock: bool = False

    @property
    def num_rows(self) -> int:
        """Number of usable rows."""
        return len(self.arrival_us)

    def take(self, rows: npt.NDArray[Any]) -> "Trace":
        """The rows of an index or a mask, in its order; groups that are left with one request are dissolved."""
        arrays = {
            field.name: value[rows]
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), np.ndarray)
        }
        taken = replace(self, **arrays)
        if taken.groups is None or taken.groups.is_flat:
            return taken
        assert taken.prefix_group is not None
        assert taken.prefix_tokens is not None
        group, tokens, tree = pruned(Grouped(taken.prefix_group, taken.prefix_tokens, taken.groups))
        return replace(taken, prefix_group=group, prefix_tokens=tokens, groups=tree)


@dataclass(frozen=True)
class Head:
    """The beginning of a file: what formats are recognised by. A folder has no text and no columns."""

    path: Path
    text: str
    columns: tuple[str, ...]

    @classmethod
    def of(cls, path: Path, data: bytes) -> "Head":
        """The head of a file from its first bytes; columns are those of a CSV header."""
        text = data.decode("utf-8-sig", errors="replace")
        first = re.split(r"[\r\n]", text.lstrip("\r\n"), maxsplit=1)[:1]
        try:
            columns = next(csv.reader(first), [])
        except csv.Error:
            columns = []
        return cls(path, text, tuple(name.strip() for name in columns))


@dataclass(frozen=True)
class Window:
    """What part of a source is wanted: seconds from its start, `end_s` excluded (none: to the end)."""

    start_s: float = 0.0
    end_s: float | None = None


@dataclass(frozen=True)
class Format:
    """One trace format: how a spec names it, what it is, how it is recognised and read.

    `columns` are those without which a CSV cannot be it (none: it is no CSV). A recording is read by `read`; a
    description, from which requests are drawn, by `draw` with a seed and the window that is wanted.
    """

    key: str
    name: str
    columns: tuple[str, ...]
    detect: Callable[[Head], bool]
    read: Callable[[Path], Trace] | None = None
    draw: Callable[[Path, int, Window], Trace] | None = None


def load_trace(path: str | Path, format: str | None = None, *, seed: int = 0, window: Window | None = None) -> Trace:  # noqa: A002
    """Read a trace; an unchanged file is read once.

    Parameters
    ----------
    path
        The file, or the folder of a format that has one.
    format
        Key of a format (`workload.format`); none: whichever recognises the beginning of the file.
    seed
        For formats that describe traffic instead of recording it: the seed of the requests drawn from it.
    window
        The part that is wanted: other rows are left out, and time counts from its start.

    Raises
    ------
    InputError
        When the file is missing, empty, of no known format or without a usable row.
    """
    path = Path(path)
    window = window or Window()
    _check_kind(path)
    known = detect_format(path) if format is None else _named(path, format)
    trace = _load(path, _stamp(path), known, seed if known.draw is not None else 0, window)
    if trace.num_rows == 0:
        reasons = "; ".join(f"{count} with {reason}" for reason, count in trace.report.unusable.items())
        raise InputError(f"{path}: none of {trace.report.rows_read} rows can be used: {reasons}")
    return trace


@lru_cache(maxsize=2)
def _load(path: Path, _stamp: tuple[int, ...], known: Format, seed: int, window: Window) -> Trace:
    if known.draw is not None:
        return known.draw(path, seed, window)
    assert known.read is not None  # a format has one of the two
    return in_window(known.read(path), window)


def _check_kind(path: Path) -> None:
    """Refuse what is neither a file nor a folder: reading a pipe or a device may never end."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read ({reason}), but a trace file was expected") from None
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InputError(f"{path}: neither a file nor a folder, but a trace was expected")


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes when the file, or a file of the folder, changes."""
    try:
        paths = sorted(path.iterdir()) if path.is_dir() else [path]
        found = [each.stat() for each in paths]
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}), but a trace file was expected") from None
    return tuple(number for one in found for number in (one.st_mtime_ns, one.st_size))


def _named(path: Path, key: str) -> Format:
    from fastsim.workload.readers import FORMATS

    known = next((known for known in FORMATS if known.key == key), None)
    if known is None:
        keys = ", ".join(known.key for known in FORMATS)
        raise InputError(f"{path}: format {key!r} is not known, but one of {keys} was expected")
    check_columns(read_head(path), known)
    return known


def read_head(path: Path) -> Head:
    """The beginning of a file.

    Raises
    ------
    InputError
        When it cannot be read or is empty.
    """
    if path.is_dir():
        return Head(path, "", ())
    try:
        with path.open("rb") as file:
            data = file.read(HEAD_BYTES)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}), but a trace file was expected") from None
    if not data.strip():
        raise InputError(f"{path}: is empty, but a trace with a header and rows was expected")
    return Head.of(path, data)


def detect_format(path: Path) -> Format:
    """The format that recognises the head of the file.

    Raises
    ------
    InputError
        When none does; the sentence names the missing columns of the closest one.
    """
    from fastsim.workload.readers import FORMATS  # here: the readers need polars, which a run without a trace does not
    from fastsim.workload.readers.summaries import summary_sentence

    head = read_head(path)
    for known in FORMATS:
        if known.detect(head):
            check_columns(head, known)
            return known
    if (sentence := summary_sentence(path, head)) is not None:
        raise InputError(sentence)
    if path.is_dir():
        raise InputError(
            f"{path}: a folder, which cannot be read as a trace, but a file was expected, or a folder of ServeGen's "
            "chunk-N-trace.csv and chunk-N-dataset.json"
        )
    tables = [known for known in FORMATS if known.columns]
    closest = max(tables, key=lambda known: len(set(known.columns) & set(head.columns)))
    if set(closest.columns) & set(head.columns):
        check_columns(head, closest)
    known_formats = "; ".join(f"{known.name}: {','.join(known.columns)}" for known in tables)
    others = ", ".join(known.name for known in FORMATS if not known.columns)
    raise InputError(
        f"{path}: not a known trace format, but one of these headers was expected: {known_formats} - or {others}"
    )


def check_columns(head: Head, known: Format) -> None:
    """Refuse a CSV that lacks a column of the format, or has it twice.

    Raises
    ------
    InputError
        Naming the column.
    """
    for name in known.columns:
        if name not in head.columns:
            raise InputError(
                f"{head.path}: column {name} is missing, but the {known.name} format was expected to have it"
            )
        if head.columns.count(name) > 1:
            raise InputError(f"{head.path}: column {name} is there twice, but one was expected")


def in_order(trace: Trace) -> Trace:
    """The trace with its rows in order of arrival; a note says when they were not."""
    if trace.num_rows == 0 or bool(np.all(np.diff(trace.arrival_us) >= 0)):
        return trace
    return noted(trace.take(np.argsort(trace.arrival_us, kind="stable")), "rows were sorted by arrival")


def noted(trace: Trace, *notes: str) -> Trace:
    """The trace with further notes in its report."""
    return replace(trace, report=replace(trace.report, notes=(*trace.report.notes, *notes))) if notes else trace


def in_window(trace: Trace, window: Window) -> Trace:
    """The rows inside the window, arrivals counted from its start; a note says how many are outside.

    Raises
    ------
    InputError
        When no row is inside.
    """
    if window == Window() or trace.num_rows == 0:
        return trace
    start_us = round(window.start_s * 1e6)
    inside = trace.arrival_us >= start_us
    if window.end_s is not None:
        inside &= trace.arrival_us < round(window.end_s * 1e6)
    outside = int(np.count_nonzero(~inside))
    if outside == trace.num_rows:
        raise InputError(
            f"{trace.source}: no row lies in the window from {window.start_s:g} s to "
            f"{'the end' if window.end_s is None else f'{window.end_s:g} s'}, but the trace spans "
            f"{trace.arrival_us[0] / 1e6:g} to {trace.arrival_us[-1] / 1e6:g} s"
        )
    kept = trace.take(inside)
    kept = replace(kept, arrival_us=kept.arrival_us - start_us, report=replace(trace.report, rows_used=kept.num_rows))
    return noted(kept, f"{outside} rows outside of the window were left out") if outside else kept
