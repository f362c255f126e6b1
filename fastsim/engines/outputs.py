"""What every engine writes down about a run: one log entry a request, one record of totals, one histogram of gaps.

Kernels fill these in place; metrics read nothing else.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim._jit import helper, inlined


class Status(IntEnum):
    """Where a request was when the run ended."""

    PENDING = 0  # not yet arrived
    WAITING = 1  # in the waiting queue (a preempted request too)
    RUNNING = 2
    FINISHED = 3
    REJECTED = 4  # refused at the front door
    TIMED_OUT = 5  # aborted by its client
    UNSERVABLE = 6  # can never fit: named before the first step
    HELD = 7  # kept at the door by backpressure


class Stop(IntEnum):
    """Why a run ended."""

    DRAINED = 0
    HORIZON = 1
    MAX_STEPS = 2
    LIVELOCK = 3
    OUT_OF_MEMORY = 4  # the engine's process died: it gave away more KV than there is


NEVER = -1
"""Marks a time (or a hit count) that did not happen."""


class RequestLog(NamedTuple):
    """Per-request results, each of shape (num_requests,).

    ==========================  =====  ========  ==================================================================
    array                       dtype  unit      meaning
    ==========================  =====  ========  ==================================================================
    arrival_us                  int64  us        offered to the engine (closed loop: when its client sent it)
    first_scheduled_us          int64  us        start of the first step that admitted it; -1 never
    first_token_us              int64  us        first output token (of the life that completed); -1 never
    first_life_token_us         int64  us        first output token of its first life; -1 never
    last_token_us               int64  us        latest output token so far; -1 never
    finish_us                   int64  us        last token delivered, or the moment of abort; -1 never
    num_generated               int32  tokens    output tokens delivered
    num_preemptions             int32  count
    prefix_hit_tokens_first     int32  tokens    prefix-cache hit at its first admission; -1 never admitted
    prefix_hit_tokens           int64  tokens    prefix-cache hits over all admissions
    scheduled_tokens            int64  tokens    scheduled over all its lives
    admission_wait_us           int64  us        longest single stay in the waiting queue that has ended in admission
    admission_wait_end_us       int64  us        when that stay (the first of equally long ones) ended; 0 none did
    status                      int8   Status    where it was when the run ended
    ==========================  =====  ========  ==================================================================
    """

    arrival_us: npt.NDArray[np.int64]
    first_scheduled_us: npt.NDArray[np.int64]
    first_token_us: npt.NDArray[np.int64]
    first_life_token_us: npt.NDArray[np.int64]
    last_token_us: npt.NDArray[np.int64]
    finish_us: npt.NDArray[np.int64]
    num_generated: npt.NDArray[np.int32]
    num_preemptions: npt.NDArray[np.int32]
    prefix_hit_tokens_first: npt.NDArray[np.int32]
    prefix_hit_tokens: npt.NDArray[np.int64]
    scheduled_tokens: npt.NDArray[np.int64]
    admission_wait_us: npt.NDArray[np.int64]
    admission_wait_end_us: npt.NDArray[np.int64]
    status: npt.NDArray[np.int8]


def new_request_log(num_requests: int) -> RequestLog:
    """An empty log for `num_requests` requests. The kernels reset it before every run."""
    dtypes = dict.fromkeys(RequestLog._fields, np.int64) | {
        "num_generated": np.int32,
        "num_preemptions": np.int32,
        "prefix_hit_tokens_first": np.int32,
        "status": np.int8,
    }
    return RequestLog(**{name: np.zeros(num_requests, dtype) for name, dtype in dtypes.items()})


@inlined
def log_of_run(logs, at, n):
    """The `n` entries from `at` on of the logs of several runs, one behind the other."""
    return RequestLog(
        logs.arrival_us[at : at + n],
        logs.first_scheduled_us[at : at + n],
        logs.first_token_us[at : at + n],
        logs.first_life_token_us[at : at + n],
        logs.last_token_us[at : at + n],
        logs.finish_us[at : at + n],
        logs.num_generated[at : at + n],
        logs.num_preemptions[at : at + n],
        logs.prefix_hit_tokens_first[at : at + n],
        logs.prefix_hit_tokens[at : at + n],
        logs.scheduled_tokens[at : at + n],
        logs.admission_wait_us[at : at + n],
        logs.admission_wait_end_us[at : at + n],
        logs.status[at : at + n],
    )


TOTALS_DTYPE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "steps",  # schedule() calls, empty ones included
            "empty_steps",  # calls that scheduled no token
            "prefill_tokens",
            "decode_tokens",
            "preemptions",
            "completed",
            "end_us",  # clock when the loop stopped
            "stop",  # Stop
            "first_arrival_us",
            "recomputed_tokens",  # scheduled below the request's own highest computed count
            "discarded_tokens",  # output tokens of lives that were restarted
            "salvaged_tokens",  # prefix hits of re-admitted requests
            "swapped_out_blocks",
            "swapped_in_blocks",
            "swap_fallbacks",  # swaps that became recomputes because the host pool was full
            "ineffective_preemptions",
            "kv_block_us",  # held blocks x duration, summed over steps
            "kv_peak_blocks",
            "running_us",  # running requests x duration
            "running_peak",
            "batch_tokens_peak",  # most tokens in one step
            "busy_us",  # duration of non-empty steps
            "waiting_peak",
            "rejected",
            "held",  # arrivals that backpressure kept at the door for a while
            "timed_out",
            "unservable",
            "cap_min",  # running cap: least, last, and cap x non-empty steps for its mean
            "cap_final",
            "cap_steps",
            "livelock_step",  # -1: none
            "livelock_us",
            "livelock_kind",  # 0 none, 1 a repeated state, 2 no progress
            "itl_count",
            "itl_sum_us",
            "itl_max_us",
            "usable_blocks",
            "first_completion_us",  # -1: none
            "first_recomputed",  # 1: recomputation took a fifth of the time from the first arrival to that moment
            "last_completion_us",  # at the start: the first arrival
            "prefill_tokens_then",  # what four totals were at the last completion
            "decode_tokens_then",
            "recomputed_tokens_then",
            "discarded_tokens_then",
            "starved_gap_us",  # longest time between completions of which recomputation took a fifth
            "starved_at_us",  # when it ended
            "drafts",  # speculative tokens verified
            "accepted",  # and accepted
        )
    ]
)
"""Totals of one run: one record of int64 counters, units in the names."""


# --- Inter-token latencies: a histogram whose relative error is bounded ---------------------------------------------

ITL_MANTISSA_BITS = 7
ITL_BINS = (41 - ITL_MANTISSA_BITS) << ITL_MANTISSA_BITS
"""Gaps below 2**8 us have a bin each; above, 128 bins an octave: a bin's middle is within 0.4 % of every gap in it."""


class Gaps(NamedTuple):
    """Inter-token gaps of a run: `histogram`, int64, shape (ITL_BINS,), a count a bin."""

    histogram: npt.NDArray[np.int64]


@helper
def itl_bin(gap_us):
    """Bin of a gap in microseconds: exact below 256, then 128 bins to the octave."""
    shift = 0
    for step in (32, 16, 8, 4, 2, 1):
        if gap_us >> shift >= 1 << (step + ITL_MANTISSA_BITS):
            shift += step
    index = (gap_us >> shift) + (shift << ITL_MANTISSA_BITS)
    return min(index, ITL_BINS - 1)


@helper
def itl_bin_value(index):
    """The gap in microseconds that stands for a bin: its middle."""
    if index < 256:
        return float(index)
    shift = (index >> ITL_MANTISSA_BITS) - 1
    low = ((index & ((1 << ITL_MANTISSA_BITS) - 1)) + (1 << ITL_MANTISSA_BITS)) << shift
    return low + ((1 << shift) - 1) / 2.0


STARVED_SHARE = 0.2
"""Part of a time without a completion that recomputation must take for it to count as starved."""


@helper
def recomputation_us(b1_us, elapsed_us, prefill_tokens, decode_tokens, recomputed_tokens, discarded_tokens):
    """How much of `elapsed_us` went into computing again what had been computed before.

    By the step-time equation: a prefill token computed again costs b1. A discarded output token that is decoded again
    costs what a decode token costs here: all time that is not prefill, fixed costs of the steps included, shared evenly
    among the decode tokens. It is at most all of the time: b1 may stand for a table, which smaller steps beat.
    """
    decoded_again = min(discarded_tokens, recomputed_tokens, decode_tokens)
    again_us = b1_us * (recomputed_tokens - decoded_again)
    if decoded_again > 0:
        again_us += max(elapsed_us - b1_us * prefill_tokens, 0.0) * decoded_again / decode_tokens
    return min(again_us, float(elapsed_us))


@helper
def mostly_recomputed(totals, b1_us, until_us):
    """Whether recomputation took its share (STARVED_SHARE) of the time since the last completion.

    Recomputed tokens are booked when a life of a request ends, by preemption or by finishing.
    """
    elapsed_us = until_us - totals["last_completion_us"]
    again_us = recomputation_us(
        b1_us,
        elapsed_us,
        totals["prefill_tokens"] - totals["prefill_tokens_then"],
        totals["decode_tokens"] - totals["decode_tokens_then"],
        totals["recomputed_tokens"] - totals["recomputed_tokens_then"],
        totals["discarded_tokens"] - totals["discarded_tokens_then"],
    )
    return again_us >= STARVED_SHARE * elapsed_us


@helper
def note_completion(totals, b1_us, at_us):
    """Somebody, counted in `completed` already, completed: remember the longest starved time before such a moment.

    The time before the first completion is kept apart: nobody could have been done in the first part of it.
    """
    gap_us = at_us - totals["last_completion_us"]
    first = totals["completed"] == 1
    if first or gap_us > totals["starved_gap_us"]:
        starved = mostly_recomputed(totals, b1_us, at_us)
        if first:
            totals["first_completion_us"] = at_us
            totals["first_recomputed"] = 1 if starved else 0
        elif starved:
            totals["starved_gap_us"] = gap_us
            totals["starved_at_us"] = at_us
    totals["last_completion_us"] = at_us
    totals["prefill_tokens_then"] = totals["prefill_tokens"]
    totals["decode_tokens_then"] = totals["decode_tokens"]
    totals["recomputed_tokens_then"] = totals["recomputed_tokens"]
    totals["discarded_tokens_then"] = totals["discarded_tokens"]


@helper
def note_admission_wait(log, i, since_us, now_us):
    """Request `i`, waiting since `since_us`, is admitted: remember its longest stay in the queue, and when it ended."""
    if now_us - since_us > log.admission_wait_us[i]:
        log.admission_wait_us[i] = now_us - since_us
        log.admission_wait_end_us[i] = now_us


@helper
def record_gaps(totals, itl, gap_us, count):
    """Count `count` equal gaps between consecutive output tokens of a request."""
    itl.histogram[itl_bin(gap_us)] += count
    totals["itl_count"] += count
    totals["itl_sum_us"] += gap_us * count
    totals["itl_max_us"] = max(totals["itl_max_us"], gap_us)
