"""The metrics kernel against an independent implementation in numpy and plain Python."""

import math

import numpy as np
import pytest
from numba import njit

from fastsim import metrics
from fastsim._jit import borrow
from fastsim.engines.outputs import ITL_BINS, NEVER, TOTALS_DTYPE, Status, Stop, itl_bin, new_request_log
from fastsim.metrics.selection import gap_quantile, quantile, select, sort_pairs
from fastsim.metrics.summary import scratch_size, summarise
from tests.reference import metrics as reference

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


# Helpers have no way in from Python, so kernels call them here


@njit
def run_summarise(log, prompt_tokens, output_tokens, totals, histogram, params, scratch, floats, ints):
    log = borrow(log)
    summarise(log, prompt_tokens, output_tokens, totals, histogram, params, scratch, floats, ints)


@njit
def run_itl_bin(gap_us):
    return itl_bin(gap_us)


@njit
def run_select(values, rank):
    select(values, 0, len(values) - 1, rank)


@njit
def run_quantile(values, q):
    return quantile(values, 0, len(values), len(values), q)[0]


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
    scratch = np.full(scratch_size(len(prompt)), np.nan)
    run_summarise(log, prompt, output, totals[0], histogram, params, scratch, floats[0], ints[0])
    row = metrics.named_values(floats.view(np.float64), ints.view(np.int64))
    assert list(row) == [column.name for column in metrics.COLUMNS]
    return row


def expected_quantile(served, censored, q):
    """By definition: sort, infinities last, interpolate at (n - 1) q; anything that touches infinity is null."""
    values = sorted(served) + [math.inf] * censored
    if not values:
        return None
    position = (len(values) - 1) * q
    low = math.floor(position)
    needed = values[low : low + 2] if position > low else values[low : low + 1]
    if math.inf in needed:
        return None
    return float(np.quantile(np.array([v for v in values if v < math.inf] + [1e18] * censored), q)) / 1000.0


def population(run, params):
    log = run[0]
    since = params["warmup_us"]
    return [
        i
        for i in range(len(log.status))
        if log.status[i] not in (Status.PENDING, Status.UNSERVABLE) and log.arrival_us[i] >= since
    ]


def expected_latencies(run, params):
    """{prefix: (served values in microseconds, number censored)}."""
    log, prompt, output = run[:3]
    people = population(run, params)
    gone = (Status.REJECTED, Status.TIMED_OUT)
    front = int(params["frontend_us"])
    room = int(params["max_model_len"])
    several = [i for i in people if min(output[i], room - prompt[i]) >= 2]
    done = Status.FINISHED

    def pair(people, served, value):
        return [value(i) for i in people if served(i)], sum(not served(i) for i in people)

    return {
        "ttft": pair(
            people,
            lambda i: log.status[i] not in gone and log.first_token_us[i] >= 0,
            lambda i: int(log.first_token_us[i] - log.arrival_us[i]) + front,
        ),
        "tpot": pair(
            several,
            lambda i: log.status[i] == done,
            lambda i: int(log.finish_us[i] - log.first_token_us[i]) / (int(log.num_generated[i]) - 1),
        ),
        "e2e": pair(
            people,
            lambda i: log.status[i] == done,
            lambda i: int(log.finish_us[i] - log.arrival_us[i]) + front,
        ),
        "queue_time": pair(
            people,
            lambda i: log.status[i] not in gone and log.first_scheduled_us[i] >= 0,
            lambda i: int(log.first_scheduled_us[i] - log.arrival_us[i]),
        ),
    }


@pytest.mark.parametrize("kind", ["mixed", "finished", "censored"])
@pytest.mark.parametrize("num_requests", [0, 1, 2, 3, 7, 50, 301])
def test_latency_columns_equal_the_definition(kind, num_requests):
    for seed in range(6):
        run = make_run(seed, num_requests, kind)
        params = make_params(warmup_us=0 if seed < 3 else 2_500_000, frontend_us=seed * 100)
        row = summarised(run, params)
        for prefix, (served, censored) in expected_latencies(run, params).items():
            total = len(served) + censored
            assert row[f"{prefix}_censored_share"] == (censored / total if total else None)
            mean = sum(served) / len(served) / 1000.0 if served else None
            assert row[f"{prefix}_served_mean_ms"] == mean
            for name, q in QUANTILES.items():
                assert row[f"{prefix}_{name}_ms"] == expected_quantile(served, censored, q), (prefix, name)
                assert row[f"{prefix}_served_{name}_ms"] == expected_quantile(served, 0, q), (prefix, name)


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


@pytest.mark.parametrize("seed", range(5))
def test_goodput_counts_the_censored_as_misses(seed):
    run = make_run(seed, 120)
    log = run[0]
    params = make_params(slo_ttft_us=1.5e6, slo_tpot_us=500_000.0, slo_e2e_us=5e7, warmup_us=2_000_000)
    row = summarised(run, params)
    people = population(run, params)
    good = 0
    for i in people:
        if log.status[i] != Status.FINISHED:
            continue
        ttft = log.first_token_us[i] - log.arrival_us[i]
        e2e = log.finish_us[i] - log.arrival_us[i]
        tokens = log.num_generated[i] - 1
        good += bool(ttft <= 1.5e6 and e2e <= 5e7 and (tokens == 0 or (e2e - ttft) / tokens <= 500_000))
    rejected = sum(log.status[i] == Status.REJECTED for i in people)
    total = run[3][0]
    assert 0 < good < len(people)
    assert row["goodput_share"] == good / len(people)
    assert row["goodput_admitted_share"] == good / (len(people) - rejected)
    seconds = (int(total["end_us"]) - max(int(total["first_arrival_us"]), 2_000_000)) / 1e6
    assert row["goodput_req_per_s"] == good / seconds


def test_counts_and_throughput():
    run = make_run(3, 200)
    log, prompt, _, totals, _, _ = run
    log.prefix_hit_tokens_first[:] = np.where(log.first_scheduled_us >= 0, prompt // 3, NEVER)
    row = summarised(run, make_params())
    names = {
        "completed": Status.FINISHED,
        "running": Status.RUNNING,
        "waiting": Status.WAITING,
        "held": Status.HELD,
        "pending": Status.PENDING,
        "rejected": Status.REJECTED,
        "timed_out": Status.TIMED_OUT,
        "unservable": Status.UNSERVABLE,
    }
    for name, status in names.items():
        assert row[name] == (log.status == status).sum()
    assert sum(row[name] for name in names) == row["num_requests"] == 200
    assert row["offered"] == 200 - row["pending"] - row["unservable"]
    assert row["preempted_requests"] == (log.num_preemptions > 0).sum()
    assert row["max_preemptions"] == log.num_preemptions.max()
    seconds = (int(totals[0]["end_us"]) - int(totals[0]["first_arrival_us"])) / 1e6
    assert row["request_throughput_req_per_s"] == row["completed"] / seconds
    assert row["output_throughput_tok_per_s"] == log.num_generated.sum() / seconds
    assert row["prompt_tokens"] == prompt[log.first_token_us >= 0].sum()
    served = log.first_token_us >= 0
    assert row["prefix_hit_share"] == (prompt // 3)[served].sum() / prompt[served].sum() > 0.3
    assert row["kv_use_mean"] == pytest.approx(77 / 500 * totals[0]["end_us"] / (seconds * 1e6))
    assert row["recomputed_share"] == 900 / 8000
    waits = [int(w) for w in log.admission_wait_us]
    for i in np.flatnonzero(log.first_scheduled_us < 0):
        if log.status[i] == Status.WAITING:
            waits.append(int(totals[0]["end_us"] - log.arrival_us[i]))
        if log.status[i] == Status.TIMED_OUT:
            waits.append(int(log.finish_us[i] - log.arrival_us[i]))
    assert row["longest_admission_wait_ms"] == max(waits) / 1000


def test_empty_run_has_only_nulls_and_zeros():
    run = make_run(0, 0)
    run[3][0]["recomputed_tokens"] = 0
    row = summarised(run, make_params())
    assert row["completed"] == 0
    assert row["ttft_p50_ms"] is None
    assert (row["verdict"], row["not_judged"]) == ("not_judged", "nothing_offered")
    assert row["kv_safe_num_seqs"] is None
    assert row["offered_load"] is None


def alone_us(params, prompt, output):
    """Unloaded E2E by walking through the steps of a request that is alone."""
    elapsed = float(params["frontend_us"])
    left = int(prompt)
    while left > 0:
        chunk = min(left, int(params["token_budget"]))
        elapsed += params["b0_us"] + params["b1_us_per_prefill_token"] * chunk
        left -= chunk
    for step in range(int(output) - 1):
        context = params["b3_us_per_context_token"] * (prompt + step)
        elapsed += params["b0_us"] + params["b2_us_per_decode_token"] + context
    return elapsed


@pytest.mark.parametrize("seed", range(3))
def test_load_and_fairness(seed):
    run = make_run(seed, 80)
    log, prompt, output = run[:3]
    params = make_params(b3_us_per_context_token=0.01, frontend_us=250, max_model_len=3100)
    row = summarised(run, params)
    offered = [i for i in range(80) if log.status[i] not in (Status.PENDING, Status.UNSERVABLE)]
    effective = [min(output[i], 3100 - prompt[i]) for i in range(80)]
    alone = {i: alone_us(params, prompt[i], effective[i]) for i in offered}
    assert row["unloaded_e2e_mean_ms"] == pytest.approx(np.mean(list(alone.values())) / 1000)
    slow = [
        (log.finish_us[i] - log.arrival_us[i] + 250) / alone[i] for i in offered if log.status[i] == Status.FINISHED
    ]
    assert row["slowdown_served_mean"] == pytest.approx(np.mean(slow))
    assert row["jain_slowdown"] == pytest.approx(sum(slow) ** 2 / (len(slow) * sum(s * s for s in slow)))
    blocks = [math.ceil((prompt[i] + effective[i] - 1) / 16) for i in offered]
    rate = 500 / np.mean(blocks) / (np.mean(list(alone.values())) / 1e6)
    assert row["kv_capacity_req_per_s"] == pytest.approx(rate)
    assert row["kv_safe_num_seqs"] == 500 // math.ceil((prompt.mean() + output.mean()) / 16)
    assert row["offered_load"] == max(row["offered_kv_load"], row["offered_token_load"]) > 0


def expected_slope(log, half_from, last):
    times = sorted(
        int(log.arrival_us[i])
        for i in range(len(log.status))
        if log.status[i] not in (Status.PENDING, Status.UNSERVABLE) and log.arrival_us[i] >= half_from
    )
    backlog = []
    for t in times:
        inside = 0
        for i in range(len(log.status)):
            if log.status[i] in (Status.PENDING, Status.UNSERVABLE, Status.REJECTED) or log.arrival_us[i] > t:
                continue
            gone = log.status[i] in (Status.FINISHED, Status.TIMED_OUT) and log.finish_us[i] <= t
            inside += not gone
        backlog.append(inside)
    return np.polyfit((np.array(times) - times[0]) / 1e6, backlog, 1)[0]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shuffled", [False, True])
def test_backlog_slope_is_the_least_squares_slope(seed, shuffled):
    run = make_run(seed, 150)
    log = run[0]
    if shuffled:
        order = np.random.default_rng(seed).permutation(150)
        for array in log:
            array[:] = array[order]
    row = summarised(run, make_params())
    offered = (log.status != Status.PENDING) & (log.status != Status.UNSERVABLE)
    first, last = log.arrival_us[offered].min(), log.arrival_us[offered].max()
    slope = expected_slope(log, (first + last) / 2, last)
    assert row["backlog_slope_req_per_s"] == pytest.approx(slope, rel=1e-6, abs=1e-9)
    assert row["overloaded"] is True  # most of these requests never leave


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


# --- Verdict columns beside their definitions in plain Python ---------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_verdict_columns_equal_their_definitions(seed):
    rng = np.random.default_rng(seed)
    run = make_run(seed, int(rng.integers(1, 90)), ["mixed", "finished", "censored"][seed % 3])
    log, prompt, output, totals = run[:4]
    if seed % 2:  # arrivals in no order
        rng.shuffle(log.arrival_us)
    late = rng.random(len(prompt)) < 0.3
    log.first_life_token_us[late & (log.first_life_token_us >= 0)] += int(rng.integers(1, 9_000_000))
    log.admission_wait_end_us[:] = log.arrival_us + log.admission_wait_us + rng.integers(0, 3_000_000, len(prompt))
    total = totals[0]
    total["stop"] = rng.choice([Stop.DRAINED, Stop.HORIZON, Stop.OUT_OF_MEMORY])
    total["busy_us"] = total["end_us"] if rng.random() < 0.8 else 1000
    given = {
        "starvation_window_us": int(rng.integers(1, 3_000_000)),
        "starvation_overtakes": int(rng.integers(1, 5)),
        "b0_us": float(rng.choice([1.0, 100.0, 5752.71])),
        "b1_us_per_prefill_token": 0.1,
        "closed_loop": int(rng.integers(2)),
        "slo_e2e_us": float(rng.choice([math.inf, 4e6])),
        "overload_threshold": float(rng.choice([0.05, 1e9])),
    }
    params = make_params(**given)
    row = summarised(run, params)
    requests = [
        {name: int(column[i]) for name, column in log._asdict().items()}
        | {"status": Status(log.status[i]).name.lower(), "prompt": int(prompt[i]), "output": int(output[i])}
        for i in range(len(prompt))
    ]
    end_us = int(total["end_us"])
    assert row["late_share"] == reference.late_share(requests, params, end_us)
    passed, wait_us = reference.overtaken(requests, params, end_us)
    assert (row["overtaken"], row["overtaken_wait_s"]) == (passed, wait_us / 1e6 if passed else None)
    assert row["verdict"] == reference.label(row, Stop(total["stop"]).name.lower())


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


def test_slowdown_and_fairness_leave_the_warm_up_out():
    run = make_run(1, 60, "finished")
    log, prompt, output = run[:3]
    params = make_params(warmup_us=int(log.arrival_us[20]))
    row = summarised(run, params)
    slow = [(log.finish_us[i] - log.arrival_us[i]) / alone_us(params, prompt[i], output[i]) for i in range(20, 60)]
    assert row["slowdown_served_mean"] == pytest.approx(np.mean(slow))
    assert row["jain_slowdown"] == pytest.approx(sum(slow) ** 2 / (40 * sum(s * s for s in slow)))


def test_who_leaves_with_the_last_arrival_is_not_in_its_backlog():
    run = make_run(3, 40, "finished")
    log = run[0]
    first, last = int(log.arrival_us[0]), int(log.arrival_us[-1])
    for moment in (last - 1, last, last + 1):
        log.finish_us[20:35] = moment
        slope = expected_slope(log, (first + last) / 2, last)
        row = summarised(run, make_params(b0_us=10.0))
        assert row["backlog_slope_req_per_s"] == pytest.approx(slope, rel=1e-6, abs=1e-9)


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
        assert run_quantile(values.copy(), q) == np.quantile(values, q)


def test_every_column_is_described_and_named_once():
    names = [column.name for column in metrics.COLUMNS]
    assert len(set(names)) == len(names)
    assert sorted(names) == sorted(metrics.FLOAT_COLUMNS + metrics.INT_COLUMNS)
    for column in metrics.COLUMNS:
        if column.unit in ("ms", "s") and column.kind == "float":
            assert column.name.endswith(f"_{column.unit}")
        assert (column.kind == "code") == bool(column.labels)
