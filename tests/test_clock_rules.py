"""What could overflow a clock is refused in one sentence; what is only large is not."""

import tracemalloc

import numpy as np
import pytest

from fastsim.config import check_rules
from fastsim.config.spec import spec_from_mapping
from fastsim.engines.clock import PRESETS_STAY_BELOW
from fastsim.errors import InputError
from fastsim.presets import coefficients, gpu_names, model_names
from fastsim.simulation import simulate
from fastsim.sweeps.grid import Grid
from fastsim.workload import Workload, build_workload

HUGE = 2**31 - 1
BIG_CACHE = {"engine.num_gpu_blocks": HUGE, "engine.block_size": 1024, "engine.max_num_batched_tokens": HUGE}
BIG_CACHE |= {"run.max_steps": 1000}  # so that the coefficients that are not named fit
OVERFLOWS = {
    "b1_us_per_prefill_token": BIG_CACHE | {"latency.b1_us_per_prefill_token": 1e9},
    "b1_us_per_prefill_token = 1e+09 with": BIG_CACHE | {"latency.b1_us_per_prefill_token": 1e9, "run.horizon_s": 1e9},
    "b2_us_per_decode_token": BIG_CACHE | {"latency.b2_us_per_decode_token": 1e9},
    "b3_us_per_context_token": BIG_CACHE
    | {"latency.b3_us_per_context_token": 1e9, "engine.max_num_seqs": HUGE, "engine.max_model_len": HUGE},
    "b0_us": {"latency.b0_us": 1e9, "run.max_steps": 10**15},
    "swap_us_per_block": {
        "engine.preemption_mode": "swap",
        "engine.swap_us_per_block": 1e9,
        "engine.swap_space_blocks": HUGE,
    },
    "kv_transfer_base_latency_us": {
        "engine.name": "blis",
        "engine.blis.kv_cpu_blocks": HUGE,
        "engine.blis.kv_transfer_base_latency_us": HUGE,
    },
    "alpha": {"engine.name": "blis", "latency.alpha": [0.0, 1e9, 0.0]},
    "recurrent_us": {"engine.name": "vllm-rlt", "latency.rlt.recurrent_us": 1e9, "run.max_steps": 10**10},
    "prefill_us_per_token": BIG_CACHE | {"engine.name": "vllm-rlt", "latency.rlt.prefill_us_per_token": 1e9},
    "retry_after_s": {"workload.concurrency": 4, "workload.retry_after_s": 1e9, "workload.num_requests": 10**6},
}


@pytest.mark.parametrize("name", OVERFLOWS)
def test_what_could_overflow_the_clock_is_refused(name):
    with pytest.raises(InputError) as refused:
        Grid.from_mapping({"engine.num_gpu_blocks": 64} | OVERFLOWS[name])
    with pytest.raises(InputError, match="clock"):
        check_rules(spec_from_mapping({"engine.num_gpu_blocks": 64} | OVERFLOWS[name]).base)
    sentence = str(refused.value)
    assert f"{name.split()[0]} = " in sentence
    assert "clock" in sentence
    assert "\n" not in sentence


FITS = {
    "defaults": {},
    "no limits but the cache's": {
        "engine.num_gpu_blocks": 100_000,
        "engine.max_num_seqs": HUGE,
        "engine.max_num_batched_tokens": HUGE,
        "latency.b3_us_per_context_token": 0.5,
    },
    "a preset": {"engine.num_gpu_blocks": 100_000, "latency.preset": "llama-3.1-70b@4xh100"},
    "long steps": {"latency.b0_us": 1e9},
    "long steps and a horizon": {"latency.b0_us": 1e9, "run.max_steps": 10**15, "run.horizon_s": 1e9},
}


@pytest.mark.parametrize("name", FITS)
def test_what_is_only_large_is_not_refused(name):
    check_rules(spec_from_mapping({"engine.num_gpu_blocks": 64} | FITS[name]).base)


def test_a_sweep_looks_at_the_ends_of_its_axes_only():
    axes = {
        name: {"start": 1, "stop": 1000, "num": 1000}
        for name in ("engine.max_num_seqs", "engine.max_model_len", "run.max_steps", "latency.b3_us_per_context_token")
    }
    tracemalloc.start()
    assert Grid.from_mapping({"engine.num_gpu_blocks": 64, "sweep": {"axes": axes}}).size == 10**12
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()
    axes["run.max_steps"] = [5, 10**13]
    with pytest.raises(InputError, match=r"b3_us_per_context_token = 1\.0 .* run\.max_steps = 10000000000000 "):
        Grid.from_mapping({"engine.num_gpu_blocks": 64, "sweep": {"axes": axes}})


def test_the_slowest_step_that_is_allowed_does_not_overflow():
    table = {
        "engine.num_gpu_blocks": 1000,
        "latency.b0_us": 1e9,
        "latency.b1_us_per_prefill_token": 1e9,
        "latency.b2_us_per_decode_token": 1e9,
        "run.max_steps": 10**5,
    }
    requests = Workload.from_arrays([0, 2**60], [4000, 4000], [50, 50])
    result = simulate(spec_from_mapping(table).base, requests)
    assert result.totals["end_us"] == 2**60 + 4000 * 10**9 + 49 * 10**9 + 50 * 10**9 + 10**9 * (2 - 1)
    assert result.metrics["completed"] == 2


@pytest.mark.parametrize("rate", [1e-6, 1.0])
def test_pauses_and_arrivals_that_add_up_to_too_much_are_refused(rate):
    base = {"engine.num_gpu_blocks": 64, "workload.num_requests": 2000}
    late = {"workload.arrival.kind": "poisson", "workload.arrival.rate_per_s": 1e-6, "workload.rate_scale": 1e-6}
    pauses = {"workload.concurrency": 2, "workload.think.mean_s": 1e9, "workload.arrival.kind": "closed_loop"}
    expected = r"the last request arrives after" if rate < 1 else r"all pauses together last"
    with pytest.raises(InputError, match=expected):
        build_workload(spec_from_mapping(base | (late if rate < 1 else pauses)).base.workload)


def test_no_preset_is_slower_than_assumed():
    slowest = dict.fromkeys(PRESETS_STAY_BELOW, 0.0)
    for model in model_names():
        for gpu in gpu_names():
            for count in (1, 8):
                try:
                    found = coefficients(f"{model}@{count}x{gpu}")
                except InputError:
                    continue  # it does not fit
                slowest = {name: max(value, found.get(name, 0.0)) for name, value in slowest.items()}
    assert all(slowest[name] < most for name, most in PRESETS_STAY_BELOW.items()), slowest
    assert np.isfinite(list(slowest.values())).all()
