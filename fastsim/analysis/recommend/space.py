"""The settings that a recommendation chooses from: a product of knobs, each a list of values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from fastsim.config import Config, Spec, check_rules
from fastsim.config.derived import deployed, with_values
from fastsim.engines import check_ability
from fastsim.errors import InputError
from fastsim.sweeps.grid.digits import Axis, Digit
from fastsim.sweeps.grid.sweep import read_sweep

SEQS = "engine.max_num_seqs"
TOKENS = "engine.max_num_batched_tokens"
BLOCKS = "engine.num_gpu_blocks"

DEFAULTS: dict[str, tuple[int, ...]] = {
    SEQS: (
        *(2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128),
        *(160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024),
    ),
    TOKENS: (256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384),
}
"""What is tried for the two batch limits unless a spec or `--axis` says otherwise: steps of an eighth to a half."""

Point = tuple[int, ...]
"""A setting by its position on each knob."""


@dataclass(frozen=True)
class Space:
    """All settings.

    Attributes
    ----------
    base
        What the knobs do not say, as it is written: what a setting leaves open follows the hardware, if there is any;
        so does the KV pool, which shrinks as the two batch limits grow.
    knobs
        The axes, each with the keys it sets.
    notes
        What was left out of a spec's sweep, as sentences.
    """

    base: Config
    knobs: tuple[Digit, ...]
    notes: tuple[str, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each knob."""
        return tuple(knob.size for knob in self.knobs)

    def settings(self, point: Point) -> dict[str, Any]:
        """The keys that a point sets."""
        return {
            key: values[position]
            for knob, position in zip(self.knobs, point, strict=True)
            for key, values in knob.settings.items()
        }

    def labels(self, point: Point) -> dict[str, Any]:
        """What the point's axes show."""
        return {
            axis.name: axis.values[position]
            for knob, position in zip(self.knobs, point, strict=True)
            for axis in knob.axes
        }

    def config(self, point: Point) -> Config:
        """The configuration of a point."""
        return self.with_settings(self.settings(point))

    def with_settings(self, settings: Mapping[str, Any]) -> Config:
        """The base with these settings, and what its hardware gives beside them.

        Raises
        ------
        InputError
            When the model does not fit beside them.
        """
        return deployed(with_values(self.base, settings))

    @cached_property
    def standing(self) -> Config:
        """What stands already: the base, with the defaults of its hardware's server."""
        return deployed(self.base)

    def fault(self, point: Point) -> str | None:
        """Why a server would not start with this setting; None: it would."""
        try:
            config = self.config(point)
            check_rules(config)
        except InputError as error:
            return str(error)
        return None

    def points(self) -> Iterator[Point]:
        """Every setting with which a server would start."""
        return (point for point in product(*map(range, self.sizes)) if self.fault(point) is None)

    def nearest(self, values: Mapping[str, Any]) -> Point | None:
        """The point at these values exactly, None when it is not in the space."""
        out = []
        for knob in self.knobs:
            places = [
                place
                for place in range(knob.size)
                if all(column[place] == values.get(key) for key, column in knob.settings.items())
            ]
            if not places:
                return None
            out.append(places[0])
        return tuple(out)


def is_hardware(digit: Digit) -> bool:
    """Whether an axis is over hardware alone."""
    return all(key.startswith("hardware.") for key in digit.settings)


def space_of(spec: Spec, axis_options: Sequence[str] = (), on: Mapping[str, Any] | None = None) -> Space:
    """The settings of a spec: its engine axes, and the two batch limits where it does not sweep or `--set` them.

    `on` says for what hardware, and takes the place of the axes that are over hardware alone.

    Raises
    ------
    InputError
        When the engine has no flags, or an `--axis` is over anything but the engine.
    """
    base = with_values(spec.base, on or {})
    check_ability(deployed(base).engine.name, "has_flags", "a recommendation is made of the flags of a server")
    digits = [digit for digit in read_sweep(spec, axis_options).digits(base) if on is None or not is_hardware(digit)]
    knobs: list[Digit] = []
    left: list[Digit] = []
    for digit in digits:
        ours = all(key.startswith("engine.") and key != "engine.name" for key in digit.settings)
        (knobs if ours else left).append(digit)
    asked = [option.partition("=")[0].strip() for option in axis_options]
    for digit in left:
        for key in digit.settings:
            if key in asked:
                raise InputError(f"--axis {key}, but an engine.* setting was expected: it is what can be recommended")
    names = sorted({axis.name for digit in left for axis in digit.axes} - {"workload.seed"})
    notes = (f"not searched, because they are no settings of the engine: {', '.join(names)}",) if names else ()
    pinned = {key for layer in spec.layers if layer.source == "--set" for key in layer.settings}
    swept = {key for digit in knobs for key in digit.settings}
    defaults = [
        Digit((Axis(key, values),), {key: values})
        for key, values in DEFAULTS.items()
        if key not in swept and key not in pinned
    ]
    order = {key: place for place, key in enumerate(DEFAULTS)}
    all_knobs = sorted([*defaults, *knobs], key=lambda knob: order.get(knob.axes[0].name, len(order)))
    if not all_knobs:
        raise InputError(f"{spec.source}: --set gives both numbers, but at least one axis was expected to search")
    return Space(base, tuple(all_knobs), notes)
