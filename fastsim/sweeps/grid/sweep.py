"""From the `[sweep]` tables of a spec's layers, and `--axis` options, to the digits of a grid."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastsim.config import KEYS, Config, Spec, find_key
from fastsim.config.across import across
from fastsim.config.deployment import FOLLOWS, HARDWARE, is_given
from fastsim.config.keys import is_file
from fastsim.config.spec import Layer, flat, parse_value, resolved_path
from fastsim.errors import InputError
from fastsim.model import shown, shown_name, suggestion
from fastsim.sweeps.grid.digits import MAX_AXIS_VALUES, MAX_DIGIT, Axis, Digit, axis_values, key_digit

SEED, ENGINE = "workload.seed", "engine.name"
PARTS = ("axes", "zip", "seeds", "choice")


@dataclass
class SweepTable:
    """What is swept, by where it was said. A later layer replaces what an earlier one said about the same key."""

    axes: dict[str, Sequence[Any]] = field(default_factory=dict)
    zips: list[dict[str, Sequence[Any]]] = field(default_factory=list)
    seeds: tuple[object, str] | None = None
    choices: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What engines that are compared do not read of the spec; known once there are digits."""

    def digits(self, base: Config) -> tuple[Digit, ...]:
        """All digits, the ones that decide the workload first, seeds before all: neighbours share base draws."""
        digits = [self._axis_digit(key, values, base) for key, values in self.axes.items()]
        if self.seeds is not None:
            seeds = _seeds(*self.seeds, base.workload.seed)
            digits.append(Digit((Axis(SEED, seeds),), {SEED: seeds}))
        digits += [key_digit(group) for group in self.zips]
        digits += [_choice_digit(name, options, self._open(base)) for name, options in self.choices.items()]
        return tuple(sorted(digits, key=lambda digit: (not digit.decides_workload, SEED not in digit.settings)))

    def _axis_digit(self, key: str, values: Sequence[Any], base: Config) -> Digit:
        """An axis over engines says the spec in the words of each; any other sets its key alone."""
        if key != ENGINE or len(values) < 2:
            return key_digit({key: values})
        found = across(base, values, self.keys())
        self.notes = [f"{ENGINE} is an axis: {note}" for note in found.notes]
        return Digit((Axis(key, values),), found.settings)

    def keys(self) -> list[str]:
        """Every key that is swept."""
        choices = [key for options in self.choices.values() for settings in options.values() for key in settings]
        return [*self.axes, *(key for group in self.zips for key in group), *choices]

    def _open(self, base: Config) -> Callable[[str], Any]:
        """The value of a key where a choice does not say it: None, if it then follows the hardware."""
        swept = self.keys()
        hardware = any(key in swept or base.value(key) is not None for key in HARDWARE)

        def value(key: str) -> Any:
            return None if hardware and key in FOLLOWS and not is_given(base, key) else base.value(key)

        return value


def read_sweep(spec: Spec, axis_options: Iterable[str] = ()) -> SweepTable:
    """What a spec sweeps. A setting in a later layer (`--set`) pins the axis of an earlier one.

    Raises
    ------
    InputError
        When an axis is not a key, empty, named twice or in two places, or zipped axes differ in length.
    """
    sweep = SweepTable()
    for layer in spec.layers:
        _pin(sweep, layer)
        _add(sweep, layer)
    _add_options(sweep, spec, axis_options)
    _check_places(sweep, spec.source)
    return sweep


def _pin(sweep: SweepTable, layer: Layer) -> None:
    for key in layer.settings:
        sweep.axes.pop(key, None)
        if key == SEED:
            sweep.seeds = None
        if any(key in group for group in sweep.zips):
            raise InputError(f"{layer.source}: {key} is set, but it is part of a zip; a key outside was expected")


def _add(sweep: SweepTable, layer: Layer) -> None:
    for name in layer.sweep:
        if name not in PARTS:
            raise InputError(
                f"{layer.source}: sweep.{shown_name(name)} is not a key{suggestion(str(name), list(PARTS))}"
            )
    for key, raw in flat(_table(layer, "axes"), layer.source).items():
        sweep.axes[key] = _values(key, raw, layer)
    if "zip" in layer.sweep:
        sweep.zips = _zips(sweep, layer)
    if "seeds" in layer.sweep:
        sweep.axes.pop(SEED, None)
        sweep.seeds = (layer.sweep["seeds"], layer.source)
    for name, options in _table(layer, "choice").items():
        sweep.choices[name] = _choice(name, options, layer)


def _table(layer: Layer, name: str) -> Mapping[str, Any]:
    table = layer.sweep.get(name, {})
    if not isinstance(table, Mapping):
        raise InputError(f"{layer.source}: sweep.{name} = {shown(table)}, but a table was expected")
    return table


def _values(key: str, raw: object, layer: Layer) -> Sequence[Any]:
    values = axis_values(KEYS[key], raw, layer.source)
    return [resolved_path(key, value, layer.folder) for value in values] if is_file(key) else values


def _zips(sweep: SweepTable, layer: Layer) -> list[dict[str, Sequence[Any]]]:
    """Zip groups: tables of their own axes, or lists of names of axes that advance together."""
    groups = layer.sweep["zip"]
    if not isinstance(groups, list):
        raise InputError(f"{layer.source}: sweep.zip = {shown(groups)}, but a list of tables was expected")
    out = []
    for group in groups:
        if isinstance(group, Mapping):
            columns = {key: _values(key, raw, layer) for key, raw in flat(group, layer.source).items()}
        elif isinstance(group, list) and all(isinstance(name, str) for name in group):
            columns = {name: _taken_axis(sweep, name, layer.source) for name in group}
        else:
            raise InputError(
                f"{layer.source}: sweep.zip has {shown(group)}, "
                "but a table of axes or a list of axis names was expected"
            )
        if not columns:
            raise InputError(f"{layer.source}: sweep.zip has an empty group, but at least one axis was expected")
        sizes = {key: len(values) for key, values in columns.items()}
        if len(set(sizes.values())) > 1:
            words = ", ".join(f"{key} has {size}" for key, size in sizes.items())
            raise InputError(f"{layer.source}: sweep.zip needs equally many values of each axis, but {words}")
        out.append(columns)
    return out


def _taken_axis(sweep: SweepTable, name: str, source: str) -> Sequence[Any]:
    if name not in sweep.axes:
        raise InputError(
            f"{source}: sweep.zip names {shown_name(name)}, but one of sweep.axes, named once, was expected"
        )
    return sweep.axes.pop(name)


def _choice(name: str, options: object, layer: Layer) -> dict[str, dict[str, Any]]:
    """A choice: labels, each with the settings it stands for."""
    where = f"sweep.choice.{shown_name(name)}"
    if not name.isidentifier():
        raise InputError(f"{layer.source}: {where}, but a name of letters, digits and _ was expected")
    if not isinstance(options, Mapping) or not options:
        raise InputError(f"{layer.source}: {where} = {shown(options)}, but a table of labels was expected")
    out = {}
    for label, table in options.items():
        if not isinstance(table, Mapping):
            raise InputError(f"{layer.source}: {where}.{shown_name(label)} = {shown(table)}, but a table was expected")
        out[label] = {
            key: resolved_path(key, KEYS[key].validate(raw, layer.source), layer.folder)
            for key, raw in flat(table, layer.source).items()
        }
    return out


def _choice_digit(name: str, options: Mapping[str, Mapping[str, Any]], base_value: Callable[[str], Any]) -> Digit:
    """A label that does not set a key leaves it at the base's value."""
    keys = dict.fromkeys(key for settings in options.values() for key in settings)
    settings = {key: [option.get(key, base_value(key)) for option in options.values()] for key in keys}
    return Digit((Axis(f"choice.{name}", list(options)),), settings)


def _seeds(raw: object, source: str, first: int) -> Sequence[int]:
    """A count starts at the base's seed; consecutive seeds are a range, which costs nothing however long."""
    if isinstance(raw, int) and not isinstance(raw, bool):
        last = KEYS[SEED].validate(first + raw - 1, source) if 1 <= raw <= MAX_DIGIT else None
        if last is None:
            raise InputError(f"{source}: sweep.seeds = {shown(raw)}, but an integer from 1 to {MAX_DIGIT} was expected")
        return range(first, last + 1)
    if not isinstance(raw, list | tuple):
        raise InputError(f"{source}: sweep.seeds = {shown(raw)}, but a count or a list of seeds was expected")
    seeds = axis_values(KEYS[SEED], raw, source)
    consecutive = range(seeds[0], seeds[0] + len(seeds))
    return consecutive if list(consecutive) == seeds else seeds


def parse_axis(text: str) -> tuple[str, object]:
    """`key=v1,v2,...` or `key={start=..,stop=..,num=..}` as a key and a list or range."""
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not equals or not name:
        raise InputError(f"--axis {shown(text)}, but key=v1,v2 was expected")
    if value.count(",") > MAX_AXIS_VALUES:
        raise InputError(
            f"--axis {shown_name(name)} has more than {MAX_AXIS_VALUES} values, but at most so many were expected"
        )
    whole = parse_value(value if value[:1] in ("[", "{") else f"[{value}]")
    if isinstance(whole, list | dict):
        return name, whole
    return name, [parse_value(item) for item in value.split(",")]


def _add_options(sweep: SweepTable, spec: Spec, axis_options: Iterable[str]) -> None:
    set_keys = next((layer.settings for layer in spec.layers if layer.source == "--set"), {})
    here = Layer("--axis", Path())
    given: set[str] = set()
    for text in axis_options:
        name, raw = parse_axis(text)
        key = find_key(name, "--axis").name
        if key in given:
            raise InputError(f"--axis {key} is given twice, but one list of values was expected")
        if key in set_keys:
            raise InputError(f"--axis {key} is also given by --set, but one of them was expected")
        given.add(key)
        if key == SEED:
            sweep.seeds = None
        sweep.axes[key] = _values(key, raw, here)


def _check_places(sweep: SweepTable, source: str) -> None:
    """Every key is swept in one place."""
    places = [("sweep.axes", key) for key in sweep.axes]
    places += [("sweep.seeds", SEED)] if sweep.seeds is not None else []
    places += [(f"sweep.zip group {n + 1}", key) for n, group in enumerate(sweep.zips) for key in group]
    for name, options in sweep.choices.items():
        places += [(f"sweep.choice.{name}", key) for key in dict.fromkeys(k for o in options.values() for k in o)]
    first: dict[str, str] = {}
    for place, key in places:
        if key in first:
            raise InputError(f"{source}: {key} is in {first[key]} and in {place}, but one place was expected")
        first[key] = place
