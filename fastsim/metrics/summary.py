# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""The kernel that turns one run into one row. Everything it needs is in the log, the totals and the gap histogram.

One pass over the requests (`_summarise_requests`) sums up whatever does not need an order; `counts`, `latencies`,
`load` and `verdict` each say what they note of a request, and what they write down of all.
"""

import numpy as np

from fastsim._jit import constant, counters, helper, inlined
from fastsim.engines.outputs import Status
from fastsim.metrics.counts import COUNTS_DTYPE, copy_counts, copy_totals, count_request
from fastsim.metrics.latencies import (
    E2E,
    GOODPUT_DTYPE,
    LATENCY_DTYPE,
    QUEUE_TIME,
    TPOT,
    TTFT,
    copy_gaps,
    copy_goodput,
    copy_latency,
    note_latencies,
)
from fastsim.metrics.load import LOAD_DTYPE, copy_load, is_offered, note_load, rates_of
from fastsim.metrics.verdict import judge, longest_wait_us


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
        Scratch for at least so many requests, borrowed; overwritten.
    floats, ints
        Records of FLOAT_ROW_DTYPE and INT_ROW_DTYPE; modified in place.
    """
    params = constant(params)
    copy_totals(totals, params, floats, ints)
    copy_gaps(totals, itl_histogram, floats)
    load = _summarise_requests(log, prompt_tokens, output_tokens, totals, params, scratch, floats, ints)
    judge(log, prompt_tokens, output_tokens, totals, params, load, scratch, floats, ints)


@inlined
def _summarise_requests(log, prompt_tokens, output_tokens, totals, params, scratch, floats, ints):
    """The pass, and what follows from it. Returns the OfferedLoad."""
    counts = counters(COUNTS_DTYPE)
    load = counters(LOAD_DTYPE)
    goodput = counters(GOODPUT_DTYPE)
    ttft = counters(LATENCY_DTYPE)
    tpot = counters(LATENCY_DTYPE)
    e2e = counters(LATENCY_DTYPE)
    queue_time = counters(LATENCY_DTYPE)
    scratch.statuses[:] = 0
    rates = rates_of(params)
    end_us = totals["end_us"]
    n = log.status.shape[0]
    for i in range(n):
        status = log.status[i]
        prompt = prompt_tokens[i]
        output = output_tokens[i]
        count_request(counts, log, i, prompt, end_us, scratch.statuses)
        load["tokens"] += np.int64(prompt) + output  # interpreted, int32 would overflow
        if not is_offered(status):
            continue
        note_load(load, log, i, status, prompt, output, rates, params, end_us, scratch.alone_us)
        if status != Status.REJECTED:
            load["longest_wait_us"] = max(load["longest_wait_us"], longest_wait_us(log, i, end_us))
        if log.arrival_us[i] >= params["warmup_us"]:
            room = min(output, params["max_model_len"] - prompt)
            note_latencies(log, i, status, room, params, scratch.latencies, n, ttft, tpot, e2e, queue_time, goodput)
    copy_counts(counts, scratch.statuses, n, totals, floats, ints)
    _copy_latencies(ttft, tpot, e2e, queue_time, n, scratch, floats)
    copy_goodput(goodput, params, totals, floats)
    return copy_load(load, log, totals, params, scratch, floats, ints)


@helper
def served(log, prompt_tokens, output_tokens, totals, params, scratch, floats, ints):
    """Only counts, latencies and goodput: what a class of requests has. Returns what goodput Counted."""
    counts = counters(COUNTS_DTYPE)
    goodput = counters(GOODPUT_DTYPE)
    ttft = counters(LATENCY_DTYPE)
    tpot = counters(LATENCY_DTYPE)
    e2e = counters(LATENCY_DTYPE)
    queue_time = counters(LATENCY_DTYPE)
    scratch.statuses[:] = 0
    n = log.status.shape[0]
    for i in range(n):
        status = log.status[i]
        count_request(counts, log, i, prompt_tokens[i], totals["end_us"], scratch.statuses)
        if is_offered(status) and log.arrival_us[i] >= params["warmup_us"]:
            room = min(output_tokens[i], params["max_model_len"] - prompt_tokens[i])
            note_latencies(log, i, status, room, params, scratch.latencies, n, ttft, tpot, e2e, queue_time, goodput)
    copy_counts(counts, scratch.statuses, n, totals, floats, ints)
    _copy_latencies(ttft, tpot, e2e, queue_time, n, scratch, floats)
    return copy_goodput(goodput, params, totals, floats)


@inlined
def _copy_latencies(ttft, tpot, e2e, queue_time, num_requests, scratch, floats):
    copy_latency(ttft, TTFT, num_requests, scratch, floats)
    copy_latency(tpot, TPOT, num_requests, scratch, floats)
    copy_latency(e2e, E2E, num_requests, scratch, floats)
    copy_latency(queue_time, QUEUE_TIME, num_requests, scratch, floats)
