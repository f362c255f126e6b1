# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""What a run is called: the verdict columns, and the label, which is the first of them that holds.

A label is a claim that a user would sign. What cannot be judged is null, says why in the column `not_judged`, and
never makes a row `ok`. The words are explained in this folder's README.
"""

import numpy as np

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import NEVER, Status, Stop, mostly_recomputed, recomputation_us
from fastsim.engines.step_table import table_us
from fastsim.metrics.columns import LATE_SHARE, NOT_JUDGED, NULL, QUANTILES, VERDICTS
from fastsim.metrics.counts import ratio
from fastsim.metrics.load import is_offered
from fastsim.metrics.selection import sort_pairs

_NAN = np.nan
_WAITING = int(Status.WAITING)
_RUNNING = int(Status.RUNNING)
_FINISHED = int(Status.FINISHED)
_REJECTED = int(Status.REJECTED)
_TIMED_OUT = int(Status.TIMED_OUT)
_STOP_DRAINED = int(Stop.DRAINED)

(
    _V_UNSERVABLE,
    _V_LIVELOCK,
    _V_OUT_OF_MEMORY,
    _V_STARVED,
    _V_THRASH,
    _V_OVERLOADED,
    _V_MISSES_SLO,
    _V_NOT_JUDGED,
    _V_DRAINED,
    _V_OK,
) = range(len(VERDICTS))
_NOTHING_OFFERED, _ENDED_TOO_SOON, _CUT_IN_FLIGHT, _CLOSED_LOOP, _ALL_AT_ONCE, _TOO_SHORT = range(len(NOT_JUDGED))

MOST = 0.5
"""When more than this is overdue, no steady state explains it: each in flight stands for less than one done."""

SLO_QUANTILE = QUANTILES.index(0.99)
_MISSED_SHARE = 0.01
_TTFT, _TPOT, _E2E = range(3)


@helper
def judge(log, prompt_tokens, output_tokens, totals, params, load, scratch, floats, ints):
    """Fill the verdict columns and the label; `load` is what `copy_load` returns, the rest as `summarise`."""
    _starved(log, totals, params, load, scratch, floats, ints)
    _thrash(totals, params, floats, ints)
    _livelock(totals, floats, ints)
    floats["late_share"] = ratio(load.late, load.due)
    _overloaded(log, totals, params, load, floats, ints)
    misses_slo(log, prompt_tokens, output_tokens, totals, params, floats, ints)
    ints["verdict"] = label(totals, ints)


@helper
def label(totals, ints):
    """The first that holds."""
    ints["drained"] = 0
    if ints["unservable"] > 0:
        return _V_UNSERVABLE
    if ints["livelock"] == 1:
        return _V_LIVELOCK
    if totals["stop"] == Stop.OUT_OF_MEMORY:
        return _V_OUT_OF_MEMORY
    if ints["starved"] == 1:
        return _V_STARVED
    if ints["thrash"] == 1:
        return _V_THRASH
    if ints["overloaded"] == 1:
        return _V_OVERLOADED
    if ints["misses_slo"] == 1:
        return _V_MISSES_SLO
    reason = ints["not_judged"]
    if reason in (NULL, _CLOSED_LOOP):
        return _V_OK
    if (reason in (_ALL_AT_ONCE, _TOO_SHORT)) and totals["stop"] == _STOP_DRAINED:
        ints["drained"] = 1
        return _V_DRAINED
    return _V_NOT_JUDGED


# --- Overload -------------------------------------------------------------------------------------------------------


@helper
def _overloaded(log, totals, params, load, floats, ints):
    """Whether more is offered than served; null, with the reason, where that cannot be told.

    `ints["overloaded"]` comes in as what the backlog says: whether it grows, null where there is nothing to see.
    """
    closed = params["closed_loop"] == 1
    short = not closed and ints["overloaded"] == NULL
    full = floats["offered_load"] > 1.0
    late = load.late > LATE_SHARE * load.due
    holds = (
        load.lost > LATE_SHARE * load.due
        or load.overdue > (LATE_SHARE if short else MOST) * load.due
        or ints["overloaded"] == 1
        or (late and full)
    )
    if not holds and full:
        unfinished = ints["running"] + ints["waiting"] + ints["held"]
        most = LATE_SHARE * load.offered
        holds = unfinished > most or _waiting_at(log, load.first_us + load.span_us) > most
    ints["not_judged"] = NULL
    if holds:
        ints["overloaded"] = 1
        return
    if load.offered == 0:
        ints["not_judged"] = _NOTHING_OFFERED
    elif load.due == 0 or ints["completed"] == 0:
        ints["not_judged"] = _ENDED_TOO_SOON
    elif late:
        # In a steady state as many are in flight as come in the time of one; in a closed loop as there are clients
        ints["not_judged"] = _CUT_IN_FLIGHT
    elif closed:
        ints["not_judged"] = _CLOSED_LOOP
    elif short:
        ints["not_judged"] = _ALL_AT_ONCE if load.span_us == 0 else _TOO_SHORT
    ints["overloaded"] = 0 if ints["not_judged"] == NULL else NULL


@helper
def _waiting_at(log, at_us):
    """Requests that had arrived by `at_us`, had not been admitted by then, and had not been sent or gone away."""
    waiting = 0
    for i in range(log.status.shape[0]):
        status = log.status[i]
        if not is_offered(status) or status == _REJECTED or log.arrival_us[i] > at_us:
            continue
        gone = status == _TIMED_OUT and log.finish_us[i] <= at_us
        scheduled_us = log.first_scheduled_us[i]
        waiting += not gone and (scheduled_us == NEVER or scheduled_us > at_us)
    return waiting


# --- Time lost ------------------------------------------------------------------------------------------------------


@helper
def _thrash(totals, params, floats, ints):
    busy_us = totals["busy_us"]
    prefill_us = params["b1_us_per_prefill_token"]
    if params["table_knots"] > 0:
        prefill_us += table_us(params, params["token_budget"]) / params["token_budget"]
    again_us = recomputation_us(
        prefill_us,
        busy_us,
        totals["prefill_tokens"],
        totals["decode_tokens"],
        totals["recomputed_tokens"],
        totals["discarded_tokens"],
    )
    moved_blocks = totals["swapped_out_blocks"] + totals["swapped_in_blocks"]
    floats["recomputed_time_share"] = ratio(again_us, busy_us)
    moved_us = params["swap_us_per_block"] * moved_blocks
    floats["swapped_time_share"] = ratio(moved_us, max(busy_us, moved_us))  # a step that only moves blocks is not busy
    lost_share = floats["recomputed_time_share"] + floats["swapped_time_share"]
    ints["thrash"] = lost_share > params["thrash_threshold"]


@helper
def _livelock(totals, floats, ints):
    found = totals["livelock_kind"] > 0
    ints["livelock"] = found
    ints["livelock_kind"] = totals["livelock_kind"]
    ints["livelock_step"] = totals["livelock_step"] if found else NULL
    floats["livelock_s"] = totals["livelock_us"] / 1e6 if found else _NAN


# --- Starvation -----------------------------------------------------------------------------------------------------


@helper
def _starved(log, totals, params, load, scratch, floats, ints):
    """Nobody is served for long while the system recomputes, or somebody is passed by for long."""
    window_us = max(float(params["starvation_window_us"]), 2.0 * load.longest_us)
    gap_us, at_us = _starved_gap(totals, params, load, ints)
    floats["starved_gap_s"] = gap_us / 1e6 if gap_us > 0 else _NAN
    floats["starved_at_s"] = at_us / 1e6 if gap_us > 0 else _NAN
    overtaken = wait_us = 0
    if load.longest_wait_us >= window_us:
        overtaken, wait_us = _overtaken(log, totals, params, window_us, scratch)
    ints["overtaken"] = overtaken
    floats["overtaken_wait_s"] = wait_us / 1e6 if overtaken > 0 else _NAN
    ints["starved"] = (gap_us > 0 and gap_us >= window_us) or overtaken > 0


@helper
def _starved_gap(totals, params, load, ints):
    """Longest time without a completion of which recomputation took a fifth, and its end.

    The times before the first completion and after the last are looked at here. The first counts from the first moment
    at which anybody could have been done.
    """
    gap_us = float(totals["starved_gap_us"])
    at_us = totals["starved_at_us"]
    if ints["completed"] > 0 and totals["first_recomputed"] == 1:
        first_us = totals["first_completion_us"] - load.earliest_us
        if first_us > gap_us:
            gap_us = first_us
            at_us = totals["first_completion_us"]
    since_us = float(totals["last_completion_us"]) if ints["completed"] > 0 else load.earliest_us
    last_us = totals["end_us"] - since_us
    if last_us > gap_us and mostly_recomputed(totals, params["b1_us_per_prefill_token"], totals["end_us"]):
        gap_us = last_us
        at_us = totals["end_us"]
    return gap_us, at_us


@inlined
def longest_wait_us(log, i, end_us):
    """The longest time in which request `i` got no token: of the three that `_wait` knows."""
    longest_us = 0
    for which in range(3):
        start, end = _wait(log, which, i, end_us)
        longest_us = max(longest_us, end - start)
    return longest_us


@inlined
def _wait(log, which, i, end_us):
    """A time in which request `i` got no token: for its first, since its latest, or its longest stay in the queue."""
    status = log.status[i]
    if which == 0:
        end = log.first_life_token_us[i]
        if end == NEVER:
            end = log.finish_us[i] if status == _TIMED_OUT else end_us
        return log.arrival_us[i], end
    if which == 1:
        if status == _FINISHED or log.last_token_us[i] == NEVER:
            return 0, 0
        return log.last_token_us[i], log.finish_us[i] if status == _TIMED_OUT else end_us
    return log.admission_wait_end_us[i] - log.admission_wait_us[i], log.admission_wait_end_us[i]


@helper
def _overtaken(log, totals, params, window_us, scratch):
    """How many requests got no token for `window_us` while so many that came after them came and were done.

    Requests are looked at from the last arrival to the first, so that the soonest completion among those behind is at
    hand: under first come, first served it is nearly never soon enough, and nothing has to be counted.

    Returns
    -------
    requests, wait_us
        The second is the longest of those times.
    """
    end_us = totals["end_us"]
    count = 0
    ordered = True
    times_us = scratch.times_us
    index = scratch.requests
    for i in range(log.status.shape[0]):
        status = log.status[i]
        if not is_offered(status) or status == _REJECTED:
            continue
        times_us[count] = log.arrival_us[i]
        index[count] = i
        ordered = ordered and (count == 0 or times_us[count] >= times_us[count - 1])
        count += 1
    if not ordered:
        sort_pairs(times_us, index, count)
    found = 0
    longest_us = 0
    soonest_us = end_us + 1
    for place in range(count - 1, -1, -1):
        i = index[place]
        passed = False
        for which in range(3):
            start, end = _wait(log, which, i, end_us)
            if end - start < window_us or soonest_us > end:
                continue
            if _came_and_went(log, params, times_us, index, place + 1, count, start, end):
                passed = True
                longest_us = max(longest_us, end - start)
        found += passed
        if log.status[i] == _FINISHED:
            soonest_us = min(soonest_us, log.finish_us[i])
    return found, longest_us


@helper
def _came_and_went(log, params, arrivals_us, index, place, count, start_us, end_us):
    """Whether enough requests from `place` on, in order of arrival, arrived at `start_us` or later and were done."""
    done = 0
    while place < count and arrivals_us[place] < end_us:
        if arrivals_us[place] >= start_us:
            i = index[place]
            done += log.status[i] == _FINISHED and log.finish_us[i] <= end_us
            if done >= params["starvation_overtakes"]:
                return True
        place += 1
    return False


# --- SLO ------------------------------------------------------------------------------------------------------------


@helper
def misses_slo(log, prompt_tokens, output_tokens, totals, params, floats, ints):
    """Whether the p99 of a latency that has a bound is above it; null without a bound, or where nothing can be told.

    Where p99 is null, the requests that are sure to be late are counted: a run that is cut leaves requests in flight
    whose time is not up.
    """
    ints["misses_slo"] = NULL
    for which in range(3):
        bound_us = params["slo_ttft_us"]
        if which == _TPOT:
            bound_us = params["slo_tpot_us"]
        elif which == _E2E:
            bound_us = params["slo_e2e_us"]
        if bound_us == np.inf:
            continue
        value_ms = floats["latencies"][which, SLO_QUANTILE]
        if value_ms == value_ms:
            missed = 1 if value_ms > bound_us / 1000.0 else 0
        else:
            missed = _surely_missed(log, prompt_tokens, output_tokens, totals, params, which, bound_us)
        ints["misses_slo"] = max(ints["misses_slo"], missed)


@helper
def _surely_missed(log, prompt_tokens, output_tokens, totals, params, which, bound_us):
    """Whether more than one in a hundred of those of whom it is known are over the bound; NULL: it is of nobody."""
    known = over = 0
    for i in range(log.status.shape[0]):
        status = log.status[i]
        arrival_us = log.arrival_us[i]
        if not is_offered(status) or arrival_us < params["warmup_us"]:
            continue
        tokens = min(output_tokens[i], params["max_model_len"] - prompt_tokens[i])
        if status == _FINISHED:
            tokens = log.num_generated[i]
        if which == _TPOT and tokens < 2:
            continue
        first_us = log.first_token_us[i]
        done_us = log.finish_us[i] if status == _FINISHED else totals["end_us"]
        is_known = status == _FINISHED
        value_us = float(done_us - arrival_us + params["frontend_us"])  # of the unfinished: at least
        if which == _TTFT and first_us != NEVER:
            value_us = float(first_us - arrival_us + params["frontend_us"])
            is_known = True
        elif which == _TPOT:
            value_us = 0.0 if first_us == NEVER else (done_us - first_us) / (tokens - 1)
        is_over = value_us > bound_us or status in (_REJECTED, _TIMED_OUT)
        over += is_over
        known += is_known or is_over
    if known == 0:
        return NULL
    return 1 if over > _MISSED_SHARE * known else 0
