"""The metrics kernel on made-up runs against its twin in plain Python (`tests.reference.metrics`), and at edges."""

import math
import os

import numpy as np
import pytest
from numba import njit

from fastsim import metrics
from fastsim._jit import borrow
from fastsim.engines.outputs import ITL_BINS, NEVER, TOTALS_DTYPE, Status, Stop, itl_bin, new_request_log
from fastsim.metrics.scratch import new_scratch
from fastsim.metrics.selection import gap_quantile, quantile, reaches_median, select, sort_pairs
from fastsim.metrics.summary import summarise
from tests.metrics_rows import differences, expected_row, params_of
from tests.reference.load import StepTime, alone

CASES = int(os.environ.get("FASTSIM_CASES", "1000"))
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


# Helpers have no way in from Python, so kernels call them here


@njit
def run_summarise(log, prompt_tokens, output_tokens, totals, histogram, params, scratch, floats, ints):
    log = borrow(log)
    scratch = borrow(scratch)
    summarise(log, prompt_tokens, output_tokens, totals, histogram, params, scratch, floats, ints)


@njit
def run_itl_bin(gap_us):
    return itl_bin(gap_us)


@njit
def run_select(values, rank):
    select(values, 0, len(values) - 1, rank)


@njit
def run_quantile(values, q):
    padded = np.append(np.full(3, -1.0), values)
    return quantile(padded, 3, 0, len(values), len(values), q)[0]


@njit
def run_reaches_median(values, twice):
    return reaches_median(values, len(values), twice)


@njit
def run_sort(values, companions):
    sort_pairs(values, companions, len(values))


@njit
def run_gap_quantiles(histogram, count, longest_us, qs, out):
    index = before = 0
    for k in range(len(qs)):
        out[k], index, before = gap_quantile(histogram, index, before, count, longest_us, qs[k])


def make_params(**given):
    params = np.zeros(1, metrics.PARAMS_DTYPE)
    params["replicas"] = 1
    defaults = {
        "block_size": 16,
        "max_model_len": 8192,
        "max_num_seqs": 256,
        "token_budget": 2048,
        "starvation_window_us": 30_000_000,
        "starvation_overtakes": 20,
        "slo_ttft_us": math.inf,
        "slo_tpot_us": math.inf,
        "slo_e2e_us": math.inf,
        "b0_us": 5752.71,
        "b1_us_per_prefill_token": 17.25,
        "b2_us_per_decode_token": 6.0,
        "thrash_threshold": 0.1,
        "overload_threshold": 0.05,
    }
    for name, value in (defaults | given).items():
        params[0][name] = value
    return params[0]


def make_run(seed, num_requests, kind="mixed"):
    """A made-up but consistent run: log, lengths, totals, histogram."""
    rng = np.random.default_rng(seed)
    log = new_request_log(num_requests)
    prompt = rng.integers(1, 3000, num_requests).astype(np.int32)
    output = rng.integers(1, 200, num_requests).astype(np.int32)
    totals = np.zeros(1, TOTALS_DTYPE)
    histogram = np.zeros(ITL_BINS, np.int64)
    gaps = []
    statuses = {
        "mixed": [*Status, *[Status.FINISHED] * 6],
        "finished": [Status.FINISHED],
        "censored": [Status.WAITING, Status.REJECTED, Status.TIMED_OUT, Status.HELD],
    }[kind]
    for name in ("first_scheduled_us", "first_token_us", "first_life_token_us", "last_token_us", "finish_us"):
        getattr(log, name)[:] = NEVER
    log.arrival_us[:] = np.sort(rng.integers(0, 5_000_000 + 200_000 * num_requests, num_requests))
    for i in range(num_requests):
        status = statuses[rng.integers(len(statuses))]
        log.status[i] = status
        arrival = int(log.arrival_us[i])
        if status in (Status.PENDING, Status.UNSERVABLE, Status.REJECTED, Status.HELD):
            continue
        log.num_preemptions[i] = rng.integers(0, 3)
        log.admission_wait_us[i] = rng.integers(0, 2_000_000)
        scheduled = kind != "censored" and (status in (Status.RUNNING, Status.FINISHED) or rng.random() < 0.5)
        if scheduled:
            log.first_scheduled_us[i] = arrival + rng.integers(0, 3_000_000) * rng.integers(0, 2)
            if status == Status.FINISHED or rng.random() < 0.7:
                log.first_token_us[i] = log.first_scheduled_us[i] + rng.integers(1, 100_000)
                log.first_life_token_us[i] = log.first_token_us[i] - (rng.integers(0, 50) if seed % 2 else 0)
                log.num_generated[i] = output[i] if status == Status.FINISHED else max(1, output[i] // 2)
                own = rng.integers(5_000, 900_000, log.num_generated[i] - 1)
                gaps.extend(int(gap) for gap in own)
                log.last_token_us[i] = log.first_token_us[i] + own.sum()
        if status == Status.FINISHED:
            log.finish_us[i] = log.last_token_us[i]
        if status == Status.TIMED_OUT:
            log.finish_us[i] = max(arrival, log.last_token_us[i]) + 7
    for gap in gaps:
        histogram[run_itl_bin(gap)] += 1
    total = totals[0]
    total["end_us"] = max(int(log.finish_us.max(initial=0)), int(log.arrival_us.max(initial=0))) + 1000
    total["first_arrival_us"] = log.arrival_us.min(initial=2**60) if num_requests else 0
    total["itl_count"] = len(gaps)
    total["itl_sum_us"] = sum(gaps)
    total["itl_max_us"] = max(gaps, default=0)
    total["usable_blocks"] = 500
    total["kv_block_us"] = 77 * total["end_us"]
    total["steps"], total["empty_steps"], total["busy_us"], total["running_us"] = 1000, 10, 12345, 678910
    total["prefill_tokens"], total["decode_tokens"], total["recomputed_tokens"] = 5000, 3000, 900
    total["unservable"] = int((log.status == Status.UNSERVABLE).sum())
    total["stop"] = Stop.HORIZON
    return log, prompt, output, totals, histogram, gaps


def summarised(run, params):
    log, prompt, output, totals, histogram, _ = run
    floats, ints = metrics.new_rows(1)
    scratch = new_scratch(len(prompt))
    run_summarise(log, prompt, output, totals[0], histogram, params, scratch, floats[0], ints[0])
    row = metrics.named_values(floats.view(np.float64), ints.view(np.int64))
    assert list(row) == [column.name for column in metrics.COLUMNS]
    return row


# --- Every column beside its definition in plain Python ---------------------------------------------------------------


def shaken(run, rng):
    """Arrivals in any order and at once, totals of all sorts; the parameters that fit, often exactly at an edge."""
    log, prompt, _, totals = run[:4]
    total, count = totals[0], len(prompt)
    late = (rng.random(count) < 0.3) & (log.first_life_token_us >= 0)
    log.first_life_token_us[late] += int(rng.integers(1, 9_000_000))
    log.prefix_hit_tokens_first[:] = np.where(log.first_scheduled_us >= 0, prompt // int(rng.integers(1, 9)), NEVER)
    log.prefix_hit_tokens[:] = rng.integers(0, 5000, count)
    log.admission_wait_end_us[:] = log.arrival_us + log.admission_wait_us + rng.integers(0, 3_000_000, count)
    match rng.integers(4):
        case 0:
            rng.shuffle(log.arrival_us)
        case 1:
            log.arrival_us[:] = log.arrival_us // 4_000_000 * 4_000_000  # many at one moment
        case 2 if rng.random() < 0.3:
            log.arrival_us[:] = 7
    if count and rng.random() < 0.2:
        log.finish_us[(log.status == Status.FINISHED) & (rng.random(count) < 0.5)] = log.arrival_us.max()
    end_us = int(total["end_us"]) // int(rng.choice([1, 1, 2]))
    for name in TOTALS_DTYPE.names:
        if name not in ("end_us", "stop", "unservable", "itl_count", "itl_sum_us", "itl_max_us"):
            total[name] = rng.integers(0, 10_000)
    total["end_us"], total["first_arrival_us"] = end_us, log.arrival_us.min(initial=2**60) if count else NEVER
    total["busy_us"] = rng.choice([0, 1000, end_us // 2, end_us])
    total["kv_block_us"], total["running_us"] = rng.integers(0, 2**52, 2)
    total["usable_blocks"] = rng.choice([0, 1, 500, 20_000])
    total["stop"] = rng.integers(len(Stop))
    total["livelock_kind"] = rng.choice([0, 0, 0, 1, 2])
    done = np.sort(log.finish_us[log.status == Status.FINISHED])
    total["first_recomputed"] = rng.integers(2)
    total["first_completion_us"], total["last_completion_us"] = (done[0], done[-1]) if len(done) else (NEVER, 0)
    total["starved_gap_us"] = rng.choice([0, 0, 4_000_000])
    for name in ("prefill_tokens", "decode_tokens", "recomputed_tokens", "discarded_tokens"):
        total[f"{name}_then"] = rng.integers(0, total[name] + 1)
    finished = np.flatnonzero(log.status == Status.FINISHED)
    params = {
        "warmup_us": int(rng.choice([0, 0, 2_500_000, *log.arrival_us[:3]])),
        "frontend_us": int(rng.choice([0, 250])),
        "block_size": int(rng.choice([1, 16, 64])),
        "max_model_len": int(rng.choice([8192, 2**31 - 1, *(prompt[:2] + 1), *(prompt[:2] + 2)])),
        "token_budget": int(rng.choice([1, 100, 2048, 2**31 - 1])),
        "starvation_window_us": int(rng.choice([1, 3_000_000, *log.admission_wait_us[:3]])),
        "starvation_overtakes": int(rng.integers(1, 5)),
        "window_tokens": int(rng.choice([0, 0, 70, 1500])),
        "closed_loop": int(rng.random() < 0.2),
        "b0_us": float(rng.choice([0.0, 1.0, 100.0, 5752.71])),
        "b1_us_per_prefill_token": float(rng.choice([0.0, 0.5, 17.25])),
        "b3_us_per_context_token": float(rng.choice([0.0, 0.01])),
        "b4_us_per_prefill_pair": float(rng.choice([0.0, 0.003])),
        "b5_us_per_prefill_step": float(rng.choice([0.0, 40.0])),
        "b6_us_per_window_token": float(rng.choice([0.0, 0.02])),
        "swap_us_per_block": float(rng.choice([0.0, 3.3])),
        "thrash_threshold": float(rng.choice([0.0, 0.1, 1e9])),
        "overload_threshold": float(rng.choice([0.05, 1e9, -1e9])),
    }
    if rng.random() < 0.3:  # little to complain of
        total["livelock_kind"] = total["starved_gap_us"] = 0
        calm = {"thrash_threshold": 1e9, "overload_threshold": 1e9, "starvation_window_us": 2**60, "b0_us": 0.0}
        params |= calm | {"b1_us_per_prefill_token": 0.0, "closed_loop": int(rng.random() < 0.3)}
    if len(finished):
        i = rng.choice(finished)
        own = {
            "slo_ttft_us": log.first_token_us[i] - log.arrival_us[i] + params["frontend_us"],
            "slo_e2e_us": log.finish_us[i] - log.arrival_us[i] + params["frontend_us"],
            "slo_tpot_us": (log.finish_us[i] - log.first_token_us[i]) / max(log.num_generated[i] - 1, 1),
        }
        params |= {name: float(bound) for name, bound in own.items() if rng.random() < 0.3}
    made = make_params(**params)
    if rng.random() < 0.3:
        knots = np.sort(rng.choice(4000, int(rng.integers(1, 6)), replace=False))
        made["table_knots"], made["max_cudagraph_capture_size"] = len(knots), rng.choice([0, 8, 512])
        made["table_tokens"][: len(knots)] = knots
        times_us = np.cumsum(rng.choice([0.0, 1.5, 900.25], len(knots)))
        slopes = np.diff(times_us) / np.diff(knots)
        made["table_us"][: len(knots)] = times_us
        made["table_us_per_token"][: len(knots)] = [*slopes, *slopes[-1:]] if len(knots) > 1 else [0.0]
    return made


def put_at_an_edge(run, params, rng):
    """Let one of the moments that decide fall exactly on another: the end, the last arrival, the end of a wait."""
    log, prompt, output, totals = run[:4]
    i = int(rng.integers(len(prompt)))
    match rng.integers(7):
        case 0 | 1:  # done, had it been alone, at the very end; or twice that time is over
            params["b1_us_per_prefill_token"] = params["b3_us_per_context_token"] = params["table_knots"] = 0
            params["b4_us_per_prefill_pair"] = params["b6_us_per_window_token"] = 0
            params["b0_us"] = 100
            request = {"prompt": int(prompt[i]), "output": int(output[i])}
            plain = params_of(params)
            alone_us = alone(request, plain, StepTime(plain)).us
            done_us = log.arrival_us[i] + int(alone_us) - params["frontend_us"]
            totals[0]["end_us"] = done_us + int(rng.integers(2)) * int(alone_us)
        case 2:  # the arrivals last twice as long as a request alone
            prompt[:], output[:] = 1, 2
            params["token_budget"], params["table_knots"], params["warmup_us"] = 1, 0, 0
            for name in ("b1_us_per_prefill_token", "b3_us_per_context_token", "b4_us_per_prefill_pair"):
                params[name] = 0
            params["b0_us"], params["b5_us_per_prefill_step"], params["b6_us_per_window_token"] = 100, 0, 0
            params["b2_us_per_decode_token"] = 0
            span_us = 2 * (200 + int(params["frontend_us"]))
            log.arrival_us[:] = 1000 + rng.integers(0, span_us + 1, len(prompt))
            log.arrival_us[[0, -1]] = 1000, 1000 + span_us
        case 3:  # clients give up as the last request comes
            log.finish_us[log.status == Status.TIMED_OUT] = log.arrival_us.max()
        case 4:  # somebody waited exactly the window
            waits = (log.first_life_token_us[i] - log.arrival_us[i], totals[0]["end_us"] - log.last_token_us[i])
            params["starvation_window_us"] = max(int(rng.choice(waits)), 1)
            params["starvation_overtakes"] = params["b0_us"] = 1
        case 5 if log.first_life_token_us[i] >= 0:  # others were done exactly as it ended
            params["starvation_window_us"] = params["starvation_overtakes"] = 1
            log.finish_us[log.status == Status.FINISHED] = log.first_life_token_us[i]
        case 6:  # as long without a completion at the end as before
            totals[0]["starved_gap_us"] = max(int(totals[0]["end_us"]) - int(totals[0]["last_completion_us"]), 0)


def test_every_column_equals_its_definition():
    words = set()
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        count = int(rng.choice([0, 1, 2, 3, 7, 40, 90]))
        run = make_run(seed, count, ["mixed", "mixed", "finished", "censored"][seed % 4])
        params = shaken(run, rng)
        if count and rng.random() < 0.4:
            put_at_an_edge(run, params, rng)
        row = summarised(run, params)
        want = expected_row(*run[:5], params)
        assert differences(row, want, end_s=row["simulated_s"]) == [], seed
        words |= {(name, value) for name, value in row.items() if not isinstance(value, (int, float))}
    names = {column.name: column for column in metrics.COLUMNS if column.labels}
    possible = {(name, label) for name, column in names.items() for label in column.labels}
    never_made = {("status", "error"), ("status", "refused")}  # no run leaves them
    assert CASES < 1000 or possible - words == never_made


def test_one_censored_in_a_hundred_makes_p99_null_but_not_p95():
    run = make_run(1, 100, "finished")
    run[0].status[40:42] = Status.RUNNING
    row = summarised(run, make_params())
    assert row["e2e_p99_ms"] is None
    assert row["e2e_p95_ms"] is not None
    assert row["e2e_served_p99_ms"] is not None
    assert row["e2e_censored_share"] == 0.02


@pytest.mark.parametrize("seed", range(4))
def test_gap_percentiles_are_within_the_stated_bound(seed):
    run = make_run(seed, 60)
    row = summarised(run, make_params())
    for name, q in QUANTILES.items():
        exact = float(np.quantile(run[5], q)) / 1000.0
        assert row[f"itl_{name}_ms"] == pytest.approx(exact, rel=0.004)
    assert row["itl_mean_ms"] == pytest.approx(np.mean(run[5]) / 1000.0, rel=1e-12)
    assert row["itl_max_ms"] == max(run[5]) / 1000.0


def test_gaps_below_256_us_are_exact():
    rng = np.random.default_rng(0)
    gaps = rng.integers(0, 256, 1001)
    histogram = np.bincount(gaps, minlength=ITL_BINS).astype(np.int64)
    qs = np.array(list(QUANTILES.values()))
    found = np.zeros(4)
    run_gap_quantiles(histogram, len(gaps), int(gaps.max()), qs, found)
    assert found == pytest.approx(np.quantile(gaps, qs), abs=1e-9)


def test_empty_run_has_only_nulls_and_zeros():
    run = make_run(0, 0)
    run[3][0]["recomputed_tokens"] = 0
    row = summarised(run, make_params())
    assert row["completed"] == 0
    assert row["ttft_p50_ms"] is None
    assert (row["verdict"], row["not_judged"]) == ("not_judged", "nothing_offered")
    assert row["kv_safe_num_seqs"] is None
    assert row["offered_load"] is None


def test_steady_traffic_is_not_overloaded_and_short_or_closed_is_unknown():
    log = new_request_log(400)
    log.arrival_us[:] = np.arange(400) * 100_000
    log.status[:] = Status.FINISHED
    log.first_scheduled_us[:] = log.arrival_us
    log.first_token_us[:] = log.arrival_us + 20_000
    log.first_life_token_us[:] = log.first_token_us
    log.num_generated[:] = 10
    log.finish_us[:] = log.arrival_us + 80_000 + np.random.default_rng(5).integers(0, 90_000, 400)
    lengths = np.full(400, 10, np.int32)
    run = [log, lengths, lengths, np.zeros(1, TOTALS_DTYPE), np.zeros(ITL_BINS, np.int64), []]
    run[3][0]["end_us"] = 40_100_000
    run[3][0]["usable_blocks"] = 10
    row = summarised(run, make_params())
    assert row["overloaded"] is False
    assert row["verdict"] == "ok"
    closed = summarised(run, make_params(closed_loop=1))
    assert (closed["overloaded"], closed["not_judged"], closed["verdict"]) == (None, "closed_loop", "ok")
    short = summarised(run, make_params(b0_us=5e6))
    assert (short["overloaded"], short["not_judged"], short["verdict"]) == (None, "arrivals_too_short", "drained")


def test_verdict_is_the_first_that_holds():
    run = make_run(2, 50, "finished")
    total = run[3][0]
    total["stop"] = Stop.DRAINED
    total["recomputed_tokens"] = 0
    total["busy_us"] = total["end_us"]
    log = run[0]
    calm = {"overload_threshold": 1e9, "b0_us": 10.0}
    assert summarised(run, make_params(**calm))["verdict"] == "ok"
    assert summarised(run, make_params(**calm, slo_e2e_us=1.0))["verdict"] == "misses_slo"
    calm["overload_threshold"] = -1e9
    assert summarised(run, make_params(**calm, slo_e2e_us=1.0))["verdict"] == "overloaded"
    total["busy_us"] = 100_000
    total["recomputed_tokens"] = 801  # 801 x 17.25 us are 13.8 % of the busy time
    assert summarised(run, make_params(**calm))["verdict"] == "thrash"
    total["starved_gap_us"], total["starved_at_us"] = 40_000_000, 50_000_000
    assert summarised(run, make_params(**calm))["verdict"] == "starved"
    total["livelock_kind"], total["livelock_step"], total["livelock_us"] = 2, 17, 3_000_000
    row = summarised(run, make_params(**calm))
    assert (row["verdict"], row["livelock"], row["livelock_step"], row["livelock_s"]) == ("livelock", True, 17, 3.0)
    log.status[3] = Status.UNSERVABLE
    assert summarised(run, make_params(**calm))["verdict"] == "unservable"


def test_a_livelock_has_a_time_only_where_there_is_one():
    run = make_run(2, 50, "finished")
    run[3][0]["livelock_us"], run[3][0]["livelock_step"] = 3_000_000, 17
    row = summarised(run, make_params())
    assert (row["livelock"], row["livelock_s"], row["livelock_step"]) == (False, None, None)


# --- Edges, each of which a wrong sign or a wrong population would get wrong ------------------------------------------


def one_request(arrival_us=1_000_000, first_us=2_000_000, finish_us=4_000_000, tokens=11):
    """A run of one finished request, whose TTFT is 1 s, TPOT .2 s and E2E 3 s."""
    run = make_run(0, 1, "finished")
    log, prompt, output, totals = run[:4]
    log.arrival_us[0], log.first_scheduled_us[0] = arrival_us, arrival_us
    log.first_token_us[0] = log.first_life_token_us[0] = first_us
    log.last_token_us[0] = log.finish_us[0] = finish_us
    log.num_generated[0] = output[0] = tokens
    prompt[0] = 100
    totals[0]["first_arrival_us"], totals[0]["end_us"] = arrival_us, finish_us
    return run


@pytest.mark.parametrize(("slo", "bound_us"), [("ttft", 1_000_000), ("tpot", 200_000), ("e2e", 3_000_000)])
def test_a_request_exactly_at_a_bound_keeps_it(slo, bound_us):
    run = one_request()
    at = summarised(run, make_params(**{f"slo_{slo}_us": float(bound_us)}))
    assert (at["goodput_share"], at["misses_slo"]) == (1.0, False)
    above = summarised(run, make_params(**{f"slo_{slo}_us": bound_us - 1.0}))
    assert (above["goodput_share"], above["misses_slo"]) == (0.0, True)
    assert summarised(run, make_params())["misses_slo"] is None


@pytest.mark.parametrize(("gave_up", "misses"), [(2, False), (3, True)])
def test_one_in_a_hundred_may_miss_where_p99_is_null(gave_up, misses):
    run = make_run(3, 200, "finished")
    run[0].status[:gave_up] = Status.TIMED_OUT
    row = summarised(run, make_params(slo_e2e_us=1e15))
    assert (row["e2e_p99_ms"], row["misses_slo"]) == (None, misses)


def test_one_in_ten_unfinished_under_full_load_is_no_overload():
    run = make_run(5, 10, "finished")
    run[0].status[0] = Status.RUNNING  # alone it would not be done either
    run[0].finish_us[0] = NEVER
    row = summarised(run, make_params(overload_threshold=1e9, b0_us=4e6, starvation_window_us=2**60))
    assert row["offered_load"] > 1
    assert (row["running"], row["late_share"], row["overloaded"]) == (1, 0.0, None)
    run[0].status[1] = Status.RUNNING
    run[0].finish_us[1] = NEVER
    assert summarised(run, make_params(overload_threshold=1e9, b0_us=4e6))["overloaded"] is True


@pytest.mark.parametrize(("after_us", "overloaded"), [(0, None), (1, True)])
def test_who_gives_up_as_the_last_request_comes_waits_no_more(after_us, overloaded):
    run = make_run(5, 20, "finished")
    log, last = run[0], int(run[0].arrival_us[-1])
    log.first_scheduled_us[:] = log.arrival_us
    log.first_scheduled_us[:2] = last + 1  # a tenth; the next one makes more
    log.status[2], log.first_scheduled_us[2], log.finish_us[2] = Status.TIMED_OUT, NEVER, last + after_us
    row = summarised(run, make_params(overload_threshold=1e9, b0_us=4e6, starvation_window_us=2**60))
    assert row["offered_load"] > 1
    assert row["overloaded"] is overloaded


def test_busy_share_begins_with_the_first_arrival():
    run = one_request()
    run[3][0]["busy_us"] = 1_500_000
    assert summarised(run, make_params())["busy_share"] == 0.5


def test_a_request_cut_to_one_token_has_no_tpot_to_miss():
    run = make_run(4, 4, "finished")
    log, prompt = run[:2]
    log.status[:2] = Status.RUNNING
    prompt[0] = 8191  # room for one token
    row = summarised(run, make_params())
    assert row["tpot_censored_share"] == 1 / 3


def test_starved_from_the_window_on_and_a_fifth_of_it():
    run = one_request(finish_us=41_000_000)
    total = run[3][0]
    total["first_completion_us"] = total["last_completion_us"] = 41_000_000
    total["first_recomputed"], total["completed"] = 1, 1
    alone = summarised(run, make_params(b0_us=0.0))["unloaded_e2e_mean_ms"] * 1000
    gap_us = 40_000_000 - alone  # what lies before anybody could be done does not count
    for window_us, starved in ((math.floor(gap_us), True), (math.ceil(gap_us) + 1, False)):
        row = summarised(run, make_params(b0_us=0.0, starvation_window_us=window_us))
        assert (row["starved"], row["starved_gap_s"]) == (starved, pytest.approx(gap_us / 1e6))
    total["last_completion_us"], total["end_us"], total["first_recomputed"] = 41_000_000, 81_000_000, 0
    for recomputed, starved in ((80_000, True), (79_999, False)):  # at 100 us each: 8 s of 40 s, and not quite
        total["recomputed_tokens"] = recomputed
        row = summarised(run, make_params(b0_us=0.0, b1_us_per_prefill_token=100.0))
        assert row["starved"] is starved


def test_max_steps_is_a_status():
    run = make_run(2, 5)
    assert summarised(run, make_params())["status"] == "ok"
    run[3][0]["stop"] = Stop.MAX_STEPS
    row = summarised(run, make_params())
    assert (row["status"], row["stop"]) == ("max_steps", "max_steps")


@pytest.mark.parametrize("pattern", ["random", "sorted", "reversed", "equal", "two", "organ"])
def test_selection_puts_every_rank_right(pattern):
    n = 200
    values = {
        "random": np.random.default_rng(0).random(n),
        "sorted": np.arange(n, dtype=float),
        "reversed": np.arange(n, dtype=float)[::-1].copy(),
        "equal": np.zeros(n),
        "two": np.arange(n) % 2.0,
        "organ": np.minimum(np.arange(n), n - np.arange(n)).astype(float),
    }[pattern]
    ordered = np.sort(values)
    for rank in range(n):
        work = values.copy()
        run_select(work, rank)
        assert work[rank] == ordered[rank]
        assert np.array_equal(np.sort(work), ordered)
    work, places = values.copy(), np.arange(n, dtype=float)[::-1].copy()
    run_sort(work, places)
    assert np.array_equal(work, ordered)
    order = np.lexsort((np.arange(n)[::-1], values))
    assert np.array_equal(places, np.arange(n)[::-1][order])
    for q in (0.0, 0.3, 0.5, 0.9, 1.0):
        assert run_quantile(values, q) == np.quantile(values, q)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 200])
def test_median_reaches_what_numpy_says(count):
    rng = np.random.default_rng(count)
    for _ in range(50):
        values = rng.integers(0, 8, count) / 3.0
        median = np.quantile(values, 0.5)
        for twice in (*2.0 * values, 2.0 * median, np.nextafter(2.0 * median, 0.0), -1.0, 99.0):
            assert run_reaches_median(values.copy(), twice) == (2.0 * median <= twice)


def test_every_column_is_described_and_named_once():
    names = [column.name for column in metrics.COLUMNS]
    assert len(set(names)) == len(names)
    assert sorted(names) == sorted(metrics.FLOAT_COLUMNS + metrics.INT_COLUMNS)
    for column in metrics.COLUMNS:
        if column.unit in ("ms", "s") and column.kind == "float":
            assert column.name.endswith(f"_{column.unit}")
        assert (column.kind == "code") == bool(column.labels)
