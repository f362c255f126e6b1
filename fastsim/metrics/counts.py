# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Counts and averages over time: where everybody was at the end, and what the engine counted."""

import numpy as np

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import NEVER, Status, Stop
from fastsim.metrics.columns import STATUSES

_NAN = np.nan
_PENDING = int(Status.PENDING)
_WAITING = int(Status.WAITING)
_RUNNING = int(Status.RUNNING)
_FINISHED = int(Status.FINISHED)
_REJECTED = int(Status.REJECTED)
_TIMED_OUT = int(Status.TIMED_OUT)
_UNSERVABLE = int(Status.UNSERVABLE)
_HELD = int(Status.HELD)
_STOP_MAX_STEPS = int(Stop.MAX_STEPS)
_OK = STATUSES.index("ok")
_MAX_STEPS = STATUSES.index("max_steps")


@helper
def ratio(numerator, denominator):
    """The quotient, or NaN where there is nothing to divide by."""
    return numerator / denominator if denominator > 0 else _NAN


COUNTS_DTYPE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "preempted",
            "most_preemptions",
            "prompt_tokens",  # of requests with a first token
            "first_hit_tokens",  # of those, found in the cache at their first admission
            "output_tokens",
            "hit_tokens",
            "longest_wait_us",  # single stay in the queue
        )
    ]
)


@inlined
def count_request(counts, log, i, prompt, end_us, statuses):
    """Request `i`: where it is at the end, and what was delivered to it."""
    status = log.status[i]
    statuses[status] += 1
    counts["preempted"] += log.num_preemptions[i] > 0
    counts["most_preemptions"] = max(counts["most_preemptions"], log.num_preemptions[i])
    if log.first_token_us[i] != NEVER:
        counts["prompt_tokens"] += prompt
        counts["first_hit_tokens"] += max(log.prefix_hit_tokens_first[i], 0)
    counts["output_tokens"] += log.num_generated[i]
    counts["hit_tokens"] += log.prefix_hit_tokens[i]
    wait_us = log.admission_wait_us[i]
    if log.first_scheduled_us[i] == NEVER and status in (_WAITING, _TIMED_OUT):
        gone_us = log.finish_us[i] if status == _TIMED_OUT else end_us
        wait_us = max(wait_us, gone_us - log.arrival_us[i])
    counts["longest_wait_us"] = max(counts["longest_wait_us"], wait_us)


@inlined
def copy_counts(counts, statuses, num_requests, totals, floats, ints):
    """Write down what `count_request` counted over all requests."""
    ints["num_requests"] = num_requests
    ints["offered"] = num_requests - statuses[_PENDING] - statuses[_UNSERVABLE]
    ints["completed"] = statuses[_FINISHED]
    ints["running"] = statuses[_RUNNING]
    ints["waiting"] = statuses[_WAITING]
    ints["held"] = statuses[_HELD]
    ints["pending"] = statuses[_PENDING]
    ints["rejected"] = statuses[_REJECTED]
    ints["timed_out"] = statuses[_TIMED_OUT]
    ints["unservable"] = statuses[_UNSERVABLE]
    ints["preempted_requests"] = counts["preempted"]
    ints["max_preemptions"] = counts["most_preemptions"]
    prompt = counts["prompt_tokens"]
    output = counts["output_tokens"]
    ints["prompt_tokens"] = prompt
    ints["output_tokens"] = output
    ints["prefix_hit_tokens"] = counts["hit_tokens"]
    floats["prefix_hit_share"] = ratio(counts["first_hit_tokens"], prompt)
    floats["longest_admission_wait_ms"] = counts["longest_wait_us"] / 1000.0
    seconds = (totals["end_us"] - totals["first_arrival_us"]) / 1e6
    floats["request_throughput_req_per_s"] = ratio(statuses[_FINISHED], seconds)
    floats["output_throughput_tok_per_s"] = ratio(output, seconds)
    floats["total_throughput_tok_per_s"] = ratio(prompt + output, seconds)


@helper
def copy_totals(totals, params, floats, ints):
    """What the engine counted, and the averages over time that follow from it."""
    scheduled = totals["prefill_tokens"] + totals["decode_tokens"]
    full_steps = totals["steps"] - totals["empty_steps"]
    duration_us = totals["end_us"] - totals["first_arrival_us"]
    replicas = params["replicas"]
    replica_us = replicas * duration_us
    ints["preemptions"] = totals["preemptions"]
    ints["ineffective_preemptions"] = totals["ineffective_preemptions"]
    ints["scheduled_tokens"] = scheduled
    ints["prefill_tokens"] = totals["prefill_tokens"]
    ints["decode_tokens"] = totals["decode_tokens"]
    ints["recomputed_tokens"] = totals["recomputed_tokens"]
    ints["discarded_tokens"] = totals["discarded_tokens"]
    ints["salvaged_tokens"] = totals["salvaged_tokens"]
    ints["swapped_tokens"] = totals["swapped_out_blocks"] * params["block_size"]
    ints["swapped_out_blocks"] = totals["swapped_out_blocks"]
    ints["swapped_in_blocks"] = totals["swapped_in_blocks"]
    ints["swap_fallbacks"] = totals["swap_fallbacks"]
    ints["held_arrivals"] = totals["held"]
    ints["replicas"] = replicas
    ints["usable_blocks"] = totals["usable_blocks"]
    ints["kv_peak_blocks"] = totals["kv_peak_blocks"]
    ints["running_peak"] = totals["running_peak"]
    ints["waiting_peak"] = totals["waiting_peak"]
    ints["batch_tokens_peak"] = totals["batch_tokens_peak"]
    ints["cap_min"] = totals["cap_min"]
    ints["cap_final"] = totals["cap_final"]
    ints["steps"] = totals["steps"]
    ints["empty_steps"] = totals["empty_steps"]
    ints["stop"] = totals["stop"]
    ints["status"] = _MAX_STEPS if totals["stop"] == _STOP_MAX_STEPS else _OK
    floats["simulated_s"] = totals["end_us"] / 1e6
    floats["kv_use_mean"] = ratio(ratio(totals["kv_block_us"], duration_us), totals["usable_blocks"])
    floats["kv_use_peak"] = ratio(totals["kv_peak_blocks"], totals["usable_blocks"] // replicas)
    floats["running_mean"] = ratio(totals["running_us"], replica_us)
    floats["batch_tokens_mean"] = ratio(scheduled, full_steps)
    floats["busy_share"] = ratio(totals["busy_us"], replica_us)
    floats["cap_mean"] = ratio(totals["cap_steps"], full_steps)
    floats["replica_seconds"] = replica_us / 1e6
    floats["recomputed_share"] = totals["recomputed_tokens"] / max(scheduled, 1)
