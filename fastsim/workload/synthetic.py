"""From base draws to arrivals, lengths, prefixes, priorities and pauses, one function each."""

import math

import numpy as np
import numpy.typing as npt

from fastsim.config import ArrivalConfig, LengthConfig, MaxTokensConfig, PrefixConfig, PriorityConfig, ThinkConfig
from fastsim.errors import InputError
from fastsim.workload.draws import Draws, Floats
from fastsim.workload.workload import INT32_MAX, LATEST_US, Int32Array, Int64Array

RANDOM_ARRIVALS = ("poisson", "gamma")


def clients_us(ramp_up_s: float, clients: int, count: int) -> Floats:
    """When the clients of a closed loop start: evenly over the ramp, the first at 0; others wait for one."""
    return np.where(np.arange(count) < clients, np.arange(count) * (ramp_up_s * 1e6 / clients), 0.0)


def arrivals_us(config: ArrivalConfig, draws: Draws, clients: int | None = None) -> Floats:
    """Arrival times in microseconds as floats, not yet scaled or truncated; shape (count,).

    Gaps come before arrivals, so the first request of poisson, gamma, constant and blis_rate arrives one gap after 0.
    BLIS's `--rate` divides by a rate per microsecond and truncates: 10 per second are gaps of 99,999 us.
    """
    index = np.arange(draws.count, dtype=np.float64)
    gap_us = 1e6 / config.rate_per_s
    match config.kind:
        case "poisson":
            return np.cumsum(gap_us * draws.with_gaps.gaps)
        case "gamma":
            shape = 1.0 / config.cv**2
            return np.cumsum((gap_us / shape) * draws.gamma("gamma_gaps", shape))
        case "constant":
            return (index + 1.0) * gap_us
        case "blis_rate":
            return (index + 1.0) * int(1.0 / (config.rate_per_s / 1e6))
        case "spikes":
            return np.floor(index / config.spike_requests) * (config.spike_interval_s * 1e6)
        case "all_at_once":
            return np.zeros(draws.count)
        case "closed_loop":
            return np.zeros(draws.count) if clients is None else clients_us(config.ramp_up_s, clients, draws.count)
    raise AssertionError(config.kind)


def truncated_us(times_us: Floats | Int64Array, rate_scale: float) -> Int64Array:
    """Times divided by `rate_scale` and truncated to integer microseconds.

    Raises
    ------
    InputError
        When an arrival lies beyond 2**60 microseconds.
    """
    scaled = np.floor(times_us / rate_scale)
    if len(scaled) and scaled.max() > LATEST_US:
        raise InputError(
            f"workload: the last request arrives after {scaled.max() / 1e6:.3g} s, but at most {LATEST_US / 1e6:.3g} s "
            "was expected: raise workload.arrival.rate_per_s or workload.rate_scale"
        )
    arrival_us: Int64Array = scaled.astype(np.int64)
    return arrival_us


def lengths(config: LengthConfig | MaxTokensConfig, normal: Floats | None, draws: Draws, stream: str) -> Int32Array:
    """Token counts, shape (count,): rounded half to even, then clipped to [min, max], at least 1.

    `normal` are the standard normals of the main stream; None takes those of the stream's own.
    """
    low, high = config.min or 1, config.max or INT32_MAX
    match config.dist:
        case "constant":
            raw = np.full(draws.count, config.mean, np.float64)
        case "uniform":
            raw = low + np.floor(draws.uniform(stream) * (high - low + 1.0))
        case "normal":
            raw = _given(config.mean) + _given(config.stdev) * (draws.normal(stream) if normal is None else normal)
        case "lognormal":
            mean, stdev = _given(config.mean), _given(config.stdev)
            variance = math.log1p((stdev / mean) ** 2)
            location = math.log(mean) - variance / 2
            raw = np.exp(location + math.sqrt(variance) * (draws.normal(stream) if normal is None else normal))
        case "empirical":
            values = np.asarray(config.values, np.float64)
            raw = values[choices(config.weights or np.ones(len(values)), draws.uniform(stream))]
        case _:
            raise AssertionError(config.dist)
    return np.clip(np.rint(raw), low, high).astype(np.int32)


def choices(weights: npt.ArrayLike, uniform: Floats) -> npt.NDArray[np.int64]:
    """Index of the weight that each uniform draw falls on, in proportion to the weights."""
    cumulative = np.cumsum(np.asarray(weights, np.float64))
    last = int(np.flatnonzero(np.diff(cumulative, prepend=0.0))[-1])
    index: Int64Array = np.searchsorted(cumulative, uniform * cumulative[-1], side="right")
    return np.minimum(index, last)


def declared_max_tokens(config: MaxTokensConfig, output: Int32Array, draws: Draws) -> Int32Array:
    """Output limits that requests declare, shape (count,); 0: none."""
    if config.dist is None:
        return np.zeros(draws.count, np.int32)
    if config.dist == "factor":
        limit: Int32Array = np.minimum(np.ceil(output * config.factor), INT32_MAX).astype(np.int32)
        return limit
    return lengths(config, None, draws, "max_tokens")


def priorities(config: PriorityConfig, draws: Draws) -> Int32Array:
    """Priority values, shape (count,): the classes have exact counts, their places are shuffled."""
    values = config.values or (0,)
    counts = exact_counts(config.shares or (1.0,) * len(values), draws.count)
    out = np.empty(draws.count, np.int32)
    out[np.argsort(draws.uniform("priority"), kind="stable")] = np.repeat(np.asarray(values, np.int32), counts)
    return out


def exact_counts(shares: tuple[float, ...], count: int) -> npt.NDArray[np.int64]:
    """`count` divided in proportion to `shares`: rounded down, the rest to the largest remainders."""
    exact = np.asarray(shares, np.float64) / math.fsum(shares) * count
    counts = np.floor(exact).astype(np.int64)
    rest = count - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:rest]] += 1
    return counts


def prefixes(config: PrefixConfig, draws: Draws) -> tuple[Int32Array, Int32Array]:
    """Prefix group (-1: none) and shared tokens of each request, each of shape (count,)."""
    popularity = np.arange(1, _given(config.groups) + 1, dtype=np.float64) ** -config.zipf
    group = choices(popularity, draws.uniform("prefix_group"))
    member = draws.uniform("prefix_member") < config.share
    return np.where(member, group, -1).astype(np.int32), np.where(member, config.tokens, 0).astype(np.int32)


def think_us(config: ThinkConfig, draws: Draws) -> Int64Array:
    """Pause before each request in microseconds, shape (count,)."""
    factor = np.ones(draws.count) if config.dist == "constant" else draws.exponential("think")
    return np.floor(config.mean_s * 1e6 * factor).astype(np.int64)


def _given(value: float | None) -> float:
    """The rules between keys have made sure that it is there."""
    assert value is not None
    return value
