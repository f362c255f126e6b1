"""Kernel against oracle: every number both of them keep."""

import math

from fastsim.engines.blis.golden import case_records, case_workload
from fastsim.engines.blis.runner import simulate_records
from fastsim.engines.outputs import Status
from tests.reference_blis import from_case, simulate


def run_oracle(case):
    return simulate(*from_case(case))


def run_kernel(case, **changes):
    return simulate_records(case_records(case, **changes), case_workload(case))


def differences(case, run, result):
    """Every field in which the kernel's `result` differs from the oracle's `run`."""
    found = []

    def check(what, expected, got):
        same = math.isclose(expected, got, rel_tol=1e-12) if isinstance(expected, float) else expected == got
        if not same:
            found.append(f"{what}: expected {expected}, got {got}")

    for request in run.requests:
        for name, expected in expected_log(request).items():
            check(f"request {request.index}: {name}", expected, int(getattr(result.log, name)[request.index]))
        for name, expected in expected_blis(request).items():
            check(f"request {request.index}: {name}", expected, int(getattr(result.blis, name)[request.index]))
    check("stop", run.stop.upper(), result.stop.name)
    for name, expected in run.totals.items():
        check(name, expected, int(result.totals[name]))
    for name, expected in run.aggregate.items():
        check(name, float(expected), float(result.aggregate[name]))
    return found


def expected_log(request):
    times = request.token_times_us
    return {
        "arrival_us": request.arrival_us,
        "status": int(Status[request.status.upper()]),
        "first_scheduled_us": request.first_scheduled_us,
        "first_token_us": times[0] if times else -1,
        "first_life_token_us": request.first_life_token_us,
        "last_token_us": times[-1] if times else -1,
        "finish_us": request.finish_us,
        "num_generated": request.generated,
        "num_preemptions": request.num_preemptions,
        "prefix_hit_tokens_first": request.prefix_hit_tokens_first,
        "prefix_hit_tokens": request.prefix_hit_tokens,
        "scheduled_tokens": request.scheduled_tokens,
        "admission_wait_us": request.admission_wait_us,
        "admission_wait_end_us": request.admission_wait_end_us,
    }


def expected_blis(request):
    finished = request.status == "finished"
    return {
        "ttft_us": request.reported_ttft_us,
        "e2e_us": request.reported_e2e_us,
        "scheduling_delay_us": -1 if request.scheduling_delay_us is None else request.scheduling_delay_us,
        "itl_sum_us": sum(request.itls_us) if finished else 0,
        "itl_count": len(request.itls_us) if finished else 0,
    }
