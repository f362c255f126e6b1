"""Result columns by name, those of classes of requests included, and rows as dicts."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.errors import InputError
from fastsim.metrics.columns import CLASS_COLUMNS, COLUMNS, FLOAT_COLUMNS, INT_COLUMNS, NULL, OF_A_CLASS, Column


class _ByName(dict[str, Column]):
    """Columns by name; those of classes are made when they are asked for."""

    def __missing__(self, name: str) -> Column:
        base, chosen = split_class(name)
        if not chosen or base not in OF_A_CLASS:
            raise KeyError(name)
        return class_column(self[base], chosen)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        base, chosen = split_class(name)
        return super().__contains__(name) or bool(chosen and base in OF_A_CLASS)

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default


@cache
def by_name() -> Mapping[str, Column]:
    """Columns by name: those of COLUMNS and, not listed, `NAME[CLASS]` for any class."""
    return _ByName({column.name: column for column in COLUMNS})


_CLASS_COLUMN = re.compile(r"(\w+)\[(\w+)\]")


def split_class(name: str) -> tuple[str, str]:
    """`ttft_p99_ms[chat]` as `ttft_p99_ms` and `chat`; of any other column the class is empty."""
    found = _CLASS_COLUMN.fullmatch(name)
    return (found[1], found[2]) if found else (name, "")


def classes_in(names: Iterable[str]) -> tuple[str, ...]:
    """Names of the classes that some of these columns tell of, in their order."""
    return tuple(dict.fromkeys(found[1] for found in map(split_class, names) if found[1]))


def class_column(column: Column, name: str) -> Column:
    """A column for the requests of one class."""
    what = column.description or column.name.replace("_", " ")
    return replace(column, name=f"{column.name}[{name}]", description=f"{what}; of class {name} alone", prometheus=None)


@cache
def columns_with(class_names: tuple[str, ...]) -> tuple[Column, ...]:
    """All result columns of rows over workloads with these classes: COLUMNS, then CLASS_COLUMNS class by class."""
    return (*COLUMNS, *(class_column(column, name) for name in class_names for column in CLASS_COLUMNS))


@cache
def float_columns(class_names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the float64 columns of such rows: FLOAT_COLUMNS, then all that classes have, as floats."""
    return (*FLOAT_COLUMNS, *(f"{column.name}[{name}]" for name in class_names for column in CLASS_COLUMNS))


def named_values(
    floats: npt.NDArray[np.float64], ints: npt.NDArray[np.int64], class_names: tuple[str, ...] = ()
) -> dict[str, Any]:
    """One row as a dict by column name, in the order of `columns_with`: None for null, bools, labels for codes.

    Parameters
    ----------
    floats, ints
        Shape (len(float_columns(class_names)),) float64 and (len(INT_COLUMNS),) int64.
    class_names
        Of the workload's classes.
    """
    names = float_columns(class_names)
    numbers: dict[str, Any] = {
        name: None if value != value else value for name, value in zip(names, floats.tolist(), strict=True)
    }
    numbers.update(zip(INT_COLUMNS, ints.tolist(), strict=True))
    return {column.name: _plain(column, numbers[column.name]) for column in columns_with(class_names)}


def _plain(column: Column, value: Any) -> Any:
    if column.kind == "float" or value is None:
        return value
    if value == NULL:
        return None
    if column.kind == "bool":
        return bool(value)
    return column.labels[value] if column.kind == "code" else int(value)


def column_or_error(name: str, known: Iterable[str] = ()) -> Column:
    """The column of that name; a mistake is answered with names that are near.

    Parameters
    ----------
    name
        Such as `ttft_p99_ms`, or `ttft_p99_ms[chat]`.
    known
        The columns there are; none: those of any rows.

    Raises
    ------
    InputError
        When there is none.
    """
    names = list(known) or list(by_name())
    if name in names if known else name in by_name():
        return by_name()[name]
    base, chosen = split_class(name)
    classes = classes_in(names)
    if chosen and base in OF_A_CLASS:
        there = f"the classes are {', '.join(classes)}" if classes else "there are no classes (workload.classes)"
        raise InputError(f"no result column {name!r}: {there}")
    if chosen and base in by_name():
        raise InputError(f"no result column {name!r}: {base} is not told by class; `fastsim columns` lists what is")
    near = get_close_matches(name, names, n=3)
    hint = f"; did you mean {', '.join(near)}?" if near else "; `fastsim columns` lists them"
    raise InputError(f"no result column {name!r}{hint}")
