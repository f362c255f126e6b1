"""From the values of keys to the numbers of records: what every engine's records are filled with."""

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.config import Config, resolved

Take = Callable[[str, Callable[[Any], Any]], npt.NDArray[Any]]
"""`take(key, encode)`: the encoded values of a key for the configurations in question, shape (count,)."""


@cache
def code_of(codes: type[IntEnum]) -> Callable[[str], int]:
    """Encodes the name of a member."""
    return lambda name: int(codes[name.upper().replace("-", "_")])


@cache
def integer_or(nothing: int) -> Callable[[int | None], int]:
    """Encodes an integer; None is `nothing`."""
    return lambda value: nothing if value is None else int(value)


@cache
def microseconds_or(nothing: int) -> Callable[[float | None], int]:
    """Encodes seconds as whole microseconds; None is `nothing`."""
    return lambda seconds: nothing if seconds is None else round(seconds * 1e6)


def take_of(configs: Sequence[Config]) -> Take:
    """`take` for configurations one by one, defaults resolved."""
    filled = [resolved(config) for config in configs]

    def take(key: str, encode: Callable[[Any], Any]) -> npt.NDArray[Any]:
        return np.array([encode(config.value(key)) for config in filled])

    return take
