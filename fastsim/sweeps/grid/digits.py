"""The digits of a grid: each axis, zip group or choice is one digit of the mixed-radix number of a configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from fastsim.config import Key
from fastsim.config.keys import is_file
from fastsim.errors import InputError
from fastsim.model import shown

MAX_AXIS_VALUES = 100_000
MAX_DIGIT = 2**31 - 1
"""Digits are int32. Only seeds, which are a range and never a list, come near."""


@dataclass(frozen=True)
class Axis:
    """One column of a sweep's rows: its dotted name and what its rows show."""

    name: str
    values: Sequence[Any]


@dataclass(frozen=True)
class Digit:
    """One digit: `axes` are the columns it shows, `settings` the values it gives to keys, by position.

    An axis over a key has one of each, a zip group several of both, a choice one axis and any number of keys.
    """

    axes: tuple[Axis, ...]
    settings: Mapping[str, Sequence[Any]]

    @property
    def size(self) -> int:
        """Number of positions."""
        return len(self.axes[0].values)

    @property
    def decides_workload(self) -> bool:
        """Whether it sets a workload key: such digits are the most significant ones."""
        return any(key.startswith("workload.") for key in self.settings)


def key_digit(values: Mapping[str, Sequence[Any]]) -> Digit:
    """The digit of an axis over a key, or of keys that are zipped."""
    return Digit(tuple(Axis(key, labels(key, column)) for key, column in values.items()), dict(values))


def labels(key: str, values: Sequence[Any]) -> Sequence[Any]:
    """What rows show for the values of a key: scalars as they are, lists as text, files by their last parts."""
    if is_file(key):
        return _short_paths(["none" if value is None else str(value) for value in values])
    if isinstance(values, range):
        return values
    return [shown(value) if isinstance(value, tuple) else value for value in values]


def _short_paths(paths: Sequence[str]) -> list[str]:
    """The fewest trailing parts that tell the files apart: rows must not depend on where a folder lies."""
    parts = [PurePath(path).parts for path in paths]
    for depth in range(1, max(map(len, parts), default=1) + 1):
        short = ["/".join(part[-depth:]) for part in parts]
        if len(set(short)) == len(short):
            return short
    return list(paths)


def axis_values(key: Key, raw: object, source: str) -> Sequence[Any]:
    """The values of an axis: a list, or a range `{start, stop, num, scale}` with both ends included.

    Raises
    ------
    InputError
        When it is empty, names a value twice, or a value is none of the key's.
    """
    if isinstance(raw, Mapping):
        raw = _range(key, raw, source)
    if not isinstance(raw, list | tuple | range):
        raise InputError(
            f"{source}: axis {key.name} = {shown(raw)}, "
            "but a list of values or {start, stop, num, scale} was expected"
        )
    if not raw:
        raise InputError(f"{source}: axis {key.name} has no values, but at least one was expected")
    if len(raw) > MAX_AXIS_VALUES:
        raise InputError(
            f"{source}: axis {key.name} has {len(raw)} values, but at most {MAX_AXIS_VALUES} were expected"
        )
    values = [key.validate(value, source) for value in raw]
    seen: set[Any] = set()
    for value in values:
        if value in seen:
            raise InputError(f"{source}: axis {key.name} has {shown(value)} twice, but distinct values were expected")
        seen.add(value)
    return values


def _range(key: Key, table: Mapping[str, Any], source: str) -> list[float]:
    """Values from start to stop, linear or log; rounded to integers for an integer key, else to 12 digits."""
    where = f"{source}: axis {key.name}"
    if not key.is_number:
        raise InputError(f"{where} is a range, but a list was expected: each value is {key.describe()}")
    for name in table:
        if name not in ("start", "stop", "num", "scale"):
            raise InputError(f"{where} has {shown(name)}, but only start, stop, num and scale were expected")
    for name in ("start", "stop", "num"):
        if name not in table:
            raise InputError(f"{where} has no {name}, but a range was expected to have start, stop and num")
    start, stop = (_limit(table[name], f"{where}.{name}") for name in ("start", "stop"))
    num, scale = table["num"], table.get("scale", "linear")
    if isinstance(num, bool) or not isinstance(num, int) or not 1 <= num <= MAX_AXIS_VALUES:
        raise InputError(f"{where}.num = {shown(num)}, but an integer from 1 to {MAX_AXIS_VALUES} was expected")
    if scale not in ("linear", "log"):
        raise InputError(f'{where}.scale = {shown(scale)}, but one of "linear", "log" was expected')
    if scale == "log" and min(start, stop) <= 0:
        raise InputError(f"{where}.scale = {shown(scale)}, but start and stop above 0 were expected for it")
    if num == 1:
        values = [start]
    elif scale == "log":
        values = [start, *(start * (stop / start) ** (i / (num - 1)) for i in range(1, num - 1)), stop]
    else:
        values = [start, *(start + (stop - start) * (i / (num - 1)) for i in range(1, num - 1)), stop]
    # Twelve digits are short to read and the same on every machine, whose pow may differ in the last bit.
    return [round(value) if key.is_integer else float(f"{value:.12g}") for value in values]


def _limit(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e18:
        raise InputError(f"{where} = {shown(value)}, but a number was expected")
    return float(value)
