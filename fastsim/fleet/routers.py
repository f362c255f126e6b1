"""Routers that look at no replica: who serves a request is known before anybody runs."""

import numpy as np
import numpy.typing as npt

from fastsim.engines.fleets import Router
from fastsim.workload import Workload
from fastsim.workload.draws import STREAMS

Int64Array = npt.NDArray[np.int64]
Uint64Array = npt.NDArray[np.uint64]


def assigned(workload: Workload, fleet: np.void) -> Int64Array:
    """The replica that serves each request (int64, shape (num_requests,)), by the router of a FLEET_DTYPE record."""
    replicas = int(fleet["replicas"])
    if fleet["router"] == Router.SESSION:
        return _by_session(workload, replicas)
    if fleet["router"] == Router.RANDOM:
        return (router_draws(int(fleet["seed"]), workload.num_requests)[:, 0] * replicas).astype(np.int64)
    assert fleet["router"] == Router.ROUND_ROBIN
    turns = np.empty(workload.num_requests, np.int64)
    turns[workload.arrival_order()] = np.arange(workload.num_requests)
    return turns % replicas


def router_draws(seed: int, count: int) -> npt.NDArray[np.float64]:
    """Two uniform draws in [0, 1) a request, shape (count, 2): the same whatever the router, replicas and engine."""
    return np.random.default_rng([seed, STREAMS["router"]]).random((count, 2))


def sessions(workload: Workload) -> Int64Array:
    """The conversation of each request: the root of its prefix group; a request without a group is one of its own."""
    parent = workload.group_parent
    root = np.arange(len(parent), dtype=np.int64)
    for group in np.flatnonzero(parent >= 0).tolist():  # parents have lower numbers
        root[group] = root[parent[group]]
    own = len(root) + np.arange(workload.num_requests)
    grouped = workload.prefix_group >= 0
    own[grouped] = root[workload.prefix_group[grouped]]
    return own


def _by_session(workload: Workload, replicas: int) -> Int64Array:
    """The replica whose hash with the session is highest: with one replica more, only its own sessions move."""
    found, back = np.unique(sessions(workload), return_inverse=True)
    best = np.zeros(len(found), np.uint64)
    chosen = np.zeros(len(found), np.int64)
    for replica in range(replicas):
        score = _mixed(_mixed(found.astype(np.uint64)) + np.uint64(replica))
        better = score > best
        best[better] = score[better]
        chosen[better] = replica
    return chosen[back]


def _mixed(values: Uint64Array) -> Uint64Array:
    """A fixed 64-bit hash (the finaliser of splitmix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
