"""What a recommendation says: the setting, what it was compared with, why, and what happens at the edge."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastsim.analysis.cost import COST, THROUGHPUT, Price
from fastsim.analysis.recommend.flags import deployment_flags, serve_command, serve_flags
from fastsim.analysis.recommend.rate import FewestReplicas, MaxRate
from fastsim.analysis.recommend.slo import Interval, Outlook
from fastsim.analysis.recommend.space import BLOCKS, SEQS, TOKENS
from fastsim.analysis.recommend.trials import Traffic
from fastsim.analysis.recommend.why import Alternative, Relief
from fastsim.analysis.terms import Term
from fastsim.config import Config
from fastsim.config.deployment import Hardware


@dataclass(frozen=True)
class Option:
    """A setting with its outlook over the fresh seeds: its keys, what its axes show, all of its configuration."""

    settings: dict[str, Any]
    labels: dict[str, Any]
    config: Config
    outlook: Outlook

    @property
    def numbers(self) -> tuple[int, int]:
        """max_num_seqs and max_num_batched_tokens."""
        return self.config.engine.max_num_seqs, self.config.engine.max_num_batched_tokens

    def gain_over(self, other: "Option") -> Interval:
        """Goodput of this one less the other's, seed by seed, relative to the other's mean."""
        base = float(other.outlook.goodput.mean())
        difference = self.outlook.goodput - other.outlook.goodput
        return Interval.of(difference / base if base > 0 else np.full(len(difference), np.nan))

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"settings": self.labels, BLOCKS: self.config.engine.num_gpu_blocks} | self.outlook.to_json()


@dataclass(frozen=True)
class Recommendation:
    """What is recommended, and why.

    Attributes
    ----------
    best
        The setting: of those that meet the SLO the one with the most goodput, else the one that comes nearest.
    terms
        Of the SLO; none: the most requests per second.
    runner_up, current, kv_safe
        The next best; the spec's own setting (or vLLM's default), which may be the best itself; the KV-safe one.
        None: there is none, or no server starts with it.
    kv_safe_num_seqs
        The KV-safe number: usable blocks over the blocks of a request of mean lengths at full decode.
    leave_alone
        Whether the best is what stands already, because nothing is shown to be better.
    risks
        Name and outlook of the best under other loads.
    alternatives, reliefs
        What other values of the two batch limits, and more of each resource, would do.
    rate
        Of `--max-rate`.
    replicas
        Of `--min-gpus`.
    grid_size, runs, search_runs, seconds
        Settings there are; simulations in all, and for the search alone; how long it took.
    notes
        Sentences on what was assumed or left out.
    """

    best: Option
    terms: tuple[Term, ...]
    runner_up: Option | None
    current: Option | None
    kv_safe: Option | None
    kv_safe_num_seqs: int
    risks: list[tuple[str, Outlook]]
    alternatives: list[Alternative]
    reliefs: list[Relief]
    seeds: int
    traffic: Traffic
    grid_size: int
    runs: int
    search_runs: int
    seconds: float
    rate: MaxRate | None = None
    replicas: FewestReplicas | None = None
    notes: tuple[str, ...] = field(default=())
    hardware: Hardware | None = None
    deployment: Mapping[str, Any] = field(default_factory=dict)
    leave_alone: bool = False

    @property
    def meets(self) -> bool:
        """Whether any setting that was tried meets the SLO; where nothing completes, none does."""
        return self.best.outlook.meets

    @property
    def flags(self) -> str:
        """The command line's flags for the engine's server."""
        seqs, tokens = self.best.numbers
        engine = self.best.config.engine.name
        flags, _ = serve_flags({SEQS: seqs, TOKENS: tokens} | self.best.settings, engine)
        return " ".join([*flags, *deployment_flags(self.deployment, engine)])

    @property
    def command(self) -> str:
        """The whole command line of the engine's server."""
        return f"{serve_command(self.best.config.engine.name)} {self.flags}"

    @property
    def binding(self) -> Relief | None:
        """The resource of which more would help most; None when none would by a percent."""
        helpful = [relief for relief in self.reliefs if relief.helps]
        return max(helpful, key=lambda relief: relief.gain, default=None)

    def to_json(self, price: float | None = None) -> dict[str, Any]:
        """Everything, ready for JSON; `price` is that of a replica's GPUs for an hour."""
        seqs, tokens = self.best.numbers
        out: dict[str, Any] = {
            "meets_slo": self.meets,
            "leave_alone": self.leave_alone,
            "max_num_seqs": seqs,
            "max_num_batched_tokens": tokens,
            "flags": self.flags,
            "command": self.command,
            "deployment": dict(self.deployment),
            "slo": [term.text for term in self.terms],
            "best": self.best.to_json(),
            "binding": self.binding.name if self.binding else None,
            "kv_safe_num_seqs": self.kv_safe_num_seqs,
            "risks": {name: outlook.to_json() for name, outlook in self.risks},
            "alternatives": [item.to_json() for item in self.alternatives],
            "reliefs": [item.to_json() for item in self.reliefs],
        }
        for name in ("runner_up", "current", "kv_safe"):
            option = getattr(self, name)
            out[name] = option and option.to_json() | {"best_gains": self.best.gain_over(option).to_json()}
        if price is not None:
            out[COST] = cost_per_million(self.best.outlook, price)
        return out | {
            "max_rate": self.rate and self.rate.to_json(),
            "min_gpus": self.replicas and self.replicas.to_json(),
            "seeds": self.seeds,
            "settings_in_grid": self.grid_size,
            "runs": self.runs,
            "search_runs": self.search_runs,
            "seconds": round(self.seconds, 3),
            "notes": list(self.notes),
        }


def cost_per_million(outlook: Outlook, price_per_hour: float) -> float | None:
    """Price of a million delivered output tokens; None when none are."""
    return Price(price_per_hour).per_million_output_tokens(outlook.means[THROUGHPUT])
