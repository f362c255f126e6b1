"""How much traffic: the highest rate that meets an SLO, and how many replicas a load needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.analysis.compare.bootstrap import resample_counts, stretch
from fastsim.analysis.recommend.search import Search
from fastsim.analysis.recommend.slo import Outlook
from fastsim.analysis.recommend.space import Space
from fastsim.analysis.recommend.trials import Traffic, Trials
from fastsim.config import Config
from fastsim.errors import InputError

Floats = npt.NDArray[np.float64]

TOLERANCE = 0.02
"""Bisection ends when the lowest rate that misses is so little above the highest that meets."""
NEAR = 0.1
"""A first bisection, with few seeds, ends when it is so near; one with more seeds goes on from there."""
MORE_SEEDS = 3
"""So many times the seeds decide the rate and its interval: percentiles near a bound hardly move with the rate."""
AROUND = (0.8, 0.88, 0.94, 1.06, 1.12, 1.2)
"""Rates around the one found that also run, so that the interval does not interpolate over a gulf."""
LIVES = 2.0
"""A load that is offered within less of a lone request's lives is hardly a rate."""
FARTHEST = 2.0**12
"""No factor beyond it, or below its inverse, is tried."""
MOST_REPLICAS = 1024


@dataclass(frozen=True)
class MaxRate:
    """The highest rate that meets the SLO.

    Attributes
    ----------
    rate_per_s
        The highest rate that was run and meets it.
    low_per_s, high_per_s
        95 % interval over seeds, the bisection's tolerance included.
    config, outlook
        The settings, chosen for that rate, and what they do there.
    """

    rate_per_s: float
    low_per_s: float
    high_per_s: float
    config: Config
    outlook: Outlook

    @property
    def too_short(self) -> bool:
        """Whether all requests arrive in less than two lives of a request that is alone: the rate then says little."""
        arrivals_s = self.outlook.means["num_requests"] / self.rate_per_s
        return arrivals_s < LIVES * self.outlook.means["unloaded_e2e_mean_ms"] / 1000

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        engine = self.config.engine
        return {
            "rate_per_s": self.rate_per_s,
            "interval_95": [self.low_per_s, self.high_per_s],
            "too_short": self.too_short,
            "max_num_seqs": engine.max_num_seqs,
            "max_num_batched_tokens": engine.max_num_batched_tokens,
        } | self.outlook.to_json()


@dataclass(frozen=True)
class FewestReplicas:
    """The fewest replicas, requests dealt to them in turn, that meet the SLO; `fewer` is one replica less."""

    count: int
    config: Config
    outlook: Outlook
    fewer: Outlook | None

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        engine = self.config.engine
        return {
            "replicas": self.count,
            "max_num_seqs": engine.max_num_seqs,
            "max_num_batched_tokens": engine.max_num_batched_tokens,
            "one_fewer": self.fewer and self.fewer.to_json(),
        } | self.outlook.to_json()


def max_rate(space: Space, trials: Trials, traffic: Traffic, config: Config, seeds: Sequence[int]) -> MaxRate | None:
    """The highest rate that meets the SLO, with the best settings for that rate; None: not even a trickle does.

    Settings are looked for again at the rate that was found, and kept if they carry more.

    Raises
    ------
    InputError
        When there is no SLO, or the load has no rate.
    """
    found = max_rate_of(trials, traffic, config, seeds)
    if found is None:
        return None
    rate = traffic.rate_per_s
    assert rate is not None  # max_rate_of has refused it
    there = traffic.scaled(rate=found.rate_per_s / rate)
    again = Search(space, trials, there).run()
    other = space.config(again.points[0])
    if other != found.config and trials.outlooks([other], there, seeds)[0].meets:
        better = max_rate_of(trials, traffic, other, seeds, start=found.rate_per_s / rate)
        if better is not None and better.rate_per_s > found.rate_per_s:
            return better
    return found


def max_rate_of(
    trials: Trials, traffic: Traffic, config: Config, seeds: Sequence[int], start: float = 1.0
) -> MaxRate | None:
    """The highest rate at which one configuration meets the SLO; None: not even a trickle does.

    Every rate has the same requests, closer together or farther apart. The interval resamples seeds: each resample has
    a curve of margin against rate, and a rate at which it crosses 0.
    """
    if not trials.terms:
        raise InputError("--max-rate without an SLO, but slo.ttft_ms, slo.tpot_ms or slo.e2e_ms was expected")
    rate = traffic.rate_per_s
    if rate is None:
        raise InputError(f"--max-rate with {traffic.kind} arrivals, but arrivals that have a rate were expected")
    tried: dict[float, Outlook] = {}

    def meets(factor: float, over: Sequence[int]) -> bool:
        (tried[factor],) = trials.outlooks([config], traffic.scaled(rate=factor), over)
        return tried[factor].meets

    near = _highest(lambda factor: meets(factor, seeds), start, 2.0, NEAR)
    if near is None:
        return None
    tried.clear()
    many = range(seeds[0], seeds[0] + len(seeds) * MORE_SEEDS)
    found = _highest(lambda factor: meets(factor, many), near, 1.0 + NEAR, TOLERANCE)
    if found is None:
        return None
    for factor in AROUND:
        meets(found * factor, many)
    lowest, highest = crossing_interval(tried)
    return MaxRate(
        rate * found,
        rate * min(found, lowest) / (1 + TOLERANCE),
        rate * max(found, highest) * (1 + TOLERANCE),
        config,
        tried[found],
    )


def _highest(meets: Callable[[float], bool], start: float, stride: float, tolerance: float) -> float | None:
    """The highest factor that meets, to a tolerance, of those between one that does and one that does not.

    The two are looked for from `start` on, in steps that grow from `stride` on; None: there is none that meets.
    """
    low = high = start
    if meets(start):
        while True:
            high = low * stride
            if high > FARTHEST or not meets(high):
                break
            low, stride = high, stride**1.5
    else:
        while True:
            low = high / stride
            if low < 1 / FARTHEST:
                return None
            if meets(low):
                break
            high, stride = low, stride**1.5
    while high > low * (1 + tolerance):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low


def crossing_interval(tried: dict[float, Outlook]) -> tuple[float, float]:
    """95 % interval of the factor at which the worst mean margin crosses 0."""
    factors = np.array(sorted(tried))
    by_seed = np.stack([tried[factor].margins for factor in factors.tolist()])  # (factors, seeds, terms)
    seeds = by_seed.shape[1]
    counts = resample_counts(seeds) / seeds
    curves = np.einsum("rs,fst->rft", counts, by_seed).min(axis=2)
    centre = _crossing(np.log(factors), by_seed.mean(axis=1).min(axis=1))
    crossings = np.array([_crossing(np.log(factors), curve) for curve in curves])
    low, high = np.quantile(crossings, [0.025, 0.975])
    wider = stretch(seeds)
    return float(np.exp(centre - wider * (centre - low))), float(np.exp(centre + wider * (high - centre)))


def _crossing(at: Floats, curve: Floats) -> float:
    """Where a curve first falls below 0, linearly between points; the ends where it does not."""
    below = np.flatnonzero(curve < 0)
    if not len(below):
        return float(at[-1])
    k = int(below[0])
    if k == 0:
        return float(at[0])
    return float(at[k - 1] + (at[k] - at[k - 1]) * curve[k - 1] / (curve[k - 1] - curve[k]))


def min_replicas(
    space: Space, trials: Trials, traffic: Traffic, config: Config, seeds: Sequence[int]
) -> FewestReplicas | None:
    """The fewest replicas that carry the load within the SLO; None: more than 1,024 do not.

    Each number of replicas is tried with the settings at hand, and if they fail with those that are best for it.

    Raises
    ------
    InputError
        When there is no SLO.
    """
    if not trials.terms:
        raise InputError("--min-gpus without an SLO, but slo.ttft_ms, slo.tpot_ms or slo.e2e_ms was expected")
    tried: dict[int, tuple[Config, Outlook]] = {}

    def meets(count: int) -> bool:
        if count not in tried:
            share = replace(traffic, replicas=count)
            (outlook,) = trials.outlooks([config], share, seeds)
            tried[count] = (config, outlook)
            if not outlook.meets:
                best = space.config(Search(space, trials, share).run().points[0])
                tried[count] = (best, trials.outlooks([best], share, seeds)[0])
        return tried[count][1].meets

    most = min(MOST_REPLICAS, traffic.num_requests)
    low, high = 0, 1
    while not meets(high):
        if high == most:
            return None
        low, high = high, min(high * 2, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if meets(middle) else (middle, high)
    return FewestReplicas(high, *tried[high], tried[low][1] if low else None)
