"""Rules, effects and traces over a whole grid, looking only at combinations of the axes involved."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

from fastsim.config import EFFECTS, Config
from fastsim.config.keys import CLASSES, split_class
from fastsim.config.rules import START_KEYS, rules_with_classes, start_fault
from fastsim.config.spec import TRACE
from fastsim.errors import InputError
from fastsim.sweeps.grid.digits import Digit
from fastsim.workload import load_trace

MAX_COMBINATIONS = 4_000_000


def check_grid(base: Config, digits: Sequence[Digit], source: str) -> None:
    """Refuse a grid in which any configuration breaks a rule between keys, or names an unusable trace.

    Raises
    ------
    InputError
        The first rule or trace that fails, with the values that break it.
    """
    for rule in rules_with_classes(all_class_names(base, digits)):
        found = corners(base, digits, rule.keys) if rule.monotone else combinations(base, digits, rule.keys, source)
        for values in found:
            if fault := rule.fault(values):
                raise InputError(f"{source}: {fault}")
    for name in all_class_names(base, digits):
        for (path,) in combinations(base, digits, (f"{CLASSES}.{name}.trace",), source):
            if path is not None:
                load_trace(path)
    for path, count in combinations(base, digits, (TRACE, "workload.num_requests"), source):
        if path is not None:
            rows = len(load_trace(path).arrival_us)
            if count is not None and count > rows:
                raise InputError(
                    f"{source}: workload.num_requests = {count}, but at most {rows} was expected: "
                    f"{path} has no more usable rows"
                )


def refused_at_start(base: Config, digits: Sequence[Digit], source: str) -> str | None:
    """A sentence on the configurations with which no server starts: how many, and why the first of them.

    Raises
    ------
    InputError
        When it is all of them.
    """
    involved = [digit for digit in digits if any(key in digit.settings for key in START_KEYS)]
    others = prod(digit.size for digit in digits if digit not in involved)
    columns = []
    for digit in involved:
        keys = [key for key in START_KEYS if key in digit.settings]
        rows = zip(*(digit.settings[key] for key in keys), strict=True)
        columns.append([(dict(zip(keys, row, strict=True)), count) for row, count in Counter(rows).items()])
    refused, why = 0, None
    for chosen in product(*columns):
        values = {key: value for settings, _ in chosen for key, value in settings.items()}
        fault = start_fault(lambda key, values=values: values.get(key, base.value(key)))  # type: ignore[misc]
        if fault:
            refused += prod(count for _, count in chosen)
            why = why or fault
    if why is None:
        return None
    size = prod(digit.size for digit in digits)
    if refused * others == size:
        raise InputError(f"{source}: {why}")
    return (
        f"{source}: with {refused * others:,} of {size:,} configurations no server starts; they become rows of status "
        f"refused. One of them: {why}"
    )


def all_class_names(base: Config, digits: Sequence[Digit]) -> list[str]:
    """Names of all classes of requests in a grid, those that only an axis makes included."""
    swept = [found[0] for digit in digits for key in digit.settings if (found := split_class(key)) is not None]
    return sorted({*base.workload.classes.names, *swept})


def idle_axes(base: Config, digits: Sequence[Digit], source: str) -> list[str]:
    """A sentence for each axis over a key that changes nothing anywhere in the grid."""
    out = []
    for effect in EFFECTS:
        swept = [key for key in effect.keys if any(key in digit.settings for digit in digits)]
        if swept and not any(effect.when(*values) for values in combinations(base, digits, effect.needs, source)):
            out += [f"{source}: axis {key} changes nothing: {effect.sentence}" for key in swept]
    return out


def corners(base: Config, digits: Sequence[Digit], keys: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Combinations of the least and the largest number of every key, and of its values that are no numbers.

    Each value is in the grid; a combination need not be, when axes go together.
    """
    choices = []
    for key in keys:
        swept = {value for digit in digits if key in digit.settings for value in digit.settings[key]}
        values = swept or {base.value(key)}
        numbers = {value for value in values if isinstance(value, int | float)}
        ends = {min(numbers), max(numbers)} if numbers else set()
        choices.append([*sorted(ends), *(values - numbers)])
    return product(*choices)


def combinations(base: Config, digits: Sequence[Digit], keys: Sequence[str], source: str) -> Iterator[tuple[Any, ...]]:
    """Every distinct combination of the values of some keys that the grid holds.

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
    constant = {key: base.value(key) for key in keys}
    for combination in product(*distinct):
        values = dict(constant)
        for swept, found in zip(mine, combination, strict=True):
            values.update(zip(swept, found, strict=True))
        yield tuple(values[key] for key in keys)
