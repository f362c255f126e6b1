"""The compiled vllm-rlt kernel against the plain-Python oracle, on random cases of every mode."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from fastsim.engines.outputs import NEVER, Stop
from fastsim.engines.rlt.kernel import run
from fastsim.engines.rlt.runner import RltResult
from tests.reference_rlt import simulate
from tests.rlt_cases import Case, config_of, random_case, workload_of
from tests.rlt_config import run_configs, simulate_rlt

BLOCK = 100


def oracle(case: Case, stop_at_livelock: bool = False) -> dict[str, Any]:
    return simulate(
        case["config"],
        case["workload"],
        count_restores=case["count_restores"],
        blocked_checks_limit=case["blocked_checks_limit"],
        horizon=case["horizon"],
        latency=case["latency"],
        stop_at_livelock=stop_at_livelock,
    )


def oracle_steps(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Engine steps only, request ids as integers; what arrived while idle belongs to the next step."""
    steps = []
    arrived: list[int] = []
    for row in rows:
        arrived += [int(i) for i in row["arrivals"]]
        if not row["engine_step"]:
            continue
        named = {name: [int(i) for i in row[name]] for name in ("tokens", "finished", "waiting")}
        events = [[int(x) if isinstance(x, str) and x.isdigit() else x for x in event] for event in row["events"]]
        steps.append(
            {
                **row,
                **named,
                "arrivals": arrived,
                "items": [[int(i), *rest] for i, *rest in row["items"]],
                "events": events,
                "bypasses": {int(i): count for i, count in row["bypasses"].items()},
            }
        )
        del steps[-1]["engine_step"]
        arrived = []
    return steps


def assert_equal_totals(result: RltResult, expected: dict[str, Any]) -> None:
    summary, totals = expected["summary"], expected["totals"]
    got = {name: int(result.totals[name]) for name in totals}
    assert got == totals
    assert int(result.totals["completed"]) == summary["finished"]
    assert int(result.totals["empty_steps"]) == summary["idle"]
    assert int(result.totals["preemptions"]) == summary["preemptions"]
    assert int(result.extra["resumptions"]) == summary["resumptions"]
    assert int(result.extra["free_end_blocks"]) == summary["free_end"]
    assert int(result.extra["snapshots_end"]) == summary["snapshots_end"]


def assert_equal_requests(result: RltResult, requests: list[Any]) -> None:
    log = result.log
    gaps = []
    for k, source in enumerate(result.workload.source.tolist()):
        request = requests[source]
        times = request.token_times
        gaps += [b - a for a, b in pairwise(times)]
        assert log.num_generated[k] == request.outputs
        assert log.num_preemptions[k] == request.preemptions
        assert log.first_scheduled_us[k] == request.first_scheduled
        assert log.first_token_us[k] == (times[0] if times else NEVER)
        assert log.last_token_us[k] == (times[-1] if times else NEVER)
        assert log.finish_us[k] == request.finish
        assert log.prefix_hit_tokens_first[k] == (request.cached[0] if request.cached else NEVER)
        assert log.prefix_hit_tokens[k] == sum(request.cached)
        assert log.scheduled_tokens[k] == request.computed
        assert log.admission_wait_us[k] == request.longest_wait
        assert log.admission_wait_end_us[k] == request.longest_wait_end
    assert int(result.totals["itl_count"]) == len(gaps) == result.itl_histogram.sum()
    assert int(result.totals["itl_sum_us"]) == sum(gaps)
    assert int(result.totals["itl_max_us"]) == max(gaps, default=0)


def check(seed: int) -> dict[str, Any]:
    """Every decision, total and per-request figure of one random case; returns what the oracle saw."""
    case = random_case(seed)
    expected = oracle(case)
    result = simulate_rlt(config_of(case), workload_of(case), record=True)
    for want, got in zip(oracle_steps(expected["steps"]), result.steps, strict=True):
        assert got == want, seed
    assert_equal_totals(result, expected)
    assert_equal_requests(result, expected["requests"])
    return expected


def check_block(block: int) -> None:
    livelocks = preemptions = 0
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        expected = check(seed)
        livelocks += expected["totals"]["livelock_step"] >= 0
        preemptions += expected["summary"]["preemptions"]
    assert preemptions > BLOCK  # the cases are tight enough to mean something


@pytest.mark.parametrize("block", range(4))
def test_kernel_equals_oracle(block: int) -> None:
    check_block(block)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4, 40))
def test_kernel_equals_oracle_on_many(block: int) -> None:
    check_block(block)


def test_skipping_a_livelock_counts_what_stepping_does() -> None:
    skipped = stopped = 0
    for seed in range(150):
        case = random_case(seed)
        workload = workload_of(case)
        stepped = simulate_rlt(config_of(case), workload)
        skip = simulate_rlt(config_of(case, on_livelock="skip"), workload)
        assert skip.totals == stepped.totals
        for name in stepped.log._fields:
            np.testing.assert_array_equal(getattr(skip.log, name), getattr(stepped.log, name), name)
        skipped += int(skip.extra["skipped_steps"])
        stop = simulate_rlt(config_of(case, on_livelock="stop"), workload)
        if stop.totals["livelock_step"] < 0:
            assert stop.totals == stepped.totals
            continue
        stopped += 1
        assert stop.stop is Stop.LIVELOCK
        assert_equal_totals(stop, oracle(case, stop_at_livelock=True))
    assert skipped > 0
    assert stopped > 0


def test_many_configurations_in_one_call_equal_one_at_a_time() -> None:
    for seed in range(0, 60, 3):
        cases = [random_case(s) for s in range(seed, seed + 3)]
        workload = workload_of(cases[0])
        configs = [config_of(case) for case in cases if not case["config"]["prefix_caching"]]
        logs, totals, extras, histograms = run_configs(configs, workload)
        n = workload.num_requests
        for k, config in enumerate(configs):
            single = simulate_rlt(config, workload)
            assert totals[k] == single.totals
            assert extras[k] == single.extra
            np.testing.assert_array_equal(histograms[k], single.itl_histogram)
            for name in logs._fields:
                np.testing.assert_array_equal(getattr(logs, name)[k * n : (k + 1) * n], getattr(single.log, name), name)


def test_one_compiled_version() -> None:
    check(0)
    if hasattr(run, "signatures"):
        assert len(run.signatures) == 1
