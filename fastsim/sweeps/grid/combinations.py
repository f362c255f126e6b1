"""Combinations of the values that a grid holds: of some keys, and of those that they follow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from fastsim.config import Config
from fastsim.config.deployment import BLOCKS, FOLLOWS, HARDWARE, SEQS, TOKENS, Hardware, Values, hardware_of, is_given
from fastsim.errors import InputError
from fastsim.sweeps.grid.digits import Digit

MAX_COMBINATIONS = 4_000_000


def has_hardware(base: Config, digits: Sequence[Digit]) -> bool:
    """Whether any configuration says something of hardware, which other keys follow."""
    return any(base.value(key) is not None for key in HARDWARE) or any(
        key in digit.settings for digit in digits for key in HARDWARE
    )


def needed(base: Config, digits: Sequence[Digit], keys: Sequence[str]) -> tuple[str, ...]:
    """Some keys, and those that decide them where they are left open and follow the hardware."""
    if not has_hardware(base, digits):
        return tuple(keys)
    out = list(keys)
    for key in out:  # grows: what a key follows may follow something itself
        if key in FOLLOWS and not _always_given(base, digits, key):
            out += [other for other in FOLLOWS[key] if other not in out]
    return tuple(dict.fromkeys(out))


def _always_given(base: Config, digits: Sequence[Digit], key: str) -> bool:
    columns = [digit.settings[key] for digit in digits if key in digit.settings]
    return None not in columns[0] if columns else is_given(base, key)


def settings_of(digits: Sequence[Digit], keys: Sequence[str], source: str) -> Iterator[dict[str, Any]]:
    """Every distinct combination of the values that the digits give to some keys.

    Raises
    ------
    InputError
        When there are more than four million.
    """
    involved = [digit for digit in digits if any(key in digit.settings for key in keys)]
    mine = [[key for key in keys if key in digit.settings] for digit in involved]
    distinct = [
        list(dict.fromkeys(zip(*(digit.settings[key] for key in swept), strict=True)))
        for digit, swept in zip(involved, mine, strict=True)
    ]
    if prod(map(len, distinct)) > MAX_COMBINATIONS:
        names = ", ".join(key for swept in mine for key in swept)
        raise InputError(
            f"{source}: the axes {names} must be checked together, but more than {MAX_COMBINATIONS} combinations of "
            "their values are more than was expected: use fewer values"
        )
    for combination in product(*distinct):
        settings: dict[str, Any] = {}
        for swept, found in zip(mine, combination, strict=True):
            settings.update(zip(swept, found, strict=True))
        yield settings


def combinations(base: Config, digits: Sequence[Digit], keys: Sequence[str], source: str) -> Iterator[tuple[Any, ...]]:
    """Every combination of the values of some keys that the grid holds, without those where no model fits.

    Raises
    ------
    InputError
        When there are more than four million, or the hardware makes no sense.
    """
    follow = has_hardware(base, digits)
    for settings in settings_of(digits, needed(base, digits, keys), source):
        values = Values(base, settings, follow=follow)
        if values.fault is None:
            yield tuple(values(key) for key in keys)


@dataclass(frozen=True)
class Pools:
    """KV blocks that the configurations of one deployment have, and the two batch limits of one of them."""

    least: int
    most: int
    numbers: tuple[int, int]


def deployments(base: Config, digits: Sequence[Digit], source: str) -> dict[Hardware, Pools]:
    """What a grid serves on what, without what does not fit."""
    if not has_hardware(base, digits):
        return {}
    found: dict[Hardware, Pools] = {}
    for settings in settings_of(digits, needed(base, digits, (BLOCKS, *FOLLOWS[BLOCKS])), source):
        values = Values(base, settings)
        hardware = hardware_of(values)
        if hardware is None or values.fault is not None:
            continue
        blocks = values(BLOCKS)
        before = found.get(hardware, Pools(blocks, blocks, (values(SEQS), values(TOKENS))))
        found[hardware] = Pools(min(before.least, blocks), max(before.most, blocks), before.numbers)
    return found


def corners(base: Config, digits: Sequence[Digit], keys: Sequence[str], source: str) -> Iterator[tuple[Any, ...]]:
    """Combinations of the least and the largest number of every key, and of its values that are no numbers.

    Each value is in the grid; a combination need not be, when axes go together.
    """
    choices = []
    for key in keys:
        values = {value for (value,) in combinations(base, digits, (key,), source)}
        numbers = {value for value in values if isinstance(value, int | float)}
        ends = {min(numbers), max(numbers)} if numbers else set()
        choices.append([*sorted(ends), *(values - numbers)])
    return product(*choices)
