"""What all readers of JSON lines share: one object a line, faults counted, numbers kept in flat arrays."""

import json
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.errors import InputError
from fastsim.workload.readers.files import MAX_LINE_BYTES, read_text
from fastsim.workload.trace import Head, Trace, in_order, noted
from fastsim.workload.workload import INT32_MAX, Int64Array, Report


class UnusableRowError(Exception):
    """Why a row cannot be used, as `rows with ...`."""


def has_keys(*keys: str) -> Callable[[Head], bool]:
    """Recognise JSON lines by the keys of the first line."""

    def detect(head: Head) -> bool:
        first = head.text.lstrip().split("\n", 1)[0]
        return first.startswith("{") and all(re.search(rf'"{re.escape(key)}"\s*:', first) for key in keys)

    return detect


def whole(row: dict[str, Any], key: str, low: int = 1) -> int:
    """An integer of a row, from `low` to what an int32 holds; JSON's 12.0 is one.

    Raises
    ------
    UnusableRowError
        When it is missing or something else.
    """
    value = row.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= INT32_MAX:
        raise UnusableRowError(f"{key} of 0" if value == 0 else f"{key} that is not a whole number of at least {low}")
    return value


def prefilled_only(rows: "LineRows", row: dict[str, Any], output: str) -> bool:
    """Whether a measured request has no output token: its prompt was prefilled all the same, so it is load."""
    if whole(row, output, low=0):
        return False
    rows.without_output += 1
    return True


def number(row: dict[str, Any], key: str) -> float:
    """A finite number of a row.

    Raises
    ------
    UnusableRowError
        When it is missing or something else.
    """
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e18:
        raise UnusableRowError(f"{key} that is not a number")
    return float(value)


class LineRows:
    """Usable rows as they are read: flat arrays by name ("d" float64 or "q" int64), and what was unusable."""

    def __init__(self, **types: str) -> None:
        self.columns = {name: array(code) for name, code in types.items()}
        self.unusable: Counter[str] = Counter()
        self.without_output = 0
        self.rows_read = 0

    def add(self, **values: Any) -> None:
        """Append one usable row."""
        for name, value in values.items():
            self.columns[name].append(value)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        column = self.columns[name]
        return np.frombuffer(column, column.typecode) if len(column) else np.zeros(0, column.typecode)

    @property
    def report(self) -> Report:
        """What became of the rows."""
        return Report(self.rows_read, self.rows_read - sum(self.unusable.values()), dict(self.unusable))

    def trace(self, path: Path, format_name: str, arrival_us: Int64Array, **other: Any) -> Trace:
        """A trace of the columns `prompt_tokens`, `output_tokens` and `other`, in order of arrival."""
        trace = in_order(
            Trace(
                source=str(path),
                format=format_name,
                arrival_us=arrival_us,
                prompt_tokens=self["prompt_tokens"].astype(np.int32),
                output_tokens=self["output_tokens"].astype(np.int32),
                report=self.report,
                **other,
            )
        )
        if not self.without_output:
            return trace
        whose = "request has" if self.without_output == 1 else "requests have"
        text = f"{self.without_output} {whose} no output token: load, as if it had one, whose times are not compared"
        return noted(trace, text)


def read_rows(path: Path, rows: LineRows, take: Callable[[dict[str, Any]], None]) -> None:
    """Feed every line's object to `take`, which adds to `rows` or raises UnusableRowError.

    Raises
    ------
    InputError
        When the file cannot be read.
    """
    for row in objects(path, rows):
        try:
            take(row)
        except UnusableRowError as fault:
            rows.unusable[str(fault)] += 1


def objects(path: Path, rows: LineRows) -> Iterator[dict[str, Any]]:
    """The objects of a file, one a line; other lines are counted as unusable."""
    try:
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES + 1):
                if len(line) > MAX_LINE_BYTES:
                    raise InputError(
                        f"{path}: line {rows.rows_read + 1} is longer than {MAX_LINE_BYTES // 2**20} MiB, "
                        "but a JSON object a line was expected"
                    )
                if not line.strip():
                    continue
                rows.rows_read += 1
                try:
                    row = json.loads(line.decode("utf-8-sig"))
                except (ValueError, RecursionError):
                    row = None
                if isinstance(row, dict):
                    yield row
                else:
                    rows.unusable["text that is not a JSON object"] += 1
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}), but JSON lines were expected") from None


def read_document(path: Path, what: str) -> dict[str, Any]:
    """A JSON file that is one object.

    Raises
    ------
    InputError
        When it is not.
    """
    try:
        document = json.loads(read_text(path, what))
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{path}: not valid JSON ({reason}), but {what} was expected") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: not a JSON object, but {what} was expected")
    return document
