# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""TTFT, TPOT, E2E and queue time: their means and quantiles, and goodput, which is made of them.

Their population is everybody offered, servable, and come after warm-up. One that did not get there is censored.
"""

from typing import NamedTuple

import numpy as np

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import NEVER, Status
from fastsim.metrics.columns import NUM_LATENCIES, QUANTILES
from fastsim.metrics.counts import ratio
from fastsim.metrics.selection import gap_quantile, quantile

_NAN = np.nan
_FINISHED = int(Status.FINISHED)
_REJECTED = int(Status.REJECTED)
_TIMED_OUT = int(Status.TIMED_OUT)

TTFT, TPOT, E2E, QUEUE_TIME = range(NUM_LATENCIES)
_NUM_QUANTILES = len(QUANTILES)
_SERVED_MEAN = _NUM_QUANTILES
_SERVED = _SERVED_MEAN + 1
_CENSORED_SHARE = _SERVED + _NUM_QUANTILES

LATENCY_DTYPE = np.dtype(
    [
        ("served", np.int64),
        ("censored", np.int64),
        ("sum_us", np.float64),
    ]
)
"""One latency: who got there, who did not."""

GOODPUT_DTYPE = np.dtype(
    [
        ("good", np.int64),
        ("offered", np.int64),
        ("rejected", np.int64),
        ("first_lives", np.int64),
        ("first_life_us", np.float64),
    ]
)
"""Completed within every objective, of so many; and TTFT of first lives: how many, and their sum."""


@inlined
def _serve(latency, values, first, value_us):
    served = latency["served"]
    values[first + served] = value_us
    latency["sum_us"] += value_us
    latency["served"] = served + 1


@inlined
def note_latencies(log, i, status, room, params, values, num_requests, ttft, tpot, e2e, queue_time, goodput):
    """Request `i`, one of the population; without an end it would have had at most `room` output tokens."""
    arrival_us = log.arrival_us[i]
    frontend_us = params["frontend_us"]
    first_us = log.first_token_us[i]
    scheduled_us = log.first_scheduled_us[i]
    turned_away = status in (_REJECTED, _TIMED_OUT)
    if turned_away or first_us == NEVER:
        ttft["censored"] += 1
    else:
        _serve(ttft, values, TTFT * num_requests, float(first_us - arrival_us + frontend_us))
    if turned_away or scheduled_us == NEVER:
        queue_time["censored"] += 1
    else:
        _serve(queue_time, values, QUEUE_TIME * num_requests, float(scheduled_us - arrival_us))
    if not turned_away and log.first_life_token_us[i] != NEVER:
        goodput["first_lives"] += 1
        goodput["first_life_us"] += log.first_life_token_us[i] - arrival_us + frontend_us
    goodput["offered"] += 1
    goodput["rejected"] += status == _REJECTED
    if status != _FINISHED:
        e2e["censored"] += 1
        tpot["censored"] += room >= 2
        return
    finish_us = log.finish_us[i]
    _serve(e2e, values, E2E * num_requests, float(finish_us - arrival_us + frontend_us))
    ttft_us = first_us - arrival_us + frontend_us
    decode_us = finish_us - first_us
    tokens = log.num_generated[i] - 1
    within = ttft_us <= params["slo_ttft_us"] and ttft_us + decode_us <= params["slo_e2e_us"]
    if tokens > 0:
        tpot_us = decode_us / tokens
        _serve(tpot, values, TPOT * num_requests, tpot_us)
        within = within and tpot_us <= params["slo_tpot_us"]
    goodput["good"] += within


@inlined
def copy_latency(latency, which, num_requests, scratch, floats):
    """Write down what `note_latencies` noted of one latency."""
    _copy(
        latency["served"],
        latency["censored"],
        latency["sum_us"],
        which * num_requests,
        scratch,
        floats["latencies"][which],
    )


@helper
def _copy(served, censored, sum_us, first, scratch, out):
    """Mean and quantiles of one latency: of the served, and with the censored as infinite ones behind them."""
    out[_SERVED_MEAN] = ratio(sum_us, served) / 1000.0
    out[_CENSORED_SHARE] = ratio(censored, served + censored)
    values = scratch.latencies
    if censored == 0:
        start = 0
        for k in range(_NUM_QUANTILES):
            value, start = quantile(values, first, start, served, served, QUANTILES[k])
            out[k] = out[_SERVED + k] = value / 1000.0
        return
    # Both ladders by growing positions, so that each selection starts where the one before it ended
    total = served + censored
    start = below = among = 0
    while below + among < 2 * _NUM_QUANTILES:
        of_served = among == _NUM_QUANTILES
        if below < _NUM_QUANTILES and among < _NUM_QUANTILES:
            of_served = (served - 1) * QUANTILES[below] <= (total - 1) * QUANTILES[among]
        k = below if of_served else among
        value, start = quantile(values, first, start, served, served if of_served else total, QUANTILES[k])
        out[_SERVED + k if of_served else k] = value / 1000.0
        below += of_served
        among += not of_served


class Counted(NamedTuple):
    """Requests that goodput looks at: within every objective, all, and those turned away; and over how long."""

    good: int
    offered: int
    rejected: int
    seconds: float


@inlined
def copy_goodput(goodput, params, totals, floats):
    """Completed within every objective there is; whoever was not served is a miss. Returns what was Counted."""
    start_us = max(params["warmup_us"], totals["first_arrival_us"])
    seconds = (totals["end_us"] - start_us) / 1e6
    good = goodput["good"]
    offered = goodput["offered"]
    rejected = goodput["rejected"]
    floats["goodput_req_per_s"] = ratio(good, seconds)
    floats["goodput_share"] = ratio(good, offered)
    floats["goodput_admitted_share"] = ratio(good, offered - rejected)
    first_life_us = goodput["first_life_us"]
    floats["ttft_first_life_served_mean_ms"] = ratio(first_life_us, goodput["first_lives"]) / 1000.0
    return Counted(good, offered, rejected, seconds)


@helper
def copy_gaps(totals, histogram, floats):
    """Gaps between tokens, from their histogram."""
    count = totals["itl_count"]
    longest_us = totals["itl_max_us"]
    floats["itl_mean_ms"] = ratio(totals["itl_sum_us"], count) / 1000.0
    floats["itl_max_ms"] = longest_us / 1000.0 if count > 0 else _NAN
    out = floats["itl_quantiles_ms"]
    index = before = 0
    for k in range(_NUM_QUANTILES):
        value, index, before = gap_quantile(histogram, index, before, count, longest_us, QUANTILES[k])
        out[k] = value / 1000.0
