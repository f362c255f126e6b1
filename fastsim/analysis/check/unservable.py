"""Requests that can never be served, and what each of them fails at: its engine's limits say it (`Engine.limits`)."""

from dataclasses import dataclass

import numpy as np

from fastsim.config import Config
from fastsim.engines import engine_of
from fastsim.engines.limits import Limit, RequestLengths
from fastsim.workload import Workload


@dataclass(frozen=True)
class Cause:
    """Why `count` requests can never be served: `sentence` names the key and the worst of them."""

    count: int
    sentence: str


def causes(config: Config, workload: Workload) -> tuple[Cause, ...]:
    """Every cause there is, each with the requests that it hits first; empty when everybody can be served."""
    found = []
    left = np.ones(workload.num_requests, np.bool_)
    for limit in _limits(config, workload):
        hit = limit.fails & left
        left &= ~limit.fails
        if count := int(hit.sum()):
            found.append(Cause(count, limit.clause(hit)))
    return tuple(found)


def causes_text(found: tuple[Cause, ...]) -> str:
    """The causes as a clause."""
    return "; ".join(f"{cause.count:,} {cause.sentence}" for cause in found)


def cause_of(config: Config, workload: Workload, request: int) -> str | None:
    """What one request fails at; None: nothing."""
    only = np.arange(workload.num_requests) == request
    return next((limit.clause(only) for limit in _limits(config, workload) if limit.fails[request]), None)


def _limits(config: Config, workload: Workload) -> list[Limit]:
    lengths = (workload.prompt_tokens, workload.output_tokens, workload.max_tokens)
    requests = RequestLengths(*(tokens.astype(np.int64) for tokens in lengths))
    return engine_of(config.engine.name).limits(config.value, requests)
