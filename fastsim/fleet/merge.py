"""From what replicas left to what the fleet left: its totals, as if they were those of one engine."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.engines.outputs import NEVER, TOTALS_DTYPE
from fastsim.metrics.columns import FLOAT_ROW_DTYPE

Records = npt.NDArray[np.void]

_OF_THE_MOST = (
    "end_us",
    "stop",  # the worst
    "kv_peak_blocks",
    "running_peak",
    "batch_tokens_peak",
    "waiting_peak",
    "itl_max_us",
    "last_completion_us",
)
_OF_THE_LEAST = ("cap_min", "cap_final")
_OF_THE_FIRST = ("first_arrival_us", "first_completion_us")
_LIVELOCK = ("livelock_step", "livelock_us", "livelock_kind")
_STARVED = ("starved_gap_us", "starved_at_us")
_THEN = ("prefill_tokens", "decode_tokens", "recomputed_tokens", "discarded_tokens")


def merged_totals(totals: Records, floats: Records) -> Records:
    """Totals of fleets (TOTALS_DTYPE, shape (count,)) from those of their replicas, shape (count, replicas).

    Counters add up, peaks are those of any replica. Times without a completion are a replica's own and stand in its
    row: the longest of them becomes the fleet's, and nothing is left to be found in the merged counters.

    Parameters
    ----------
    totals
        TOTALS_DTYPE.
    floats
        FLOAT_ROW_DTYPE, the replicas' own rows.
    """
    assert floats.dtype == FLOAT_ROW_DTYPE
    out = np.zeros(len(totals), TOTALS_DTYPE)
    for name in TOTALS_DTYPE.names or ():
        each = totals[name]
        if name in _OF_THE_MOST:
            out[name] = each.max(axis=1)
        elif name in _OF_THE_LEAST:
            out[name] = each.min(axis=1)
        elif name in _OF_THE_FIRST:
            out[name] = _first(each)
        elif name not in (*_LIVELOCK, *_STARVED):
            out[name] = each.sum(axis=1)
    _merge_livelocks(totals, out)
    _merge_starved(floats, out)
    for name in _THEN:
        out[f"{name}_then"] = out[name]
    return out


def _first(times_us: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The earliest time in each row that is one; NEVER: none is."""
    latest = np.iinfo(np.int64).max
    first: npt.NDArray[np.int64] = np.where(times_us == NEVER, latest, times_us).min(axis=1)
    return np.where(first == latest, NEVER, first)


def _merge_livelocks(totals: Records, out: Records) -> None:
    """The livelock that was seen first."""
    locked = totals["livelock_kind"] > 0
    when = np.where(locked, totals["livelock_us"], np.iinfo(np.int64).max).argmin(axis=1)
    for name in _LIVELOCK:
        out[name] = np.take_along_axis(totals[name], when[:, None], axis=1)[:, 0]


def _merge_starved(floats: Records, out: Records) -> None:
    """The longest time without a completion, which no later one is compared with."""
    gaps_s = np.nan_to_num(floats["starved_gap_s"])
    longest = gaps_s.argmax(axis=1)[:, None]
    found = gaps_s.max(axis=1) > 0
    out["starved_gap_us"] = np.rint(np.take_along_axis(gaps_s, longest, axis=1)[:, 0] * 1e6)
    ends_s = np.take_along_axis(np.nan_to_num(floats["starved_at_s"]), longest, axis=1)[:, 0]
    out["starved_at_us"] = np.where(found, np.rint(ends_s * 1e6), NEVER)
    out["first_recomputed"] = 0


def fill_fleet_columns(totals: Records, merged: Records, requests: npt.NDArray[np.int64], floats: Records) -> None:
    """The columns about how evenly replicas were loaded.

    Parameters
    ----------
    totals
        TOTALS_DTYPE of the replicas, shape (count, replicas).
    merged
        TOTALS_DTYPE of the fleets, shape (count,).
    requests
        Requests that each was sent, of the same shape.
    floats
        Rows of the fleets, shape (count,); modified in place.
    """
    floats["imbalance_requests"] = _imbalance(requests)
    floats["imbalance_tokens"] = _imbalance(totals["prefill_tokens"] + totals["decode_tokens"])
    floats["imbalance_busy"] = _imbalance(totals["busy_us"])
    floats["hottest_replica_share"] = _ratio(
        totals["busy_us"].max(axis=1), merged["end_us"] - merged["first_arrival_us"]
    )


def _imbalance(values: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The most of each row over its mean; NaN where all are 0."""
    return _ratio(values.max(axis=1), values.mean(axis=1))


def _ratio(numerator: npt.NDArray[Any], denominator: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The quotients; NaN where there is nothing to divide by."""
    nulls = np.full(len(numerator), np.nan)
    quotients: npt.NDArray[np.float64] = np.divide(numerator, denominator, out=nulls, where=denominator > 0)
    return quotients
