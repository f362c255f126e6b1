# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Counts and averages over time: where everybody was at the end, and what the engine counted."""

import numpy as np

from fastsim._jit import helper
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


@helper
def count_requests(log, prompt_tokens, totals, floats, ints):
    """Where everybody was at the end, and what was delivered to them."""
    pending = waiting = running = finished = rejected = timed_out = unservable = held = 0
    preempted = most = prompt = found = output = hits = wait_us = 0
    for i in range(log.status.shape[0]):
        status = log.status[i]
        pending += status == _PENDING
        waiting += status == _WAITING
        running += status == _RUNNING
        finished += status == _FINISHED
        rejected += status == _REJECTED
        timed_out += status == _TIMED_OUT
        unservable += status == _UNSERVABLE
        held += status == _HELD
        preempted += log.num_preemptions[i] > 0
        most = max(most, log.num_preemptions[i])
        if log.first_token_us[i] != NEVER:
            prompt += prompt_tokens[i]
            found += max(log.prefix_hit_tokens_first[i], 0)
        output += log.num_generated[i]
        hits += log.prefix_hit_tokens[i]
        wait_us = max(wait_us, log.admission_wait_us[i])
        if log.first_scheduled_us[i] == NEVER and status in (_WAITING, _TIMED_OUT):
            end_us = log.finish_us[i] if status == _TIMED_OUT else totals["end_us"]
            wait_us = max(wait_us, end_us - log.arrival_us[i])
    ints["num_requests"] = log.status.shape[0]
    ints["offered"] = log.status.shape[0] - pending - unservable
    ints["completed"] = finished
    ints["running"] = running
    ints["waiting"] = waiting
    ints["held"] = held
    ints["pending"] = pending
    ints["rejected"] = rejected
    ints["timed_out"] = timed_out
    ints["unservable"] = unservable
    ints["preempted_requests"] = preempted
    ints["max_preemptions"] = most
    ints["prompt_tokens"] = prompt
    ints["output_tokens"] = output
    ints["prefix_hit_tokens"] = hits
    floats["prefix_hit_share"] = ratio(found, prompt)
    floats["longest_admission_wait_ms"] = wait_us / 1000.0
    seconds = (totals["end_us"] - totals["first_arrival_us"]) / 1e6
    floats["request_throughput_req_per_s"] = ratio(finished, seconds)
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
