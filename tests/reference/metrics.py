"""A result row in plain Python: every column of the table by its definition, from per-request times and totals.

A request is a dict of the columns of `RequestLog` with `prompt` and `output`; statuses are words. Totals are counters
by the names of `TOTALS_DTYPE`, `stop` is a word. Parameters are named as in PARAMS_DTYPE; `table` is a list of knots.
Gaps are how often each occurred, by the value that stands for it (`gap_counts`).

Sums and products are exact here (integers and fractions); a column is one rounding of them, or the roundings that
its definition names. `ROUNDED` are those columns for which a kernel adds or multiplies doubles on the way.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tests.reference.load import GONE, NOT_OFFERED, load_columns
from tests.reference.verdicts import verdict_columns

Request = Mapping[str, Any]
Params = Mapping[str, Any]
Totals = Mapping[str, Any]
Row = dict[str, Any]
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
ROUNDED = (
    "tpot_served_mean_ms",
    "jain_slowdown",
    "slowdown_served_mean",
    "unloaded_e2e_mean_ms",
    "kv_capacity_req_per_s",
    "offered_kv_load",
    "offered_token_load",
    "offered_load",
    "backlog_slope_req_per_s",
    "recomputed_time_share",
    "swapped_time_share",
    "starved_gap_s",
)
"""Columns that need a tolerance: a mean of quotients, or made of step times, which are no whole numbers."""
LONGEST_GAP_US = 2**40 - 1
"""Longer gaps count as the last bin."""


def row(requests: Sequence[Request], totals: Totals, gaps: Mapping[float, int], params: Params) -> Row:
    """All columns but those that only one engine has: None for null, bools, words."""
    load, columns = load_columns(requests, totals, params)
    columns |= counts(requests, totals) | engine_columns(totals, params) | latencies(requests, params)
    columns |= gap_columns(totals, gaps) | goodput(requests, totals, params)
    return columns | verdict_columns(requests, totals, params, load, columns)


def ratio(numerator: float, denominator: float) -> float | None:
    """The quotient of two doubles; null where there is nothing to divide by."""
    return float(numerator) / float(denominator) if denominator > 0 else None


def over(value: float | None, divisor: float) -> float | None:
    """A value in a larger unit."""
    return None if value is None else value / divisor


# --- Counts ---------------------------------------------------------------------------------------------------------


def counts(requests: Sequence[Request], totals: Totals) -> Row:
    """Where everybody was at the end, and what was delivered to them."""
    statuses = Counter(request["status"] for request in requests)
    started = [request for request in requests if request["first_token_us"] >= 0]
    prompt = sum(request["prompt"] for request in started)
    output = sum(request["num_generated"] for request in requests)
    stays = [request["admission_wait_us"] for request in requests]
    for request in requests:  # who never was admitted still waits, or waited until it went
        if request["first_scheduled_us"] < 0 and request["status"] == "waiting":
            stays.append(totals["end_us"] - request["arrival_us"])
        if request["first_scheduled_us"] < 0 and request["status"] == "timed_out":
            stays.append(request["finish_us"] - request["arrival_us"])
    seconds = (totals["end_us"] - totals["first_arrival_us"]) / 1e6
    return {
        "num_requests": len(requests),
        "offered": sum(request["status"] not in NOT_OFFERED for request in requests),
        "completed": statuses["finished"],
        **{
            name: statuses[name]
            for name in ("running", "waiting", "held", "pending", "rejected", "timed_out", "unservable")
        },
        "preempted_requests": sum(request["num_preemptions"] > 0 for request in requests),
        "max_preemptions": max((request["num_preemptions"] for request in requests), default=0),
        "prompt_tokens": prompt,
        "output_tokens": output,
        "prefix_hit_tokens": sum(request["prefix_hit_tokens"] for request in requests),
        "prefix_hit_share": ratio(sum(max(r["prefix_hit_tokens_first"], 0) for r in started), prompt),
        "longest_admission_wait_ms": max(stays, default=0) / 1000.0,
        "request_throughput_req_per_s": ratio(statuses["finished"], seconds),
        "output_throughput_tok_per_s": ratio(output, seconds),
        "total_throughput_tok_per_s": ratio(prompt + output, seconds),
    }


COPIED = (
    "preemptions",
    "ineffective_preemptions",
    "prefill_tokens",
    "decode_tokens",
    "recomputed_tokens",
    "discarded_tokens",
    "salvaged_tokens",
    "swapped_out_blocks",
    "swapped_in_blocks",
    "swap_fallbacks",
    "usable_blocks",
    "kv_peak_blocks",
    "running_peak",
    "waiting_peak",
    "batch_tokens_peak",
    "cap_min",
    "cap_final",
    "steps",
    "empty_steps",
    "stop",
)


OF_FLEETS = ("imbalance_requests", "imbalance_tokens", "imbalance_busy", "hottest_replica_share")
"""Null for one replica; of several `fleet_columns` says."""


def fleet_columns(sent: Sequence[int], replicas: Sequence[Totals], fleet: Totals) -> Row:
    """How evenly replicas were loaded: requests sent to each, their totals, and the fleet's."""
    tokens = [each["prefill_tokens"] + each["decode_tokens"] for each in replicas]
    busy = [each["busy_us"] for each in replicas]
    columns = {
        f"imbalance_{what}": ratio(max(values), sum(values) / len(values))
        for what, values in (("requests", sent), ("tokens", tokens), ("busy", busy))
    }
    return columns | {"hottest_replica_share": ratio(max(busy), fleet["end_us"] - fleet["first_arrival_us"])}


def engine_columns(totals: Totals, params: Params) -> Row:
    """What the engine counted, and averages over time: from the first arrival to the end, or over non-empty steps."""
    scheduled = totals["prefill_tokens"] + totals["decode_tokens"]
    non_empty = totals["steps"] - totals["empty_steps"]
    duration_us = totals["end_us"] - totals["first_arrival_us"]
    replicas = params["replicas"]
    held_blocks = ratio(totals["kv_block_us"], duration_us)
    return {
        **{name: totals[name] for name in COPIED},
        "status": "max_steps" if totals["stop"] == "max_steps" else "ok",
        "held_arrivals": totals["held"],
        "scheduled_tokens": scheduled,
        "swapped_tokens": totals["swapped_out_blocks"] * params["block_size"],
        "simulated_s": totals["end_us"] / 1e6,
        "kv_use_mean": None if held_blocks is None else ratio(held_blocks, totals["usable_blocks"]),
        "kv_use_peak": ratio(totals["kv_peak_blocks"], totals["usable_blocks"] // replicas),
        "running_mean": ratio(totals["running_us"], replicas * duration_us),
        "batch_tokens_mean": ratio(scheduled, non_empty),
        "busy_share": ratio(totals["busy_us"], replicas * duration_us),
        "cap_mean": ratio(totals["cap_steps"], non_empty),
        "recomputed_share": ratio(totals["recomputed_tokens"], max(scheduled, 1)),
        "replicas": replicas,
        "replica_seconds": replicas * duration_us / 1e6,
        **dict.fromkeys(OF_FLEETS),
    }


# --- Latencies ------------------------------------------------------------------------------------------------------


def population(requests: Iterable[Request], params: Params) -> list[Request]:
    """Offered and servable, after the warm-up: whom latencies and goodput are about."""
    return [
        request
        for request in requests
        if request["status"] not in NOT_OFFERED and request["arrival_us"] >= params["warmup_us"]
    ]


def is_long(request: Request, params: Params) -> bool:
    """Whether a request has, or would have, two output tokens: with fewer there is no time between them."""
    if request["status"] == "finished":
        return bool(request["num_generated"] >= 2)
    return bool(min(request["output"], params["max_model_len"] - request["prompt"]) >= 2)


def latency_values(requests: Sequence[Request], params: Params) -> dict[str, tuple[list[float], int]]:
    """Of each latency the values of who got there, in microseconds, and how many did not."""
    people = population(requests, params)
    frontend_us = params["frontend_us"]
    stayed = [request for request in people if request["status"] not in GONE]
    finished = [request for request in people if request["status"] == "finished"]
    ttft = [r["first_token_us"] - r["arrival_us"] + frontend_us for r in stayed if r["first_token_us"] >= 0]
    e2e = [r["finish_us"] - r["arrival_us"] + frontend_us for r in finished]
    queue = [r["first_scheduled_us"] - r["arrival_us"] for r in stayed if r["first_scheduled_us"] >= 0]
    long = [request for request in people if is_long(request, params)]
    tpot = [
        (r["finish_us"] - r["first_token_us"]) / (r["num_generated"] - 1) for r in long if r["status"] == "finished"
    ]
    return {
        "ttft": (ttft, len(people) - len(ttft)),
        "tpot": (tpot, len(long) - len(tpot)),
        "e2e": (e2e, len(people) - len(e2e)),
        "queue_time": (queue, len(people) - len(queue)),
    }


def quantile_ms(served: Sequence[float], censored: int, q: float) -> float | None:
    """NumPy's quantile of all, who never got there infinitely late; null where that touches one of them."""
    total = len(served) + censored
    position = (total - 1) * q
    last = math.ceil(position)
    if total == 0 or last >= len(served):
        return None
    return float(np.quantile(np.array([*served, *[max(served)] * censored], float), q)) / 1000.0


def latencies(requests: Sequence[Request], params: Params) -> Row:
    """Quantiles of all and of who got there, the mean of these, the share of the others."""
    columns: Row = {}
    for name, (served, censored) in latency_values(requests, params).items():
        for label, q in QUANTILES.items():
            columns[f"{name}_{label}_ms"] = quantile_ms(served, censored, q)
            columns[f"{name}_served_{label}_ms"] = quantile_ms(served, 0, q)
        columns[f"{name}_served_mean_ms"] = over(ratio(math.fsum(served), len(served)), 1000.0)
        columns[f"{name}_censored_share"] = ratio(censored, len(served) + censored)
    lives = [
        request["first_life_token_us"] - request["arrival_us"] + params["frontend_us"]
        for request in population(requests, params)
        if request["status"] not in GONE and request["first_life_token_us"] >= 0
    ]
    columns["ttft_first_life_served_mean_ms"] = over(ratio(sum(lives), len(lives)), 1000.0)
    return columns


def gap_value(gap_us: int) -> float:
    """The value that stands for a gap: itself below 256 us, then the middle of one of 128 equal bins an octave."""
    gap_us = min(gap_us, LONGEST_GAP_US)
    width = 1 << max(gap_us.bit_length() - 8, 0)
    return gap_us // width * width + (width - 1) / 2


def gap_counts(gaps_us: Iterable[int]) -> Counter[float]:
    """How many gaps each value stands for."""
    return Counter(gap_value(gap) for gap in gaps_us)


def gap_columns(totals: Totals, gaps: Mapping[float, int]) -> Row:
    """Token gaps: exact mean and maximum; quantiles between the two values around them, never above the longest."""
    count = totals["itl_count"]
    columns: Row = {
        "itl_mean_ms": over(ratio(totals["itl_sum_us"], count), 1000.0),
        "itl_max_ms": totals["itl_max_us"] / 1000.0 if count else None,
    }
    ends = np.cumsum([gaps[value] for value in sorted(gaps)])  # rank behind the last gap of each value
    for label, q in QUANTILES.items():
        columns[f"itl_{label}_ms"] = None
        if count:
            position = (count - 1) * q
            low = math.floor(position)
            ranks = (low, min(low + 1, count - 1))
            below, above = (sorted(gaps)[int(np.searchsorted(ends, rank, side="right"))] for rank in ranks)
            columns[f"itl_{label}_ms"] = min(below + (above - below) * (position - low), totals["itl_max_us"]) / 1000.0
    return columns


def goodput(requests: Sequence[Request], totals: Totals, params: Params) -> Row:
    """Completed within every SLO; whoever was not served is a miss."""
    people = population(requests, params)
    good = 0
    for request in people:
        if request["status"] != "finished":
            continue
        ttft_us = request["first_token_us"] - request["arrival_us"] + params["frontend_us"]
        decode_us = request["finish_us"] - request["first_token_us"]
        later_tokens = request["num_generated"] - 1
        good += (
            ttft_us <= params["slo_ttft_us"]
            and ttft_us + decode_us <= params["slo_e2e_us"]
            and (later_tokens <= 0 or decode_us / later_tokens <= params["slo_tpot_us"])
        )
    since_us = max(params["warmup_us"], totals["first_arrival_us"])
    admitted = sum(request["status"] != "rejected" for request in people)
    return {
        "goodput_req_per_s": ratio(good, (totals["end_us"] - since_us) / 1e6),
        "goodput_share": ratio(good, len(people)),
        "goodput_admitted_share": ratio(good, admitted),
    }


def drafting(totals: Totals, output_tokens: int, k: int) -> Row:
    """The columns of speculation with `k` drafts a decode; 0: all null."""
    if k == 0:
        names = ("draft_tokens", "accepted_tokens", "draft_acceptance_rate", "mean_acceptance_length")
        return dict.fromkeys((*names, "output_tokens_per_step"))
    drafts, accepted = totals["drafts"], totals["accepted"]
    return {
        "draft_tokens": float(drafts),
        "accepted_tokens": float(accepted),
        "draft_acceptance_rate": ratio(accepted, drafts),
        "mean_acceptance_length": ratio(accepted + drafts / k, drafts / k),
        "output_tokens_per_step": ratio(output_tokens, totals["steps"] - totals["empty_steps"]),
    }
