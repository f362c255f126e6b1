"""Trials: which loads a setting is tried under, and what is known of it so far.

Every setting meets the same requests (common random numbers): seed k of one is seed k of all, and a higher rate is the
same requests closer together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fastsim.analysis.evaluate.evaluate import Evaluator, MetricTable
from fastsim.analysis.evaluate.loads import Load
from fastsim.analysis.recommend.slo import Outlook
from fastsim.analysis.terms import Term
from fastsim.config import Config, WorkloadConfig, resolved
from fastsim.config.rules_classes import RATED
from fastsim.workload import build_workload, configured_rate

FRESH = 1000
"""Seeds from here on are fresh: no search has seen them."""
SHORT_REQUESTS = 500
"""A shortened load has at least so many requests."""
SHORT_SHARE = 0.25


@dataclass(frozen=True)
class Traffic:
    """The load in question, and its variants.

    Attributes
    ----------
    workload
        As the spec describes it.
    rate_factor
        So many times the traffic: arrivals closer together; in a closed loop more clients; of requests that come all
        at once, more.
    output_factor, replicas
        As in `Load`.
    """

    workload: WorkloadConfig
    rate_factor: float = 1.0
    output_factor: float = 1.0
    replicas: int = 1

    @cached_property
    def num_requests(self) -> int:
        """Requests of the load as described."""
        return build_workload(self.workload).num_requests

    @cached_property
    def kind(self) -> str:
        """The kind of arrivals, defaults filled in."""
        return str(resolved(Config(workload=self.workload)).workload.arrival.kind)

    def load(self, seed: int, share: float = 1.0) -> Load:
        """One realisation of it; `share` below 1 keeps the first requests only.

        A trace happened once: seed 0 is the trace itself, others exchange lengths among neighbours. Of several
        replicas each seed looks at another one.
        """
        changes: dict[str, object] = {"seed": self.workload.seed + seed}
        count = self.num_requests
        if self.kind == "closed_loop":
            clients = self.workload.concurrency or 1
            changes["concurrency"] = max(round(clients * self.rate_factor), 1)
        elif self.kind == "all_at_once" and self.workload.trace is None:
            count = max(round(count * self.rate_factor), 1)
        else:
            changes["rate_scale"] = self.workload.rate_scale * self.rate_factor
        if share < 1.0 or count != self.num_requests:
            changes["num_requests"] = max(round(count * share), min(count, SHORT_REQUESTS))
        exchange = seed if self.workload.trace is not None else 0
        return Load(
            self.workload.model_copy(update=changes),
            output_factor=self.output_factor,
            replicas=self.replicas,
            replica=seed % self.replicas,
            exchange=exchange,
        )

    def scaled(self, rate: float = 1.0, output: float = 1.0) -> "Traffic":
        """So many times the traffic, with outputs so many times as long."""
        return replace(self, rate_factor=self.rate_factor * rate, output_factor=self.output_factor * output)

    @property
    def rate_per_s(self) -> float | None:
        """Requests per second: as configured where arrivals have a rate, else over the arrivals there are.

        None where there is none: in a closed loop, or when all come at once.
        """
        if self.kind in ("closed_loop", "all_at_once"):
            return None
        given = configured_rate(self.workload) if self.kind in RATED else None
        if given is not None:
            rate = given * self.workload.rate_scale
        else:
            arrival_us = build_workload(self.workload).arrival_us
            span_us = int(arrival_us.max() - arrival_us.min())
            if span_us == 0:
                return None
            rate = (len(arrival_us) - 1) / span_us * 1e6
        return rate * self.rate_factor

    @property
    def short_share(self) -> float:
        """Share of the requests that a first look is given: 1 when there are few anyway."""
        return SHORT_SHARE if self.num_requests * SHORT_SHARE >= SHORT_REQUESTS else 1.0


class Trials:
    """Runs settings under the traffic and remembers every run: nothing is run twice.

    Parameters
    ----------
    evaluator
        Runs them.
    terms
        Of the SLO.
    """

    def __init__(self, evaluator: Evaluator, terms: tuple[Term, ...]) -> None:
        self.evaluator = evaluator
        self.terms = terms
        self._class_names: tuple[str, ...] = ()
        self._known: dict[tuple[Load, Config], tuple[np.ndarray, np.ndarray]] = {}

    @property
    def runs(self) -> int:
        """Runs so far."""
        return self.evaluator.runs

    def outlooks(
        self, configs: Sequence[Config], traffic: Traffic, seeds: Sequence[int], share: float = 1.0
    ) -> list[Outlook]:
        """The outlook of each configuration under the traffic, over these seeds."""
        loads = [traffic.load(seed, share) for seed in seeds]
        keys = [[(load, config) for load in loads] for config in configs]
        missing = list(dict.fromkeys(key for row in keys for key in row if key not in self._known))
        if missing:
            table = self.evaluator.table(missing)
            self._class_names = table.class_names
            for place, key in enumerate(missing):
                self._known[key] = table.floats[place], table.ints[place]
        found = []
        for row in keys:
            floats, ints = zip(*(self._known[key] for key in row), strict=True)
            table = MetricTable([], np.array(floats), np.array(ints), self._class_names)
            found.append(Outlook.of(table, slice(None), self.terms))
        return found
