"""BLIS's own aggregate metrics, by the names of its metrics object."""

import numpy as np

from fastsim._jit import helper
from fastsim.engines.blis.codes import NO_LIMIT, TIMED_OUT, UNSERVABLE
from fastsim.engines.blis.state import GAP_COUNTS, GAP_DIGIT_BITS

_COUNTS = (
    "completed_requests",
    "still_queued",
    "still_running",
    "injected_requests",
    "total_input_tokens",
    "total_output_tokens",
    "preemption_count",
    "dropped_unservable",
    "length_capped_requests",
    "timed_out_requests",
    "kv_allocation_failures",
)
_VALUES = (
    "vllm_estimated_duration_s",
    "responses_per_sec",
    "tokens_per_sec",
    "e2e_mean_ms",
    "e2e_p90_ms",
    "e2e_p95_ms",
    "e2e_p99_ms",
    "ttft_mean_ms",
    "ttft_p90_ms",
    "ttft_p95_ms",
    "ttft_p99_ms",
    "itl_mean_ms",
    "itl_p90_ms",
    "itl_p95_ms",
    "itl_p99_ms",
    "scheduling_delay_p99_ms",
    "cache_hit_rate",
)
AGGREGATE_DTYPE = np.dtype([(name, np.int64) for name in _COUNTS] + [(name, np.float64) for name in _VALUES])
"""BLIS's metrics of one run; see `summarise_blis` for the populations."""


@helper
def _percentile(values, n, percent):
    """Linear interpolation at percent / 100 (n - 1) in sorted microseconds, as milliseconds; 0 of nothing."""
    if n == 0:
        return 0.0
    rank = percent / 100.0 * (n - 1)
    low = int(rank)
    high = min(low + 1, n - 1)
    return (values[low] + (values[high] - values[low]) * (rank - low)) / 1000.0


@helper
def _mean(values, n):
    if n == 0:
        return 0.0
    total = 0
    for at in range(n):
        total += values[at]
    return total / n / 1000.0


@helper
def _sift(values, at, size):
    """Let the value at `at` sink in a heap with the largest value on top."""
    value = values[at]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and values[child + 1] > values[child]:
            child += 1
        if values[child] <= value:
            break
        values[at] = values[child]
        at = child
    values[at] = value


@helper
def _sort(values, n):
    """Heapsort of the first `n` values: in place, and nothing to allocate."""
    for at in range(n // 2 - 1, -1, -1):
        _sift(values, at, n)
    for end in range(n - 1, 0, -1):
        largest = values[0]
        values[0] = values[end]
        values[end] = largest
        _sift(values, 0, end)


@helper
def _collect(s, source, least):
    """Copy the values of at least `least` into the scratch array, sorted; returns how many."""
    n = 0
    for i in range(source.shape[0]):
        if source[i] >= least:
            s.lists.values[n] = source[i]
            n += 1
    _sort(s.lists.values, n)
    return n


@helper
def _gap_at(st, g, least, bits, rank):
    """The `rank`-th shortest gap without alpha2, and how many of its kind follow it.

    Found digit by digit, most significant first; gaps lie within `bits` bits of `least`.
    """
    base = least
    shift = bits
    kind = 0
    while shift > 0:
        shift = max(0, shift - GAP_DIGIT_BITS)
        g.counts[:] = 0
        for segment in range(st["segments"]):
            rest = (g.step_us[segment] - base) >> shift
            if 0 <= rest < GAP_COUNTS:
                g.counts[rest] += g.weight[segment]
        at = 0
        while rank >= g.counts[at]:
            rank -= g.counts[at]
            at += 1
        base += at << shift
        kind = g.counts[at]
    return base, kind - rank - 1


@helper
def _gap_percentile(cfg, st, g, least, bits, n, percent):
    if n == 0:
        return 0.0
    rank = percent / 100.0 * (n - 1)
    low = int(rank)
    below, alike = _gap_at(st, g, least, bits, low)
    above = below
    if alike == 0 and low + 1 < n:
        above = NO_LIMIT
        for segment in range(st["segments"]):
            if below < g.step_us[segment] < above and g.weight[segment] > 0:
                above = g.step_us[segment]
    return (below + (above - below) * (rank - low) + cfg["output_token_us"]) / 1000.0


@helper
def _gaps(cfg, st, s, out):
    """Gaps of all completed requests, pooled."""
    n = 0
    total_us = 0
    for i in range(s.blis.itl_count.shape[0]):
        n += s.blis.itl_count[i]
        total_us += s.blis.itl_sum_us[i]
    out["itl_mean_ms"] = total_us / n / 1000.0 if n > 0 else 0.0
    least = NO_LIMIT
    most = 0
    for segment in range(st["segments"]):
        if s.gaps.weight[segment] > 0:
            least = min(least, s.gaps.step_us[segment])
            most = max(most, s.gaps.step_us[segment])
    bits = 1
    while most - least >> bits > 0:
        bits += 1
    out["itl_p90_ms"] = _gap_percentile(cfg, st, s.gaps, least, bits, n, 90.0)
    out["itl_p95_ms"] = _gap_percentile(cfg, st, s.gaps, least, bits, n, 95.0)
    out["itl_p99_ms"] = _gap_percentile(cfg, st, s.gaps, least, bits, n, 99.0)


@helper
def summarise_blis(cfg, st, s, tot, out):
    """Fill one record of AGGREGATE_DTYPE.

    TTFT and scheduling delay are over every request that ever prefilled or was admitted, with its latest value, whether
    or not it completed; E2E and ITL over the completed ones. All of them are 0 when nothing completed.
    """
    timed_out = 0
    unservable = 0
    for i in range(s.log.status.shape[0]):
        timed_out += s.log.status[i] == TIMED_OUT
        unservable += s.log.status[i] == UNSERVABLE
    completed = tot["completed"]
    duration_s = tot["end_us"] / 1e6
    out["completed_requests"] = completed
    out["still_queued"] = s.waiting.size[0]
    out["still_running"] = st["running"]
    out["injected_requests"] = st["injected"]
    out["total_input_tokens"] = st["total_input_tokens"]
    out["total_output_tokens"] = st["total_output_tokens"]
    out["preemption_count"] = tot["preemptions"]
    out["dropped_unservable"] = unservable
    out["length_capped_requests"] = 0  # a request that could reach the cap is dropped when it arrives
    out["timed_out_requests"] = timed_out
    out["kv_allocation_failures"] = st["kv_allocation_failures"]
    out["vllm_estimated_duration_s"] = duration_s
    lookups = st["hits"] + st["misses"] + st["tier_failures"]
    out["cache_hit_rate"] = st["hits"] / lookups if lookups > 0 else 0.0
    out["responses_per_sec"] = completed / duration_s if completed > 0 else 0.0
    out["tokens_per_sec"] = st["total_output_tokens"] / duration_s if completed > 0 else 0.0
    n = _collect(s, s.blis.e2e_us, 1) if completed > 0 else 0
    out["e2e_mean_ms"] = _mean(s.lists.values, n)
    out["e2e_p90_ms"] = _percentile(s.lists.values, n, 90.0)
    out["e2e_p95_ms"] = _percentile(s.lists.values, n, 95.0)
    out["e2e_p99_ms"] = _percentile(s.lists.values, n, 99.0)
    n = _collect(s, s.blis.ttft_us, 1) if completed > 0 else 0
    out["ttft_mean_ms"] = _mean(s.lists.values, n)
    out["ttft_p90_ms"] = _percentile(s.lists.values, n, 90.0)
    out["ttft_p95_ms"] = _percentile(s.lists.values, n, 95.0)
    out["ttft_p99_ms"] = _percentile(s.lists.values, n, 99.0)
    n = _collect(s, s.blis.scheduling_delay_us, 0) if completed > 0 else 0
    out["scheduling_delay_p99_ms"] = _percentile(s.lists.values, n, 99.0)
    _gaps(cfg, st, s, out)
