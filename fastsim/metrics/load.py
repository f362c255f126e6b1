# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""How much was offered, against what there is: unloaded times, offered load, capacity, fairness, backlog.

A request alone in the system is prefilled in chunks of the step's token budget and then decodes one token a step. Its
unloaded E2E is the sum of those step times, without the truncation of each step to whole microseconds.
"""

from typing import NamedTuple

import numpy as np

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import NEVER, Status
from fastsim.engines.step_table import graph_tokens, table_us
from fastsim.metrics.columns import NULL
from fastsim.metrics.selection import reaches_median, sort_pairs

_NAN = np.nan
_PENDING = int(Status.PENDING)
_FINISHED = int(Status.FINISHED)
_REJECTED = int(Status.REJECTED)
_TIMED_OUT = int(Status.TIMED_OUT)
_UNSERVABLE = int(Status.UNSERVABLE)
CHANCE = 2.0
"""A steady number in flight wanders by about its square root: growth up to so many of those is chance."""


class OfferedLoad(NamedTuple):
    """What judging needs to know about the requests that were offered; times in microseconds."""

    offered: int
    first_us: int  # first arrival
    span_us: int  # from there to the last
    longest_us: float  # longest unloaded E2E
    earliest_us: float  # when the first of them could have been done, alone
    due: int  # how many are done or gone, or would be done by the end of the run if they were alone
    late: int  # of those, how many were not
    overdue: int  # of those, how many had had twice the time
    lost: int  # of those, how many never will be: rejected, timed out
    longest_wait_us: int  # time without a token of one that was not rejected


@inlined
def is_offered(status):
    """Whether a request of that status is servable and arrived."""
    return status != _PENDING and status != _UNSERVABLE


@inlined
def _ceil_ratio(count, size, inverse):
    """Smallest integer not below count / size, with inverse = 1.0 / size: exact for counts below 2**40, no division."""
    floor = int(count * inverse)
    return floor + (floor * size < count)


@helper
def _window_tokens(prompt, decodes, window):
    """The sum of min(context, window) over decode steps, which read prompt, prompt + 1, ... tokens."""
    below = max(min(window - prompt, decodes), 0)
    return below * (prompt + (below - 1) / 2.0) + (decodes - below) * window


LOAD_DTYPE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "tokens",  # of all requests; what follows is of the offered
            "offered",
            "first_us",  # arrival
            "last_us",
            "due",
            "late",
            "overdue",
            "lost",
            "blocks",  # at full decode
            "completed",  # after warm-up
            "longest_wait_us",  # time without a token of one that was not rejected
        )
    ]
    + [
        (name, np.float64)
        for name in (
            "earliest_us",
            "longest_us",  # unloaded E2E
            "sum_us",  # unloaded E2E
            "block_us",
            "engine_us",
            "slowdowns",
            "squares",
        )
    ]
)
"""What `note_load` sums up; `OfferedLoad` says more of those that it has."""


class Rates(NamedTuple):
    """What the unloaded times of requests are made of: numbers of a configuration."""

    token_budget: int
    per_budget: float
    per_block: float
    prefill_step_us: float
    full_us: float  # of the table, for a full step
    decode_alone_us: float
    prefill_us_per_token: float
    decode_us_per_token: float


@inlined
def rates_of(params):
    """The numbers of a configuration."""
    token_budget = params["token_budget"]
    most = params["max_num_seqs"]
    b0_us = params["b0_us"]
    prefill_step_us = b0_us + params["b5_us_per_prefill_step"]
    prefill_us_per_token = prefill_step_us / token_budget + params["b1_us_per_prefill_token"]
    decode_us_per_token = b0_us / most + params["b2_us_per_decode_token"]
    decode_alone_us = b0_us + params["b2_us_per_decode_token"]
    full_us = 0.0
    if params["table_knots"] > 0:
        full_us = table_us(params, token_budget)
        prefill_us_per_token += full_us / token_budget
        decode_us_per_token += table_us(params, graph_tokens(params, most)) / most
        decode_alone_us += table_us(params, graph_tokens(params, 1))
    return Rates(
        token_budget,
        1.0 / token_budget,
        1.0 / params["block_size"],
        prefill_step_us,
        full_us,
        decode_alone_us,
        prefill_us_per_token,
        decode_us_per_token,
    )


@inlined
def note_load(load, log, i, status, prompt, output, rates, params, end_us, alone):
    """Request `i`, which was offered: what it needs, and whether it is late."""
    decodes = max(min(output, params["max_model_len"] - prompt) - 1, 0)
    # Decode steps read prompt, prompt + 1, ... tokens of context
    context_us = params["b3_us_per_context_token"] * decodes * (prompt + (decodes - 1) / 2.0)
    if params["window_tokens"] > 0:
        context_us += params["b6_us_per_window_token"] * _window_tokens(prompt, decodes, params["window_tokens"])
    steps = _ceil_ratio(prompt, rates.token_budget, rates.per_budget)
    prefill_us = steps * rates.prefill_step_us + prompt * params["b1_us_per_prefill_token"]
    attention_us = params["b4_us_per_prefill_pair"] * (0.5 * prompt * prompt)
    prefill_us += attention_us
    if params["table_knots"] > 0 and steps > 0:
        prefill_us += (steps - 1) * rates.full_us + table_us(params, prompt - (steps - 1) * rates.token_budget)
    decode_us = decodes * rates.decode_alone_us + context_us
    alone_us = prefill_us + decode_us + params["frontend_us"]
    prompt_blocks = _ceil_ratio(prompt, params["block_size"], rates.per_block)
    full_blocks = _ceil_ratio(prompt + decodes, params["block_size"], rates.per_block)
    alone[load["offered"]] = alone_us
    load["sum_us"] += alone_us
    load["longest_us"] = max(load["longest_us"], alone_us)
    load["blocks"] += full_blocks
    load["block_us"] += prompt_blocks * prefill_us + (prompt_blocks + full_blocks) / 2.0 * decode_us
    load["engine_us"] += (
        prompt * rates.prefill_us_per_token + attention_us + decodes * rates.decode_us_per_token + context_us
    )
    arrival_us = log.arrival_us[i]
    is_first = load["offered"] == 0
    load["first_us"] = arrival_us if is_first else min(load["first_us"], arrival_us)
    load["last_us"] = arrival_us if is_first else max(load["last_us"], arrival_us)
    load["offered"] += 1
    done_us = arrival_us + alone_us - params["frontend_us"]
    load["earliest_us"] = done_us if is_first else min(load["earliest_us"], done_us)
    gone = status in (_REJECTED, _TIMED_OUT)
    if status == _FINISHED:
        load["due"] += 1
    elif done_us <= end_us or gone:
        load["due"] += 1
        load["late"] += 1
        load["overdue"] += done_us + alone_us <= end_us
        load["lost"] += gone
    if status == _FINISHED and arrival_us >= params["warmup_us"] and alone_us > 0.0:
        slowdown = (log.finish_us[i] - arrival_us + params["frontend_us"]) / alone_us
        load["completed"] += 1
        load["slowdowns"] += slowdown
        load["squares"] += slowdown * slowdown


@inlined
def copy_load(load, log, totals, params, scratch, floats, ints):
    """Write down what `note_load` noted of all requests: the columns about load, fairness and backlog.

    Returns
    -------
    OfferedLoad
    """
    num_requests = log.status.shape[0]
    completed = load["completed"]
    slowdowns = load["slowdowns"]
    squares = load["squares"]
    floats["slowdown_served_mean"] = slowdowns / completed if completed > 0 else _NAN
    floats["jain_slowdown"] = slowdowns * slowdowns / (completed * squares) if squares > 0.0 else _NAN
    usable = totals["usable_blocks"]
    tokens = load["tokens"]
    ints["kv_safe_num_seqs"] = NULL
    if num_requests > 0 and tokens > 0:
        per_request = int(np.ceil(tokens / num_requests / params["block_size"]))
        ints["kv_safe_num_seqs"] = max(1, usable // params["replicas"] // per_request)
    offered = load["offered"]
    sum_us = load["sum_us"]
    floats["unloaded_e2e_mean_ms"] = sum_us / offered / 1000.0 if offered > 0 else _NAN
    floats["kv_capacity_req_per_s"] = _NAN
    if load["blocks"] > 0 and sum_us > 0.0:
        floats["kv_capacity_req_per_s"] = usable / (load["blocks"] / offered) / (sum_us / offered) * 1e6
    first_us = load["first_us"]
    span_us = load["last_us"] - first_us
    _offered_load(params, offered, span_us, load["block_us"], load["engine_us"], usable, floats)
    ints["overloaded"] = NULL
    floats["backlog_slope_req_per_s"] = _NAN
    if params["closed_loop"] == 0 and offered > 1 and reaches_median(scratch.alone_us, offered, span_us):
        _backlog(log, params, first_us, load["last_us"], scratch, floats, ints)
    return OfferedLoad(
        offered,
        first_us,
        span_us,
        load["longest_us"],
        load["earliest_us"] if offered > 0 else np.inf,
        load["due"],
        load["late"],
        load["overdue"],
        load["lost"],
        load["longest_wait_us"],
    )


@helper
def _offered_load(params, offered, span_us, block_us, engine_us, usable, floats):
    """Needed over available, per unit of time; the arrivals' rate is (offered - 1) / span."""
    floats["offered_kv_load"] = _NAN
    floats["offered_token_load"] = _NAN
    floats["offered_load"] = _NAN
    if params["closed_loop"] == 1 or offered < 2 or span_us == 0:
        return
    per_us = (offered - 1.0) / offered / span_us
    floats["offered_token_load"] = engine_us * per_us / params["replicas"]
    if usable > 0:
        floats["offered_kv_load"] = block_us * per_us / usable
        floats["offered_load"] = max(floats["offered_kv_load"], floats["offered_token_load"])


@helper
def _first_at_or_after(times, count, time):
    low = 0
    high = count
    while low < high:
        middle = (low + high) >> 1
        if times[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low


@helper
def _backlog(log, params, first_us, last_us, scratch, floats, ints):
    """Least-squares slope of the backlog (arrived - done - refused) sampled at the arrivals of the last half.

    With deviations u_k of the sample times from their mean, slope = sum(u_k * backlog_k) / sum(u_k^2). An event that
    changes the backlog by one from time e on adds the sum of the u_k with t_k >= e: a suffix sum, so nothing but the
    arrivals needs an order. Events before the window add nothing, since all u_k sum to zero.

    It grows where it takes in more than a share of the arrivals; at an offered load of up to 1 that must also be more
    than chance makes, or a few requests more in flight at the end than in the middle would pass for overload.
    """
    num_requests = log.status.shape[0]
    times_us = scratch.times_us
    count = 0
    in_flight = 0
    ordered = True
    for i in range(num_requests):
        if is_offered(log.status[i]) and 2 * (log.arrival_us[i] - first_us) >= last_us - first_us:
            times_us[count] = log.arrival_us[i]
            ordered = ordered and (count == 0 or times_us[count] >= times_us[count - 1])
            count += 1
    if not ordered:
        sort_pairs(times_us, scratch.requests, count)
    mean_us = 0.0
    for k in range(count):
        mean_us += (times_us[k] - times_us[0]) / count
    mean_us += times_us[0]
    suffix = scratch.suffix
    square = 0.0
    total = 0.0
    suffix[count] = 0.0
    for k in range(count - 1, -1, -1):
        deviation = times_us[k] - mean_us
        square += deviation * deviation
        total += deviation
        suffix[k] = total
    if square <= 0.0:
        return
    cross = 0.0
    tie = 0
    for k in range(count):
        if times_us[k] != times_us[tie]:
            tie = k
        cross += suffix[tie]
    for i in range(num_requests):
        status = log.status[i]
        gone_us = NEVER
        if status in (_FINISHED, _TIMED_OUT):
            gone_us = log.finish_us[i]
        elif status == _REJECTED:
            gone_us = log.arrival_us[i]
        in_flight += is_offered(status) and (gone_us == NEVER or gone_us > last_us)
        if gone_us > times_us[0] and gone_us <= last_us:
            cross -= suffix[_first_at_or_after(times_us, count, gone_us)]
    slope = cross / square
    floats["backlog_slope_req_per_s"] = slope * 1e6
    rate = (count - 1) / (times_us[count - 1] - times_us[0])
    grown = slope * 0.5 * (last_us - first_us)
    by_chance = floats["offered_load"] <= 1.0 and grown * grown <= CHANCE * CHANCE * in_flight
    ints["overloaded"] = slope > params["overload_threshold"] * rate and not by_chance
