"""What a run is called: the verdict columns, each by its definition, and the label, the first of them that holds."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

from tests.reference.latency import table_us
from tests.reference.load import GONE, NOT_OFFERED, Load

Request = Mapping[str, Any]
Params = Mapping[str, Any]
Totals = Mapping[str, Any]
Row = Mapping[str, Any]
TENTH = Fraction(1, 10)


def verdict_columns(
    requests: Sequence[Request], totals: Totals, params: Params, load: Load, row: Row
) -> dict[str, Any]:
    """All of them; `row` has the other columns."""
    found = starvation(requests, totals, params, load) | time_lost(totals, params)
    livelock = totals["livelock_kind"] > 0
    found |= {
        "livelock": livelock,
        "livelock_kind": ("none", "repeated_state", "no_progress")[totals["livelock_kind"]],
        "livelock_step": totals["livelock_step"] if livelock else None,
        "livelock_s": totals["livelock_us"] / 1e6 if livelock else None,
        "late_share": load.late / load.due if load.due else None,
        "misses_slo": misses_slo(requests, totals, params, row),
    }
    found["overloaded"], found["not_judged"] = overload(requests, params, load, row)
    found["verdict"] = label(row | found, totals["stop"])
    found["drained"] = found["verdict"] == "drained"
    return found


def label(row: Row, stop: str) -> str:
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


# --- Overload -------------------------------------------------------------------------------------------------------


def overload(requests: Sequence[Request], params: Params, load: Load, row: Row) -> tuple[bool | None, str | None]:
    """Whether more comes than is served, or None and why that cannot be told."""
    closed = bool(params["closed_loop"])
    no_rate = not closed and load.grows is None
    full = row["offered_load"] is not None and row["offered_load"] > 1
    late = load.late > TENTH * load.due
    unfinished = row["running"] + row["waiting"] + row["held"]
    queued = waiting_at(requests, load.first_us + load.span_us)
    if (
        load.lost > TENTH * load.due
        or load.overdue > (TENTH if no_rate else Fraction(1, 2)) * load.due
        or load.grows
        or (full and (late or max(unfinished, queued) > TENTH * load.offered))
    ):
        return True, None
    reasons = (
        ("nothing_offered", load.offered == 0),
        ("ended_too_soon", load.due == 0 or row["completed"] == 0),
        ("cut_in_flight", late),
        ("closed_loop", closed),
        ("all_at_once", no_rate and load.span_us == 0),
        ("arrivals_too_short", no_rate),
    )
    why = next((reason for reason, holds in reasons if holds), None)
    return (None if why else False), why


def waiting_at(requests: Sequence[Request], at_us: int) -> int:
    """How many had come by then and were neither admitted nor gone; who was refused never waited."""
    return sum(
        request["arrival_us"] <= at_us
        and not 0 <= request["first_scheduled_us"] <= at_us
        and not (request["status"] == "timed_out" and request["finish_us"] <= at_us)
        for request in requests
        if request["status"] not in (*NOT_OFFERED, "rejected")
    )


# --- Time lost ------------------------------------------------------------------------------------------------------


def again_us(b1_us: Fraction, elapsed_us: Fraction, since: Totals) -> Fraction:
    """Time that went into computing again: b1 a prefill token, its share of all that is not prefill an output token.

    At most all of the time: b1 may stand for a table, which smaller steps beat.
    """
    outputs = min(since["discarded_tokens"], since["recomputed_tokens"], since["decode_tokens"])
    lost = b1_us * (since["recomputed_tokens"] - outputs)
    if outputs > 0:
        lost += max(elapsed_us - b1_us * since["prefill_tokens"], 0) * outputs / since["decode_tokens"]
    return min(lost, elapsed_us)


def time_lost(totals: Totals, params: Params) -> dict[str, Any]:
    """Shares of the busy time that went into computing again and into moving blocks; together: thrash."""
    knots, budget = params["table"], params["token_budget"]
    table = SimpleNamespace(
        table_tokens=[tokens for tokens, _ in knots], table_us=[Fraction(us) for _, us in knots], table_scale=1
    )
    b1_us = Fraction(params["b1_us_per_prefill_token"]) + Fraction(table_us(table, budget, 0)) / budget
    busy_us = Fraction(totals["busy_us"])
    moved_us = Fraction(params["swap_us_per_block"]) * (totals["swapped_out_blocks"] + totals["swapped_in_blocks"])
    again = again_us(b1_us, busy_us, totals) / busy_us if busy_us else None
    most_us = max(busy_us, moved_us)  # a step that only moves blocks is not busy
    moved = moved_us / most_us if most_us else None
    return {
        "recomputed_time_share": None if again is None else float(again),
        "swapped_time_share": None if moved is None else float(moved),
        "thrash": again is not None and moved is not None and again + moved > Fraction(params["thrash_threshold"]),
    }


# --- Starvation -----------------------------------------------------------------------------------------------------


def starvation(requests: Sequence[Request], totals: Totals, params: Params, load: Load) -> dict[str, Any]:
    """Nobody is served for long while the engine computes again, or somebody is passed by for long."""
    window_us = max(params["starvation_window_us"], 2 * load.longest_us)
    gap_us, at_us = longest_gap(totals, params, load, any(r["status"] == "finished" for r in requests))
    passed, wait_us = overtaken(requests, params, totals["end_us"], window_us)
    return {
        "starved_gap_s": float(gap_us / 10**6) if gap_us > 0 else None,
        "starved_at_s": at_us / 1e6 if gap_us > 0 else None,
        "overtaken": passed,
        "overtaken_wait_s": wait_us / 1e6 if passed else None,
        "starved": 0 < gap_us >= window_us or passed > 0,
    }


def longest_gap(totals: Totals, params: Params, load: Load, anybody_done: bool) -> tuple[Fraction, int]:
    """Longest time without a completion of which recomputation took a fifth, and when it ended.

    Between completions, up to the first from when anybody could have been done, and from the last to the end.
    """
    b1_us, end_us = Fraction(params["b1_us_per_prefill_token"]), totals["end_us"]
    gaps = [(Fraction(totals["starved_gap_us"]), totals["starved_at_us"])]
    if anybody_done and totals["first_recomputed"] == 1:
        assert load.earliest_us is not None
        gaps.append((totals["first_completion_us"] - load.earliest_us, totals["first_completion_us"]))
    counters = ("prefill_tokens", "decode_tokens", "recomputed_tokens", "discarded_tokens")
    since = {name: totals[name] - totals[f"{name}_then"] for name in counters}
    elapsed_us = Fraction(end_us - totals["last_completion_us"])
    since_us = totals["last_completion_us"] if anybody_done else load.earliest_us
    if since_us is not None and again_us(b1_us, elapsed_us, since) >= elapsed_us / 5:
        gaps.append((end_us - Fraction(since_us), end_us))
    return max(gaps, key=lambda gap: gap[0])


def overtaken(requests: Sequence[Request], params: Params, end_us: int, window_us: float | Fraction) -> tuple[int, int]:
    """How many got no token for the window while enough came after them and were done; the longest such time."""
    order = sorted(  # stable: of those that came together by index
        (r for r in requests if r["status"] not in (*NOT_OFFERED, "rejected")), key=lambda r: r["arrival_us"]
    )
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


# --- SLO ------------------------------------------------------------------------------------------------------------


def misses_slo(requests: Sequence[Request], totals: Totals, params: Params, row: Row) -> bool | None:
    """Whether the p99 of a latency with a bound is above it; where p99 is null, by who is sure to be late."""
    found = []
    for name in ("ttft", "tpot", "e2e"):
        bound_us = params[f"slo_{name}_us"]
        if bound_us == float("inf"):
            continue
        value_ms = row[f"{name}_p99_ms"]
        sure = surely_misses(requests, totals, params, name, bound_us)
        found.append(sure if value_ms is None else value_ms > bound_us / 1000.0)
    judged = [missed for missed in found if missed is not None]
    return any(judged) if judged else None


def surely_misses(
    requests: Sequence[Request], totals: Totals, params: Params, name: str, bound_us: float
) -> bool | None:
    """Whether more than one in a hundred of those of whom it is known are over the bound: done, gone, or beyond it."""
    known = []
    for request in requests:
        if request["status"] in NOT_OFFERED or request["arrival_us"] < params["warmup_us"]:
            continue
        done, gone = request["status"] == "finished", request["status"] in GONE
        started = request["first_token_us"] >= 0
        until_us = request["finish_us"] if done else totals["end_us"]
        in_all_us = until_us - request["arrival_us"] + params["frontend_us"]
        settled, value_us = done, float(in_all_us)
        if name == "ttft" and started:
            settled, value_us = True, float(request["first_token_us"] - request["arrival_us"] + params["frontend_us"])
        if name == "tpot":
            tokens = (
                request["num_generated"]
                if done
                else min(request["output"], params["max_model_len"] - request["prompt"])
            )
            if tokens < 2:
                continue
            value_us = (until_us - request["first_token_us"]) / (tokens - 1) if started else 0.0
        over = gone or value_us > bound_us
        if settled or over:
            known.append(over)
    return 100 * sum(known) > len(known) if known else None
