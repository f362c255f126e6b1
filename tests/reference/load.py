"""What was offered, and what there is: unloaded times, offered load, fairness, backlog, in exact fractions."""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from statistics import median
from types import SimpleNamespace
from typing import Any, NamedTuple

from tests.reference.latency import table_us

Request = Mapping[str, Any]
Params = Mapping[str, Any]
NOT_OFFERED = ("pending", "unservable")
GONE = ("rejected", "timed_out")
COEFFICIENTS = (
    "b0_us",
    "b1_us_per_prefill_token",
    "b2_us_per_decode_token",
    "b3_us_per_context_token",
    "b4_us_per_prefill_pair",
    "b5_us_per_prefill_step",
    "b6_us_per_window_token",
)


class Load(NamedTuple):
    """What the verdicts need to know of the requests that were offered; times in microseconds."""

    offered: int
    first_us: int
    span_us: int
    longest_us: Fraction
    earliest_us: Fraction | None  # when the first of them could have been done, alone
    due: int  # done, gone, or done by the end if they had been alone
    late: int  # of those, not done
    overdue: int  # of those, even in twice the time
    lost: int  # of those, gone
    grows: bool | None  # whether the backlog does; None: there is nothing to see


class Alone(NamedTuple):
    """A request that is alone in the system, and what it needs."""

    prefill_us: Fraction
    decode_us: Fraction
    us: Fraction  # both, and the frontend
    engine_us: Fraction  # of the engine's time, at full batches
    prompt_blocks: int
    full_blocks: int


class StepTime:
    """Step times as exact fractions of what the parameters say."""

    def __init__(self, params: Params) -> None:
        self.b = [Fraction(params[name]) for name in COEFFICIENTS]
        knots = params["table"]
        self.table = SimpleNamespace(
            table_tokens=[tokens for tokens, _ in knots],
            table_us=[Fraction(us) for _, us in knots],
            table_scale=1,
            max_cudagraph_capture_size=params["max_cudagraph_capture_size"],
        )

    def by_table(self, prefill: int, decode: int) -> Fraction:
        """What the table says."""
        return Fraction(table_us(self.table, prefill, decode))


def alone(request: Request, params: Params, times: StepTime) -> Alone:
    """Chunks of the budget, then a token a step, without the truncation of each step to whole microseconds."""
    b0, b1, b2, b3, b4, b5, b6 = times.b
    prompt, budget, block = request["prompt"], params["token_budget"], params["block_size"]
    decodes = max(min(request["output"], params["max_model_len"] - prompt) - 1, 0)
    chunks = -(-prompt // budget)
    attention_us = b4 * Fraction(prompt * prompt, 2)
    prefill_us = chunks * (b0 + b5) + prompt * b1 + attention_us
    if chunks:
        rest = prompt - (chunks - 1) * budget
        prefill_us += (chunks - 1) * times.by_table(budget, 0) + times.by_table(rest, 0)
    # Decodes read prompt, prompt + 1, ... tokens of context; of a window at most its length
    context_us = b3 * _sum_from(prompt, decodes)
    if params["window_tokens"] > 0:
        within = min(max(params["window_tokens"] - prompt, 0), decodes)
        context_us += b6 * (_sum_from(prompt, within) + (decodes - within) * params["window_tokens"])
    decode_us = decodes * (b0 + b2 + times.by_table(0, 1)) + context_us
    seqs = params["max_num_seqs"]
    prefill_token_us = (b0 + b5 + times.by_table(budget, 0)) / budget + b1
    decode_token_us = (b0 + times.by_table(0, seqs)) / seqs + b2
    return Alone(
        prefill_us,
        decode_us,
        prefill_us + decode_us + params["frontend_us"],
        prompt * prefill_token_us + attention_us + decodes * decode_token_us + context_us,
        -(-prompt // block),
        -(-(prompt + decodes) // block),
    )


def _sum_from(first: int, count: int) -> int:
    """first + (first + 1) + ..., so many."""
    return count * first + count * (count - 1) // 2


def load_columns(
    requests: Sequence[Request], totals: Mapping[str, Any], params: Params
) -> tuple[Load, dict[str, float | int | None]]:
    """The columns about load and fairness, and what verdicts need."""
    times = StepTime(params)
    offered = [(r, alone(r, params, times)) for r in requests if r["status"] not in NOT_OFFERED]
    needs = [need for _, need in offered]
    arrivals = [request["arrival_us"] for request, _ in offered]
    first_us, span_us = min(arrivals, default=0), max(arrivals, default=0) - min(arrivals, default=0)
    total_us = sum((need.us for need in needs), Fraction())
    blocks = sum(need.full_blocks for need in needs)
    usable = totals["usable_blocks"]
    slowdowns = [
        (request["finish_us"] - request["arrival_us"] + params["frontend_us"]) / need.us
        for request, need in offered
        if request["status"] == "finished" and request["arrival_us"] >= params["warmup_us"] and need.us > 0
    ]
    squares = sum(slowdown**2 for slowdown in slowdowns)
    tokens = sum(request["prompt"] + request["output"] for request in requests)
    columns: dict[str, float | int | None] = {
        "slowdown_served_mean": float(sum(slowdowns) / len(slowdowns)) if slowdowns else None,
        "jain_slowdown": float(sum(slowdowns) ** 2 / (len(slowdowns) * squares)) if squares else None,
        "unloaded_e2e_mean_ms": float(total_us / len(offered) / 1000) if offered else None,
        "kv_capacity_req_per_s": None,
        "kv_safe_num_seqs": None,
        "offered_token_load": None,
        "offered_kv_load": None,
        "offered_load": None,
        "backlog_slope_req_per_s": None,
    }
    if blocks and total_us:
        columns["kv_capacity_req_per_s"] = float(usable * len(offered) ** 2 * 10**6 / (blocks * total_us))
    if tokens:
        of_each = math.ceil(Fraction(tokens, len(requests) * params["block_size"]))
        columns["kv_safe_num_seqs"] = max(1, usable // params["replicas"] // of_each)
    if not params["closed_loop"] and len(offered) > 1 and span_us:
        per_us = Fraction(len(offered) - 1, len(offered) * span_us)
        columns["offered_token_load"] = float(sum(need.engine_us for need in needs) * per_us / params["replicas"])
        if usable:
            block_us = sum(
                need.prompt_blocks * need.prefill_us
                + Fraction(need.prompt_blocks + need.full_blocks, 2) * need.decode_us
                for need in needs
            )
            columns["offered_kv_load"] = float(block_us * per_us / usable)
            columns["offered_load"] = max(columns["offered_kv_load"], columns["offered_token_load"])
    grows = None
    if not params["closed_loop"] and len(offered) > 1 and span_us >= 2 * median(need.us for need in needs):
        slope, rate = backlog([request for request, _ in offered])
        if slope is not None:
            columns["backlog_slope_req_per_s"] = float(slope * 10**6)
            last_us = first_us + span_us
            done_later = [
                r for r, _ in offered if r["status"] in ("finished", "timed_out") and r["finish_us"] > last_us
            ]
            never_done = [r for r, _ in offered if r["status"] not in ("finished", *GONE)]
            grown, in_flight = slope * span_us / 2, len(done_later) + len(never_done)
            within = columns["offered_load"] is not None and columns["offered_load"] <= 1
            by_chance = within and grown**2 <= 4 * in_flight  # a steady number wanders by about its square root
            grows = slope > Fraction(params["overload_threshold"]) * rate and not by_chance
    done_us = [request["arrival_us"] + need.us - params["frontend_us"] for request, need in offered]
    due = [
        (request, at_us + need.us)
        for (request, need), at_us in zip(offered, done_us, strict=True)
        if at_us <= totals["end_us"] or request["status"] in ("finished", *GONE)
    ]
    late = [(request, at_us) for request, at_us in due if request["status"] != "finished"]
    return Load(
        offered=len(offered),
        first_us=first_us,
        span_us=span_us,
        longest_us=max((need.us for need in needs), default=Fraction()),
        earliest_us=min(done_us, default=None),
        due=len(due),
        late=len(late),
        overdue=sum(at_us <= totals["end_us"] for _, at_us in late),
        lost=sum(request["status"] in GONE for request, _ in late),
        grows=grows,
    ), columns


def backlog(requests: Sequence[Request]) -> tuple[Fraction | None, Fraction]:
    """Least-squares slope of the backlog at the arrivals of the last half, requests a microsecond, and their rate.

    In the backlog is who has arrived and is neither done nor gone; who was refused never was. None: all at once.
    """
    first, last = min(r["arrival_us"] for r in requests), max(r["arrival_us"] for r in requests)
    times = sorted(r["arrival_us"] for r in requests if 2 * (r["arrival_us"] - first) >= last - first)
    entered = [r for r in requests if r["status"] != "rejected"]
    left = [r["finish_us"] for r in entered if r["status"] in ("finished", "timed_out")]
    inside = [sum(r["arrival_us"] <= t for r in entered) - sum(us <= t for us in left) for t in times]
    mean_us = Fraction(sum(times), len(times))
    square = sum((t - mean_us) ** 2 for t in times)
    if not square:
        return None, Fraction()
    slope = sum((t - mean_us) * count for t, count in zip(times, inside, strict=True)) / square
    return Fraction(slope), Fraction(len(times) - 1, times[-1] - times[0])
