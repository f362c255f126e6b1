# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Routers that look at the replicas: what they know, whom they visit next and what for, and whom they choose."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim._jit import helper, inlined
from fastsim.engines.fleets import Router
from fastsim.engines.outputs import NEVER

Int64Array = npt.NDArray[np.int64]

KV_WEIGHT = 6.0
EASY_KV_USE = 0.5
"""vLLM's balancer counts a waiting request this much more for KV use above that."""


class Visit(IntEnum):
    """What the router goes to replicas for."""

    NOBODY = 0  # all is done
    BEGIN = 1
    SNAPSHOT = 2  # note waiting, running and KV use as of `at_us`, and requests in flight
    LOOK = 3  # note requests in flight as of `at_us`
    SEND = 4  # hand over `request`
    END = 5


ROUTER_DTYPE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "visit",
            "number",  # of the request at hand, in order of arrival
            "request",
            "at_us",
            "snapshot_us",  # time of the last snapshot
            "first",  # of two drawn replicas
            "second",
            "chosen",
            "turn",  # where the balancer's scan starts
        )
    ]
)


class Known(NamedTuple):
    """What the router knows of each replica, shape (replicas,); waiting, running and KV use as of the last snapshot."""

    sent: Int64Array
    in_flight: Int64Array
    waiting: Int64Array
    running: Int64Array
    kv_use: npt.NDArray[np.float64]


def new_known(replicas: int) -> Known:
    """Nothing is known of so many replicas."""
    counts = {name: np.zeros(replicas, np.int64) for name in Known._fields if name != "kv_use"}
    return Known(**counts, kv_use=np.zeros(replicas))


@helper
def begin_router(r, known, fleet):
    """Before the first request."""
    for k in range(fleet["replicas"]):
        known.sent[k] = 0
        known.in_flight[k] = 0
        known.waiting[k] = 0
        known.running[k] = 0
        known.kv_use[k] = 0.0
    r["visit"] = Visit.BEGIN
    r["number"] = -1
    r["snapshot_us"] = NEVER
    r["turn"] = 0


@inlined
def is_visited(r, fleet, k):
    """Whether this round of visits comes to replica `k`."""
    if r["visit"] == Visit.SEND:
        return k == r["chosen"]
    if r["visit"] == Visit.LOOK and fleet["router"] == Router.POWER_OF_TWO:
        return k in (r["first"], r["second"])
    return True


@helper
def next_visits(r, known, fleet, wl, draws, of_request):
    """What comes after the visits just done."""
    what = r["visit"]
    if what == Visit.LOOK:
        of_request[r["request"]] = choose(r, known, fleet)
        r["visit"] = Visit.SEND
        return
    if what == Visit.SNAPSHOT:
        r["snapshot_us"] = r["at_us"]
        r["visit"] = Visit.LOOK
        r["at_us"] = wl.arrival_us[r["request"]]
        return
    if what == Visit.END:
        r["visit"] = Visit.NOBODY
        return
    number = r["number"] + 1
    if number == wl.order.shape[0]:
        r["visit"] = Visit.END
        return
    i = wl.order[number]
    r["number"] = number
    r["request"] = i
    now_us = wl.arrival_us[i]
    r["visit"] = Visit.LOOK
    r["at_us"] = now_us
    if fleet["router"] == Router.POWER_OF_TWO:
        draw_two(r, draws, i, fleet["replicas"])
    elif fleet["router"] == Router.VLLM_DP:
        due_us = now_us if fleet["refresh_us"] == 0 else now_us - now_us % fleet["refresh_us"]
        if due_us > r["snapshot_us"] or fleet["refresh_us"] == 0:
            r["visit"] = Visit.SNAPSHOT
            r["at_us"] = due_us


# --- Choices ----------------------------------------------------------------------------------------------------------


@inlined
def draw_two(r, draws, i, replicas):
    """Two different replicas from two uniform draws."""
    first = int(draws[2 * i] * replicas)
    second = int(draws[2 * i + 1] * (replicas - 1))
    r["first"] = first
    r["second"] = second + (second >= first)


@helper
def choose(r, known, fleet):
    """The replica for the request at hand."""
    if fleet["router"] == Router.POWER_OF_TWO:
        fewer = known.in_flight[r["second"]] < known.in_flight[r["first"]]
        r["chosen"] = r["second"] if fewer else r["first"]
    elif fleet["router"] == Router.LEAST_LOADED:
        r["chosen"] = least_in_flight(known, fleet["replicas"])
    else:
        r["chosen"] = balance(r, known, fleet["replicas"], 1)
    return r["chosen"]


@inlined
def least_in_flight(known, replicas):
    """The first of those with the fewest requests in flight."""
    best = 0
    for k in range(1, replicas):
        if known.in_flight[k] < known.in_flight[best]:
            best = k
    return best


@inlined
def balance(r, known, replicas, clients):
    """The first of the least scores, one of so many API servers choosing.

    `DPLBAsyncMPClient.get_core_engine_for_request` (vllm/v1/engine/core_client.py, 0.33.0).
    """
    best = r["turn"]
    least = np.inf
    for place in range(replicas):
        k = (r["turn"] + place) % replicas
        waiting = known.waiting[k]
        score = float(max(clients * known.in_flight[k], waiting + known.running[k]))
        if waiting > 0:
            score += waiting * KV_WEIGHT * max(0.0, known.kv_use[k] - EASY_KV_USE)
        if score < least:
            best = k
            least = score
    known.waiting[best] += clients
    r["turn"] = (r["turn"] + 1) % replicas
    return best
