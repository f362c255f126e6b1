"""Many configurations at once: the values of a key or axis as an array."""

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.config import KEYS, Config, Key
from fastsim.config.deployment import Values
from fastsim.config.derived import DERIVED_KEYS
from fastsim.errors import InputError
from fastsim.sweeps.grid.combinations import has_hardware, needed
from fastsim.sweeps.grid.digits import Digit

Int64Array = npt.NDArray[np.int64]
Encode = Callable[[Any], Any]

MAX_TABLE = 65_536
"""Largest lookup table that is kept; beyond it only the combinations that a chunk holds are looked at."""


class Columns:
    """Arrays of values by key or axis, through lookup tables over the digits involved."""

    def __init__(self, base: Config, digits: Sequence[Digit], strides: Sequence[int]) -> None:
        self._base = base
        self._digits = digits
        self._strides = strides
        self._follow = has_hardware(base, digits)
        self._tables: dict[tuple[str, Encode | None], npt.NDArray[Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Tables are cheap to make again, and the functions that encoded them may not travel to another process.
        return {**self.__dict__, "_tables": {}}

    def position(self, digit: int, indices: Int64Array) -> Int64Array:
        """Where a digit stands in each configuration."""
        return indices // self._strides[digit] % self._digits[digit].size

    def take(self, name: str, indices: Int64Array, encode: Encode | None) -> npt.NDArray[Any]:
        """See `Grid.take`."""
        involved = self._involved(name)
        sizes = [self._digits[n].size for n in involved]
        place = np.zeros(len(indices), np.int64)
        for n, size in zip(involved, sizes, strict=True):
            place = place * size + self.position(n, indices)
        if prod(sizes) > MAX_TABLE:
            places, back = np.unique(place, return_inverse=True)
            return self._table(name, involved, places.tolist(), encode)[back]
        if (name, encode) not in self._tables:
            self._tables[name, encode] = self._table(name, involved, range(prod(sizes)), encode)
        table = self._tables[name, encode]
        return table[place] if involved else np.repeat(table[:1], len(indices), axis=0)

    def _involved(self, name: str) -> list[int]:
        """The digits that decide a key, or the default it takes from other keys; or the one of an axis."""
        if name in KEYS:
            keys = needed(self._base, self._digits, self._with_defaults(name))
            return [n for n, digit in enumerate(self._digits) if any(key in digit.settings for key in keys)]
        found = [n for n, digit in enumerate(self._digits) if any(axis.name == name for axis in digit.axes)]
        if not found:
            raise InputError(f"{name} is neither a key nor an axis of this grid")
        return found

    @staticmethod
    def _with_defaults(name: str) -> tuple[str, ...]:
        """A key, and those that its default follows."""
        return (name, *(DERIVED_KEYS[name].needs if name in DERIVED_KEYS else ()))

    def _table(
        self, name: str, involved: Sequence[int], places: Iterable[int], encode: Encode | None
    ) -> npt.NDArray[Any]:
        """A key's or axis's value at combinations of the digits involved, encoded."""
        values = [self._value(name, involved, place) for place in places]
        if encode is not None:
            return np.array([encode(value) for value in values])
        dtype = _dtype(KEYS.get(name))
        if dtype is not object:
            return np.array(values, dtype)
        out = np.empty(len(values), object)
        for n, value in enumerate(values):  # one by one: a value may itself be a tuple
            out[n] = value
        return out

    def _value(self, name: str, involved: Sequence[int], place: int) -> Any:
        """A key's or axis's value when the digits involved stand at a combined place."""
        settings: dict[str, Any] = {}
        for n in reversed(involved):
            digit = self._digits[n]
            place, position = divmod(place, digit.size)
            if name not in KEYS:
                return next(axis.values[position] for axis in digit.axes if axis.name == name)
            settings |= {key: values[position] for key, values in digit.settings.items()}

        value = Values(self._base, settings, follow=self._follow)
        given = value(name)
        if given is None and name in DERIVED_KEYS:
            derived = DERIVED_KEYS[name]
            return derived.fill(*(value(key) for key in derived.needs))
        return given


def _dtype(key: Key | None) -> type:
    """int64, float64 or bool of a key that always has such a value; else object."""
    if key is None or key.optional:
        return object
    if isinstance(key.default, bool):
        return np.bool_
    if isinstance(key.default, tuple):
        return object
    return np.int64 if key.is_integer else np.float64 if key.is_number else object
