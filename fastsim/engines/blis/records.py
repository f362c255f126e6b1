"""From a configuration to the record the kernels read: once for `fastsim run`, by columns for a sweep."""

import math

import numpy as np
import numpy.typing as npt

from fastsim.engines.blis.codes import NO_LIMIT, PreemptionPolicy, Scheduler
from fastsim.engines.encode import Take, code_of, microseconds_or

_INTS = (
    "total_kv_blocks",
    "block_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "long_prefill_token_threshold",
    "scheduler",
    "preemption_policy",
    "max_model_len",
    "kv_cpu_blocks",
    "block_transfer_us",  # moving one block from the CPU
    "rollback_leak",
    "horizon_us",
    "max_steps",
    "fast_forward",
    "output_token_us",  # trunc(alpha2)
    "timeout_us",  # how long clients wait; 0: for ever. Kernels read the deadlines that are made of it
)
_FLOATS = ("alpha0_us", "alpha1_us", "beta0_us", "beta1_us", "beta2_us")
CONFIG_DTYPE = np.dtype([(name, np.int64) for name in _INTS] + [(name, np.float64) for name in _FLOATS])
"""One configuration as the kernels read it. `horizon_us` and `max_steps` are NO_LIMIT when there is none."""

_SHARED = ("block_size", "max_num_seqs", "max_num_batched_tokens", "long_prefill_token_threshold")


def _alpha0(alpha: tuple[float, ...]) -> float:
    return alpha[0]


def _alpha1(alpha: tuple[float, ...]) -> float:
    return alpha[1]


def _alpha2_truncated(alpha: tuple[float, ...]) -> int:
    return math.trunc(alpha[2])


def config_records(take: Take, count: int) -> npt.NDArray[np.void]:
    """CONFIG_DTYPE records of `count` configurations, defaults resolved; `take` as in `Runtime.config_records`."""
    records = np.zeros(count, CONFIG_DTYPE)
    records["total_kv_blocks"] = take("engine.num_gpu_blocks", int)
    for name in _SHARED:
        records[name] = take(f"engine.{name}", int)
    records["scheduler"] = take("engine.blis.scheduler", code_of(Scheduler))
    records["preemption_policy"] = take("engine.blis.preemption_policy", code_of(PreemptionPolicy))
    records["max_model_len"] = take("engine.blis.max_model_len", int)
    records["kv_cpu_blocks"] = take("engine.blis.kv_cpu_blocks", int)
    records["rollback_leak"] = take("engine.blis.rollback_leak", int)
    transfer_us = np.ceil(records["block_size"] / take("engine.blis.kv_transfer_bandwidth", float)).astype(np.int64)
    records["block_transfer_us"] = take("engine.blis.kv_transfer_base_latency_us", int) + transfer_us
    records["alpha0_us"] = take("latency.alpha", _alpha0)
    records["alpha1_us"] = take("latency.alpha", _alpha1)
    records["output_token_us"] = take("latency.alpha", _alpha2_truncated)
    records["beta0_us"] = take("latency.b0_us", float)
    records["beta1_us"] = take("latency.b1_us_per_prefill_token", float)
    records["beta2_us"] = take("latency.b2_us_per_decode_token", float)
    records["horizon_us"] = take("run.horizon_s", microseconds_or(NO_LIMIT))
    records["max_steps"] = take("run.max_steps", int)
    records["fast_forward"] = 1
    records["timeout_us"] = take("workload.timeout_s", microseconds_or(0))
    return records
