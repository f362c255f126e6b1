"""Classes of requests mixed into one workload: each is built as a workload of its own, then they are merged."""

from collections.abc import Callable
from dataclasses import fields, replace
from hashlib import blake2b
from math import fsum
from typing import Any

import numpy as np

from fastsim.config import ArrivalConfig, ClassConfig, WorkloadConfig
from fastsim.config.derived import DEFAULT_NUM_REQUESTS
from fastsim.config.rules_classes import RATED
from fastsim.errors import InputError
from fastsim.workload.workload import LATEST_US, Workload
from fastsim.workload.write import merged

Build = Callable[[WorkloadConfig, int], Workload]

COPIED = ("trace", "format", "window_start_s", "window_end_s", "sample_share", "sessions")
"""Keys that a class has for itself alone; of the others it takes the workload's where it says nothing."""


def build_classes(config: WorkloadConfig, build: Build) -> Workload:
    """The first `num_requests` requests of all classes together, in order of arrival.

    Every class draws from a stream of its own, which its name decides: another class, or another share, changes none
    of its lengths.

    Parameters
    ----------
    config
        With `classes`.
    build
        Builds the workload of one class from its configuration and seed.

    Raises
    ------
    InputError
        When a class cannot be built, or arrives too late.
    """
    names = config.classes.names
    classes = {name: config.classes.part(name) for name in names}
    shares = {name: each.share for name, each in classes.items() if _takes_share(each)}
    ends = all(each.num_requests is not None or each.trace is not None for each in classes.values())
    count = config.num_requests or (None if ends else DEFAULT_NUM_REQUESTS)
    parts = []
    for name, each in classes.items():
        rate = config.arrival.rate_per_s * each.share / fsum(shares.values()) if name in shares else None
        try:
            part = build(_workload_of(config, each, rate, count), class_seed(config.seed, name))
        except InputError as error:
            raise InputError(f"workload.classes.{name}: {error}") from None
        parts.append(_later(part, each.start_s / config.rate_scale, name))
    owner = np.repeat(np.arange(len(names)), [part.num_requests for part in parts])
    order = np.argsort(np.concatenate([part.arrival_us for part in parts]), kind="stable")
    whole = merged(parts)
    whole = replace(whole, class_names=names, request_class=owner[order].astype(np.int32))
    return whole if count is None else _first(whole, count)


def class_seed(seed: int, name: str) -> int:
    """The seed of a class, from 0 to 2**56 - 1."""
    return int.from_bytes(blake2b(f"{seed} {name}".encode(), digest_size=7).digest(), "big")


def _takes_share(each: ClassConfig) -> bool:
    """Whether a class has a share of the workload's rate, and no arrivals or rate of its own."""
    kind = each.arrival.kind
    return each.arrival.rate_per_s is None and (each.trace is None if kind is None else kind in RATED)


def configured_rate(config: WorkloadConfig) -> float | None:
    """Requests per second before `rate_scale`, of arrivals that have a rate; of classes, of all of them together.

    None where a class has none, or does not last as long as the others.
    """
    rates = []
    classes = [config.classes.part(name) for name in config.classes.names]
    if not classes or any(map(_takes_share, classes)):
        rates.append(config.arrival.rate_per_s)
    for each in classes:
        if each.trace is not None or each.num_requests is not None or each.start_s > 0:
            return None
        if not _takes_share(each):
            if each.arrival.rate_per_s is None:
                return None
            rates.append(each.arrival.rate_per_s * each.rate_scale)
        elif each.rate_scale != 1:
            return None
    return fsum(rates)


def _workload_of(config: WorkloadConfig, each: ClassConfig, rate: float | None, count: int | None) -> WorkloadConfig:
    """A class as a workload of its own; what it does not say, it has from the workload's keys."""
    own = {name: getattr(each, name) for name in COPIED}
    shape = each.arrival if each.arrival.kind is not None or each.trace is not None else config.arrival
    arrival = {name: getattr(shape, name) for name in ArrivalConfig.model_fields}
    arrival["rate_per_s"] = rate or each.arrival.rate_per_s or config.arrival.rate_per_s
    for name in ("prompt", "output"):
        said = getattr(each, name).dist is not None or each.trace is not None
        own[name] = getattr(each if said else config, name)
    most = [number for number in (each.num_requests, count) if number is not None]
    return WorkloadConfig(
        num_requests=each.num_requests if each.trace is not None else min(most),
        arrival=ArrivalConfig(**arrival),
        max_tokens=each.max_tokens if each.max_tokens.dist is not None else config.max_tokens,
        prefix=each.prefix if each.prefix.groups is not None or each.sessions.turns > 1 else config.prefix,
        priority=each.priority if each.priority.values is not None else config.priority,
        rate_scale=each.rate_scale * config.rate_scale,
        **own,
    )


def _later(part: Workload, seconds: float, name: str) -> Workload:
    if seconds == 0:
        return part
    later = part.arrival_us + int(seconds * 1e6)
    if len(later) and later.max() > LATEST_US:
        raise InputError(f"workload.classes.{name}.start_s: the last request arrives later than was expected of any")
    return replace(part, arrival_us=later)


def _first(whole: Workload, count: int) -> Workload:
    """The first requests; they are in order of arrival."""
    if whole.num_requests <= count:
        return whole
    arrays: dict[str, Any] = {
        field.name: value[:count]
        for field in fields(whole)
        if isinstance(value := getattr(whole, field.name), np.ndarray)
    }
    return replace(whole, **arrays, report=replace(whole.report, rows_used=count))
