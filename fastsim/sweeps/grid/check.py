"""Rules, effects and traces over a whole grid, looking only at combinations of the axes involved."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from fastsim.config import EFFECTS, Config
from fastsim.config.deployment import HARDWARE, Values
from fastsim.config.keys import CLASSES, split_class
from fastsim.config.rules import START_KEYS, START_RULES, rules_with_classes, start_fault
from fastsim.config.spec import TRACE
from fastsim.errors import InputError
from fastsim.sweeps.grid.combinations import combinations, corners, has_hardware, needed
from fastsim.sweeps.grid.digits import Digit
from fastsim.workload import load_trace


def check_grid(base: Config, digits: Sequence[Digit], source: str) -> None:
    """Refuse a grid in which any configuration breaks a rule between keys, or names an unusable trace.

    Raises
    ------
    InputError
        The first rule or trace that fails, with the values that break it.
    """
    for rule in rules_with_classes(all_class_names(base, digits)):
        found = (
            corners(base, digits, rule.keys, source) if rule.monotone else combinations(base, digits, rule.keys, source)
        )
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
    follow = has_hardware(base, digits)
    if not follow and not _any_fault(base, digits, source):
        return None
    keys = needed(base, digits, (*START_KEYS, *HARDWARE))
    involved = [digit for digit in digits if any(key in digit.settings for key in keys)]
    others = prod(digit.size for digit in digits if digit not in involved)
    columns = []
    for digit in involved:
        mine = [key for key in keys if key in digit.settings]
        rows = zip(*(digit.settings[key] for key in mine), strict=True)
        columns.append([(dict(zip(mine, row, strict=True)), count) for row, count in Counter(rows).items()])
    refused, why = 0, None
    for chosen in product(*columns):
        fault = refusal(base, {key: value for settings, _ in chosen for key, value in settings.items()}, follow)
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


def _any_fault(base: Config, digits: Sequence[Digit], source: str) -> bool:
    """Whether any combination of the values of any rule's own keys breaks it: far fewer than those of all rules."""
    return any(rule.fault(values) for rule in START_RULES for values in combinations(base, digits, rule.keys, source))


def refusal(base: Config, settings: Mapping[str, Any], follow: bool = True) -> str | None:
    """Why no server starts with these settings: the model does not fit, or a server refuses them; None: one does."""
    values = Values(base, settings, follow=follow)
    return values.fault or start_fault(values)


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
