"""Which hardware: one recommendation for each, and of those the one that carries the load for the least money."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import isfinite
from pathlib import Path
from typing import Any

from fastsim.analysis.recommend.answer import Recommendation, cost_per_million
from fastsim.analysis.recommend.recommend import recommend
from fastsim.analysis.recommend.space import is_hardware
from fastsim.analysis.terms import slo_terms
from fastsim.config import Config, Spec, deployed, load_spec, with_values
from fastsim.config.deployment import hardware_of
from fastsim.errors import InputError
from fastsim.model import shown
from fastsim.presets import deployed_on, gpus_of, load_gpu
from fastsim.sweeps.grid.sweep import read_sweep


@dataclass(frozen=True)
class Prices:
    """What an hour of one GPU costs, in any currency: `every`, or by the GPU's name."""

    every: float | None = None
    by_gpu: Mapping[str, float] | None = None

    @classmethod
    def read(cls, text: str | None) -> "Prices":
        """Of `2.5` or `l40s=0.8,h100=2.5`; None: no price is known.

        Raises
        ------
        InputError
            When a price is no number above 0, or a GPU is not known.
        """
        if text is None:
            return cls()
        if "=" not in text:
            return cls(every=_price(text, text))
        found: dict[str, float] = {}
        for part in text.split(","):
            name, _, price = part.partition("=")
            found[load_gpu(deployed_on(name.strip(), {})[0]).name] = _price(price, text)
        return cls(by_gpu=found)

    def of_gpu(self, gpu: str | None) -> float | None:
        """The price of a GPU; None: it is not known.

        Raises
        ------
        InputError
            When others have a price, but this one has none.
        """
        if self.by_gpu is None:
            return self.every
        if gpu is None or gpu not in self.by_gpu:
            of_which = "a load without hardware.gpu" if gpu is None else gpu
            raise InputError(
                f"--gpu-hour-price has no price for {of_which}, but one was expected beside {', '.join(self.by_gpu)}"
            )
        return self.by_gpu[gpu]


def _price(text: str, whole: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = 0.0
    if not (isfinite(price) and price > 0):
        raise InputError(f"--gpu-hour-price {whole}, but prices above 0 were expected, as 2.5 or l40s=0.8,h100=2.5")
    return price


@dataclass(frozen=True)
class Candidate:
    """One kind of hardware: what its axes say, and what is recommended there; without, `fault` is why nothing starts.

    Attributes
    ----------
    name
        `llama-3.1-8b on 2 x l40s`.
    gpus
        That serve together as one replica.
    hour_price
        Of one replica; None: not known.
    """

    settings: Mapping[str, Any]
    name: str
    gpus: int
    hour_price: float | None
    found: Recommendation | None
    fault: str | None = None

    @property
    def label(self) -> str:
        """What its axes say: `l40s, fp8`."""
        return label_of(self.settings)

    @property
    def replicas(self) -> int | None:
        """Replicas that carry the load within the SLO; one where there is no SLO; None: none were found."""
        if self.found is None or (self.found.terms and self.found.replicas is None):
            return None
        return 1 if self.found.replicas is None else self.found.replicas.count

    @property
    def total_gpus(self) -> int | None:
        """GPUs of all replicas."""
        return None if self.replicas is None else self.replicas * self.gpus

    @property
    def total_hour_price(self) -> float | None:
        """Of all replicas."""
        return None if self.replicas is None or self.hour_price is None else self.replicas * self.hour_price

    @property
    def rank(self) -> tuple[float, ...]:
        """The least first: what carries the load before what does not; then by money, by GPUs, and by goodput."""
        if self.found is None or self.total_gpus is None:
            return (1.0,)
        goodput = float(self.found.best.outlook.goodput.mean())
        if not self.found.terms:
            cost = None if self.hour_price is None else cost_per_million(self.found.best.outlook, self.hour_price)
            return (0.0, cost if cost is not None else 0.0, -goodput, float(self.gpus))
        price = self.total_hour_price
        return (0.0, price if price is not None else 0.0, float(self.total_gpus), -goodput)

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "hardware": dict(self.settings),
            "name": self.name,
            "gpus_each": self.gpus,
            "replicas": self.replicas,
            "gpus": self.total_gpus,
            "price_per_hour": self.total_hour_price,
            "fault": self.fault,
            "recommendation": None if self.found is None else self.found.to_json(self.hour_price),
        }


def recommend_hardware(
    spec: Spec | str | Path | None,
    sets: Sequence[str] = (),
    axes: Sequence[str] = (),
    prices: Prices | None = None,
    *,
    with_min_gpus: bool = False,
    **question: Any,
) -> list[Candidate]:
    """A recommendation for every kind of hardware that a spec's axes name, the best first.

    Parameters
    ----------
    spec, sets, axes
        As `recommend` takes them; axes over `hardware.*` tell the kinds of hardware. Without any it is one kind.
    prices
        Of an hour of each GPU. The best carries the load within the SLO for the least money; without prices, with the
        fewest GPUs; without an SLO it has the cheapest tokens, or the highest throughput.
    with_min_gpus, question
        What else `recommend` takes. Among several kinds of hardware, replicas are counted in any case.

    Raises
    ------
    InputError
        As `recommend` does, and when no kind of hardware starts a server.
    """
    read = spec if isinstance(spec, Spec) else load_spec(spec, sets)
    digits = [digit for digit in read_sweep(read, axes).digits(read.base) if is_hardware(digit)]
    kinds = [
        {
            key: values[place]
            for digit, place in zip(digits, places, strict=True)
            for key, values in digit.settings.items()
        }
        for places in product(*(range(digit.size) for digit in digits))
    ]
    counted = len(kinds) > 1 and bool(slo_terms(read.base, question.get("percentile", 99)))
    question["with_min_gpus"] = with_min_gpus or counted
    candidates = [_candidate(read, axes, kind, prices or Prices(), question) for kind in kinds]
    if all(candidate.found is None for candidate in candidates):
        raise InputError(f"{read.source}: {candidates[0].fault}")
    return sorted(candidates, key=lambda candidate: candidate.rank)


def _candidate(
    spec: Spec, axes: Sequence[str], on: Mapping[str, Any], prices: Prices, question: Mapping[str, Any]
) -> Candidate:
    label = label_of(on)
    try:
        base = deployed(with_values(spec.base, on))
        hardware = hardware_of(base.value)
    except InputError as error:
        return Candidate(on, label, 1, None, None, str(error))
    price = replica_price(base, prices)
    found = recommend(spec, (), axes, on=on, **question)
    name = label if hardware is None else hardware.name
    return Candidate(on, name, _gpus_of(base)[1], price, found)


def replica_price(base: Config, prices: Prices) -> float | None:
    """Of an hour of the GPUs that a configuration is served on; None: no price is known.

    Raises
    ------
    InputError
        When others have a price, but its GPU has none.
    """
    gpu, gpus = _gpus_of(base)
    price = prices.of_gpu(gpu)
    return None if price is None else price * gpus


def _gpus_of(base: Config) -> tuple[str | None, int]:
    """The GPU that a configuration says, and how many serve together."""
    hardware, preset = hardware_of(base.value), base.latency.preset
    if hardware is not None:
        return hardware.gpu, hardware.gpus
    if preset is None:
        return None, 1
    return load_gpu(deployed_on(preset.partition("@")[2], {})[0]).name, gpus_of(preset)


def label_of(settings: Mapping[str, Any]) -> str:
    """Values of the axes, as a row of a table shows them."""
    return ", ".join(value if isinstance(value, str) else shown(value) for value in settings.values())
