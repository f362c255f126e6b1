"""Recorded requests: which format a file has, and its rows as arrays."""

from functools import lru_cache
from pathlib import Path

from fastsim.errors import InputError
from fastsim.workload.readers import FORMATS
from fastsim.workload.readers.base import Format, Head, Trace

HEAD_BYTES = 64 * 1024


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
