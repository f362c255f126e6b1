"""From a configuration to the record the kernels read: once for `fastsim run`, by columns for a sweep."""

import math

import numpy as np
import numpy.typing as npt

from fastsim.engines.encode import Take, code_of, microseconds_or
from fastsim.engines.rlt.codes import Mode, OnLivelock, Policy
from fastsim.engines.rlt.knobs import RltLatency

NO_LIMIT = np.iinfo(np.int64).max // 4
"""Stands for "no horizon" and "no cap on steps"; far enough from the top that sums with it do not overflow."""

_SHARED = (
    "block_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "admission_scan_limit",
    "max_admission_bypasses",
    "count_restores",
    "blocked_checks_limit",
)
_OWN = (
    "max_loops",
    "incremental",
    "prefix_caching",
    "min_coda_batch_size",
    "prefill_chunk_size",
    "max_prefill_batches_before_decode",
    "enable_preemption",
    "wavefront",
)
_TIMES = (
    "prelude_us",
    "prelude_us_per_token",
    "coda_us",
    "coda_us_per_token",
    "empty_us",
    "swap_us",
    "swap_us_per_block",
)
_LINEAR = {
    "prefill_us": ("b0_us", False),
    "prefill_us_per_token": ("b1_us_per_prefill_token", False),
    "wavefront_us": ("b0_us", True),
    "wavefront_us_per_token": ("b1_us_per_prefill_token", True),
    "recurrent_us": ("b0_us", True),
    "recurrent_us_per_token": ("b2_us_per_decode_token", True),
}
"""Coefficient of the linear model that stands in for a stage's own, and whether one loop takes an equal part of it."""


CONFIG_DTYPE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "num_blocks",
            *_SHARED,
            *_OWN,
            "planes",  # blocks of a page: one a depth plane
            "headroom_blocks",  # kept free when anything is active
            "mode",
            "policy",
            "on_livelock",
            "horizon_us",
            "max_steps",
        )
    ]
    + [(name, np.float64) for name in RltLatency.model_fields]
)
"""What a kernel reads: flags as 0 and 1, names as codes, the coefficients of the step times."""


def _is_last_exited(layout: str) -> bool:
    return layout == "last_exited"


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else float(value)


def config_records(take: Take, count: int) -> npt.NDArray[np.void]:
    """CONFIG_DTYPE records of `count` configurations, defaults resolved; `take` as in `Runtime.config_records`."""
    records = np.zeros(count, CONFIG_DTYPE)
    records["num_blocks"] = take("engine.num_gpu_blocks", int)
    for name in _SHARED:
        records[name] = take(f"engine.{name}", int)
    for name in _OWN:
        records[name] = take(f"engine.rlt.{name}", int)
    loops = records["max_loops"]
    records["planes"] = np.where(take("engine.rlt.layout", _is_last_exited), loops, 1)
    watermark = take("engine.rlt.watermark_ratio", float)
    records["headroom_blocks"] = (watermark * records["num_blocks"]).astype(np.int64)
    records["mode"] = take("engine.rlt.mode", code_of(Mode))
    records["policy"] = take("engine.policy", code_of(Policy))
    records["on_livelock"] = take("engine.rlt.on_livelock", code_of(OnLivelock))
    records["horizon_us"] = take("run.horizon_s", microseconds_or(int(NO_LIMIT)))
    records["max_steps"] = take("run.max_steps", int)
    for name in _TIMES:
        records[name] = take(f"latency.rlt.{name}", float)
    for name, (linear, by_loop) in _LINEAR.items():
        given = take(f"latency.rlt.{name}", _or_nan)
        whole = take(f"latency.{linear}", float)
        records[name] = np.where(np.isnan(given), whole / loops if by_loop else whole, given)
    return records
