# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""The kernel that turns one run into one row. Everything it needs is in the log, the totals and the gap histogram."""

from typing import NamedTuple

import numpy as np

from fastsim._jit import helper
from fastsim.engines.outputs import NEVER, Status
from fastsim.metrics.columns import NUM_LATENCIES, QUANTILES
from fastsim.metrics.counts import copy_totals, count_requests, ratio
from fastsim.metrics.load import is_offered, summarise_load
from fastsim.metrics.selection import gap_quantile, quantile
from fastsim.metrics.verdict import judge

_NAN = np.nan
_FINISHED = int(Status.FINISHED)
_REJECTED = int(Status.REJECTED)
_TIMED_OUT = int(Status.TIMED_OUT)


def scratch_size(num_requests: int) -> int:
    """Length of the float64 scratch array that `summarise` needs for so many requests."""
    return 2 * num_requests + 2


@helper
def _counts(status, arrival_us, since_us):
    """Whether a request is in the population of latencies and goodput: offered, servable, after warm-up."""
    return is_offered(status) and arrival_us >= since_us


@helper
def _turned_away(status):
    return status in (_REJECTED, _TIMED_OUT)


@helper
def summarise(log, prompt_tokens, output_tokens, totals, itl_histogram, params, scratch, floats, ints):
    """Fill one row.

    Parameters
    ----------
    log
        RequestLog of the run, borrowed.
    prompt_tokens, output_tokens
        Integers, shape (num_requests,): the workload's true lengths.
    totals, params
        Records of TOTALS_DTYPE and PARAMS_DTYPE.
    itl_histogram
        int64, shape (ITL_BINS,).
    scratch
        float64, at least `scratch_size(num_requests)` long; overwritten.
    floats, ints
        Records of FLOAT_ROW_DTYPE and INT_ROW_DTYPE; modified in place.
    """
    since_us = params["warmup_us"]
    count_requests(log, prompt_tokens, totals, floats, ints)
    copy_totals(totals, params, floats, ints)
    latencies(log, prompt_tokens, output_tokens, params, since_us, scratch, floats["latencies"])
    _first_lives(log, params, since_us, floats)
    _gaps(totals, itl_histogram, floats)
    goodput(log, params, totals, since_us, floats)
    load = summarise_load(log, prompt_tokens, output_tokens, totals, params, since_us, scratch, floats, ints)
    judge(log, prompt_tokens, output_tokens, totals, params, load, scratch, floats, ints)


# --- Latencies ------------------------------------------------------------------------------------------------------

_CENSORED = -1.0
_TTFT, _TPOT, _E2E, _QUEUE_TIME = range(NUM_LATENCIES)
_NUM_QUANTILES = len(QUANTILES)
_SERVED_MEAN = _NUM_QUANTILES
_SERVED = _SERVED_MEAN + 1
_CENSORED_SHARE = _SERVED + _NUM_QUANTILES


@helper
def _ladder(values, served, censored, out):
    """Quantiles of values[:served] alone, and with `censored` infinite ones behind them."""
    start = 0
    for k in range(2 * _NUM_QUANTILES if censored > 0 else _NUM_QUANTILES):
        if k < _NUM_QUANTILES:
            value, start = quantile(values, start, served, served, QUANTILES[k])
            out[_SERVED + k] = value / 1000.0
            out[k] = value / 1000.0
        else:
            start = 0 if k == _NUM_QUANTILES else start
            value, start = quantile(values, start, served, served + censored, QUANTILES[k - _NUM_QUANTILES])
            out[k - _NUM_QUANTILES] = value / 1000.0


@helper
def latencies(log, prompt_tokens, output_tokens, params, since_us, values, out):
    """Mean and quantiles of each latency; a negative value is that of somebody who did not get there."""
    frontend_us = params["frontend_us"]
    max_model_len = params["max_model_len"]
    for which in range(NUM_LATENCIES):
        served = censored = 0
        sum_us = 0.0
        for i in range(log.status.shape[0]):
            status = log.status[i]
            arrival_us = log.arrival_us[i]
            if not _counts(status, arrival_us, since_us):
                continue
            value = _CENSORED
            if which == _TTFT:
                if log.first_token_us[i] != NEVER:
                    value = float(log.first_token_us[i] - arrival_us + frontend_us)
            elif which == _QUEUE_TIME:
                if log.first_scheduled_us[i] != NEVER:
                    value = float(log.first_scheduled_us[i] - arrival_us)
            elif which == _E2E:
                if status == _FINISHED:
                    value = float(log.finish_us[i] - arrival_us + frontend_us)
            elif status == _FINISHED:
                if log.num_generated[i] < 2:
                    continue
                value = (log.finish_us[i] - log.first_token_us[i]) / (log.num_generated[i] - 1)
            elif min(output_tokens[i], max_model_len - prompt_tokens[i]) < 2:
                continue
            if value == _CENSORED or _turned_away(status):
                censored += 1
            else:
                values[served] = value
                sum_us += value
                served += 1
        out[which, _SERVED_MEAN] = ratio(sum_us, served) / 1000.0
        out[which, _CENSORED_SHARE] = ratio(censored, served + censored)
        _ladder(values, served, censored, out[which])


@helper
def _first_lives(log, params, since_us, floats):
    """TTFT of first lives: differs from TTFT only where preempted requests start again."""
    served = 0
    sum_us = 0.0
    for i in range(log.status.shape[0]):
        counts = _counts(log.status[i], log.arrival_us[i], since_us) and not _turned_away(log.status[i])
        if counts and log.first_life_token_us[i] != NEVER:
            sum_us += log.first_life_token_us[i] - log.arrival_us[i] + params["frontend_us"]
            served += 1
    floats["ttft_first_life_served_mean_ms"] = ratio(sum_us, served) / 1000.0


@helper
def _gaps(totals, histogram, floats):
    count = totals["itl_count"]
    longest_us = totals["itl_max_us"]
    floats["itl_mean_ms"] = ratio(totals["itl_sum_us"], count) / 1000.0
    floats["itl_max_ms"] = longest_us / 1000.0 if count > 0 else _NAN
    out = floats["itl_quantiles_ms"]
    index = before = 0
    for k in range(_NUM_QUANTILES):
        value, index, before = gap_quantile(histogram, index, before, count, longest_us, QUANTILES[k])
        out[k] = value / 1000.0


class Counted(NamedTuple):
    """Requests that goodput looks at: within every objective, all, and those turned away; and over how long."""

    good: int
    offered: int
    rejected: int
    seconds: float


@helper
def goodput(log, params, totals, since_us, floats):
    """Completed within every objective there is; whoever was not served is a miss. Returns what was counted."""
    good = offered = rejected = 0
    for i in range(log.status.shape[0]):
        status = log.status[i]
        if not _counts(status, log.arrival_us[i], since_us):
            continue
        offered += 1
        rejected += status == _REJECTED
        if status != _FINISHED:
            continue
        ttft_us = log.first_token_us[i] - log.arrival_us[i] + params["frontend_us"]
        decode_us = log.finish_us[i] - log.first_token_us[i]
        tokens = log.num_generated[i] - 1
        within = ttft_us <= params["slo_ttft_us"] and ttft_us + decode_us <= params["slo_e2e_us"]
        if tokens > 0:
            within = within and decode_us / tokens <= params["slo_tpot_us"]
        good += within
    start_us = max(since_us, totals["first_arrival_us"])
    seconds = (totals["end_us"] - start_us) / 1e6
    floats["goodput_req_per_s"] = ratio(good, seconds)
    floats["goodput_share"] = ratio(good, offered)
    floats["goodput_admitted_share"] = ratio(good, offered - rejected)
    return Counted(good, offered, rejected, seconds)
