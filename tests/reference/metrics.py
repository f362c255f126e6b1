"""Verdict columns of a row, in plain Python: from per-request times and totals, each by its definition.

A request is a dict of the columns of `RequestLog` with `prompt` and `output`; statuses are words.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

Request = Mapping[str, Any]
NOT_OFFERED = ("pending", "unservable")
GONE = ("rejected", "timed_out")


def unloaded_us(request: Request, params: Mapping[str, Any]) -> float:
    """E2E of a request that is alone, frontend left out: chunks of the budget, then one token a step."""
    prompt, budget = request["prompt"], params["token_budget"]
    decodes = max(min(request["output"], params["max_model_len"] - prompt) - 1, 0)
    prefill = math.ceil(prompt / budget) * params["b0_us"] + prompt * params["b1_us_per_prefill_token"]
    context = params["b3_us_per_context_token"] * sum(range(prompt, prompt + decodes))
    return float(prefill + decodes * (params["b0_us"] + params["b2_us_per_decode_token"]) + context)


def late_share(requests: Sequence[Request], params: Mapping[str, Any], end_us: int) -> float | None:
    """Not done, of those done, gone, or that alone would be done by the end."""
    due = [
        request
        for request in requests
        if request["status"] not in NOT_OFFERED
        and (request["status"] in ("finished", *GONE) or request["arrival_us"] + unloaded_us(request, params) <= end_us)
    ]
    return sum(request["status"] != "finished" for request in due) / len(due) if due else None


def overtaken(requests: Sequence[Request], params: Mapping[str, Any], end_us: int) -> tuple[int, int]:
    """How many got no token for the window while enough came after them and were done; the longest such time."""
    offered = [request for request in requests if request["status"] not in NOT_OFFERED]
    longest = max((unloaded_us(request, params) + params["frontend_us"] for request in offered), default=0.0)
    window_us = max(params["starvation_window_us"], 2 * longest)
    order = sorted((r for r in offered if r["status"] != "rejected"), key=lambda r: r["arrival_us"])  # stable: by index
    passed: list[int] = []
    for place, request in enumerate(order):
        waits = []
        for start, end in _without_token(request, end_us):
            behind = [
                other
                for other in order[place + 1 :]
                if other["status"] == "finished" and start <= other["arrival_us"] < end and other["finish_us"] <= end
            ]
            if end - start >= window_us and len(behind) >= params["starvation_overtakes"]:
                waits.append(end - start)
        if waits:
            passed.append(max(waits))
    return len(passed), max(passed, default=0)


def _without_token(request: Request, end_us: int) -> list[tuple[int, int]]:
    """Times without a token: before the first, after the latest, and the longest stay in the queue."""
    stops = request["finish_us"] if request["status"] == "timed_out" else end_us
    first = request["first_life_token_us"]
    times = [(request["arrival_us"], stops if first < 0 else first)]
    if request["status"] != "finished" and request["last_token_us"] >= 0:
        times.append((request["last_token_us"], stops))
    stay_end = request["admission_wait_end_us"]
    times.append((stay_end - request["admission_wait_us"], stay_end))
    return times


def label(row: Mapping[str, Any], stop: str) -> str:
    """The verdict: the first that holds."""
    for name, holds in (
        ("unservable", row["unservable"] > 0),
        ("livelock", row["livelock"]),
        ("out_of_memory", stop == "out_of_memory"),
        ("starved", row["starved"]),
        ("thrash", row["thrash"]),
        ("overloaded", row["overloaded"]),
        ("misses_slo", row["misses_slo"]),
    ):
        if holds:
            return name
    if row["not_judged"] in (None, "closed_loop"):
        return "ok"
    return (
        "drained" if row["not_judged"] in ("all_at_once", "arrivals_too_short") and stop == "drained" else "not_judged"
    )
