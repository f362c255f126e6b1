"""The one or two axes of a phase map, and the grid of it: from a spec's [sweep], or ranges and lists of their own."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fastsim.config import Spec, find_key
from fastsim.config.spec import Layer
from fastsim.errors import InputError
from fastsim.sweeps.grid import Grid
from fastsim.sweeps.grid.digits import axis_values
from fastsim.sweeps.grid.sweep import SEED, SweepTable, parse_axis, read_sweep

MAX_RESOLUTION = 4096
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"\s*({_NUMBER})\s*:\s*({_NUMBER})\s*(?::\s*(\d+)\s*)?(?::\s*(lin|linear|log)\s*)?")


@dataclass(frozen=True)
class PhaseAxis:
    """One side of a map: its dotted name and the values along it, in ascending order where they are numbers."""

    name: str
    values: tuple[Any, ...]


def phase_grid(
    spec: Spec, x: str, y: str | None, resolution: int | None, seeds: int
) -> tuple[Grid, PhaseAxis, PhaseAxis | None, list[str]]:
    """The grid over one or two axes and seeds, and the axes.

    Parameters
    ----------
    spec
        Settings, and the [sweep] that axes can be named from; its other axes stay at their base values.
    x, y
        An axis of the spec's [sweep] (or a choice) by name, `key=start:stop[:num][:log]`, or `key=v1,v2,...`. Without
        y: one axis.
    resolution
        Number of values of a range that does not say its own, and of a named numeric axis (from its least to its
        largest value). None: 64 for ranges, a named axis keeps its values.
    seeds
        Count, from `workload.seed` on.

    Returns
    -------
    grid, x axis, y axis (or None), names of swept axes that were left at their base values
    """
    if resolution is not None and not 2 <= resolution <= MAX_RESOLUTION:
        raise InputError(f"--resolution {resolution}, but an integer from 2 to {MAX_RESOLUTION} was expected")
    if not 1 <= seeds <= 1000:
        raise InputError(f"--seeds {seeds}, but an integer from 1 to 1000 was expected")
    sweep = read_sweep(spec)
    table: dict[str, Any] = {"axes": {}, "choice": {}, "seeds": seeds}
    names: list[str] = []
    for option, text in (("--x", x), *((("--y", y),) if y is not None else ())):
        name, values = _axis(text, option, sweep, resolution)
        if name in names:
            raise InputError(f"--x and --y are both {name}, but two axes were expected")
        names.append(name)
        if name.startswith("choice."):
            table["choice"][name.removeprefix("choice.")] = values
        else:
            table["axes"][name] = values
    grid = Grid(Spec(spec.source, (Layer(spec.source, Path(), spec.settings, table),)))
    by_name = {axis.name: tuple(axis.values) for axis in grid.axes}
    others = [*sweep.axes, *(key for group in sweep.zips for key in group), *(f"choice.{n}" for n in sweep.choices)]
    left = [name for name in others if name not in names]
    found = [PhaseAxis(name, by_name[name]) for name in names]
    return grid, found[0], found[1] if len(found) > 1 else None, left


def _axis(text: str, option: str, sweep: SweepTable, resolution: int | None) -> tuple[str, Any]:
    """Name of an axis, and its values (or options of a choice)."""
    if "=" not in text:
        name = text.strip()
        if name in sweep.axes:
            return name, _resampled(name, list(sweep.axes[name]), resolution)
        if name.startswith("choice.") and name.removeprefix("choice.") in sweep.choices:
            return name, sweep.choices[name.removeprefix("choice.")]
        known = [*sweep.axes, *(f"choice.{label}" for label in sweep.choices)]
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(
            f"{option} {name}: not an axis of the spec's [sweep] ({', '.join(known) or 'it has none'}), "
            f"but one of them, key=start:stop or key=v1,v2,... was expected{hint}"
        )
    name, _, value = text.partition("=")
    key = find_key(name.strip(), option)
    if key.name == SEED:
        raise InputError(f"{option} {SEED}: a map is over seeds already, but another key was expected")
    found = _RANGE.fullmatch(value)
    if found is None:
        return key.name, _ascending(axis_values(key, parse_axis(text)[1], option))
    start, stop, num, scale = found.groups()
    table: dict[str, Any] = {"start": float(start), "stop": float(stop), "num": int(num or resolution or 64)}
    table["scale"] = "log" if scale == "log" else "linear"
    return key.name, _range(key.name, table, option)


def _range(name: str, table: dict[str, Any], option: str) -> list[Any]:
    """Values of a range; an integer key with fewer of them than asked for has each once."""
    key = find_key(name, option)
    if not key.is_integer:
        return _ascending(axis_values(key, table, option))
    start, stop, num = table["start"], table["stop"], table["num"]
    if table["scale"] == "log" and min(start, stop) <= 0:
        raise InputError(f"{option} {name}: a log range of {start:g} to {stop:g}, but limits above 0 were expected")
    steps = [i / max(num - 1, 1) for i in range(num)]
    raw = [start * (stop / start) ** t if table["scale"] == "log" else start + (stop - start) * t for t in steps]
    return _ascending(axis_values(key, list(dict.fromkeys(round(value) for value in raw)), option))


def _resampled(name: str, values: Sequence[Any], resolution: int | None) -> list[Any]:
    """A numeric axis at another resolution, between its ends; others, and without one, as they are."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if resolution is None or len(numbers) < len(values) or len(values) < 2:
        return _ascending(values)
    return _range(
        name,
        {"start": float(min(numbers)), "stop": float(max(numbers)), "num": resolution, "scale": "linear"},
        "--resolution",
    )


def _ascending(values: Sequence[Any]) -> list[Any]:
    """Numbers in their order; anything else as it came."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return sorted(values)
    return list(values)
