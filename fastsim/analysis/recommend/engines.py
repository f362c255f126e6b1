"""Which engine for this traffic: each is given its best setting, and these serve the same requests."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastsim.analysis.recommend.answer import Recommendation
from fastsim.analysis.recommend.recommend import recommend
from fastsim.analysis.recommend.slo import Interval
from fastsim.config import Layer, Spec, load_spec
from fastsim.config.across import across


@dataclass(frozen=True)
class Rivals:
    """A recommendation for each of some engines, the best one first.

    Attributes
    ----------
    ranked
        One for each engine, in the order in which they would be taken: what meets the SLO first, then by worth.
    names
        Their engines, in the same order.
    notes
        What some engine does not read of the spec.
    """

    ranked: tuple[Recommendation, ...]
    names: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def best(self) -> Recommendation:
        """The best engine's."""
        return self.ranked[0]

    def gains(self) -> list[Interval]:
        """Goodput of the best less that of each other one, seed by seed, relative to the other's."""
        return [self.best.best.gain_over(other.best) for other in self.ranked[1:]]

    @property
    def decided(self) -> bool:
        """Whether the best is shown to be better than every other: it alone meets the SLO, or each interval says so."""
        return all(
            self.best.meets > other.meets or (gain.low is not None and gain.low > 0)
            for other, gain in zip(self.ranked[1:], self.gains(), strict=True)
        )

    def to_json(self, price: float | None = None) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "engine": self.names[0],
            "decided": self.decided,
            "best_gains_over": {name: gain.to_json() for name, gain in zip(self.names[1:], self.gains(), strict=True)},
            "engines": {name: found.to_json(price) for name, found in zip(self.names, self.ranked, strict=True)},
            "notes": list(self.notes),
        }


def recommend_engines(
    spec: str | Path | Spec | None, engines: Sequence[str], sets: Sequence[str] = (), **options: Any
) -> Rivals:
    """The best setting of each engine, all tried with the same requests and step times.

    Parameters
    ----------
    spec, sets
        As in `recommend`; a spec written for one engine is said in the words of each.
    engines
        Values of `engine.name`.
    options
        Further arguments of `recommend`.

    Raises
    ------
    InputError
        As `recommend`.
    """
    read = spec if isinstance(spec, Spec) else load_spec(spec, sets)
    put = across(read.base, engines)
    found = []
    for place, name in enumerate(engines):
        under = Spec(read.source, (*read.layers, Layer(f"--engines {name}", Path(), put.of(place))))
        found.append((name, recommend(under, **options)))
    found.sort(key=lambda each: each[1].best.outlook.rank, reverse=True)
    return Rivals(tuple(each for _, each in found), tuple(name for name, _ in found), tuple(put.notes))
