"""From a configuration to the record the kernels read: once for `fastsim run`, by columns for a sweep."""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from fastsim.engines.encode import Take, code_of, integer_or, microseconds_or
from fastsim.engines.step_fields import STEP_TIME, table_length
from fastsim.engines.vllm.codes import (
    CONFIG_DTYPE,
    NO_LIMIT,
    Admission,
    BackpressureAction,
    FeedbackRule,
    PreemptionMode,
    Projection,
    QueueOrder,
    RunningCap,
    Unservable,
    Victim,
)
from fastsim.engines.vllm.policy_file.records import fill_policy

_SAME_NAME = (
    "block_size",
    "num_gpu_blocks",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "long_prefill_token_threshold",
    "long_prefill_token_threshold_adaptive",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "scheduler_reserve_full_isl",
    "prefill_schedule_interval",
    "swap_space_blocks",
    "boost_after",
    "bypass",
    "admission_scan_limit",
    "max_admission_bypasses",
    "count_restores",
    "blocked_checks_limit",
    "slot_preempt",
    "slot_preempt_preflight",
    "feedback_window",
    "feedback_recovery",
    "backpressure_window",
)
_SAME_NAME_FLOAT = (
    "swap_us_per_block",
    "overcommit",
    "aging_per_s",
    "feedback_threshold",
    "backpressure_threshold",
)
_CODED: dict[str, type[IntEnum]] = {
    "queue_order": QueueOrder,
    "victim": Victim,
    "preemption_mode": PreemptionMode,
    "admission": Admission,
    "projection": Projection,
    "running_cap": RunningCap,
    "feedback_rule": FeedbackRule,
    "backpressure_action": BackpressureAction,
    "unservable": Unservable,
}
_LIMITS = ("max_num_active_seqs", "max_num_queued_reqs", "max_num_queued_tokens")


def _is_0_16(name: str) -> int:
    return int(name == "vllm-0.16.0")


def _is_async(name: str) -> int:
    return int(name.endswith("-async"))


def config_records(take: Take, count: int) -> npt.NDArray[np.void]:
    """CONFIG_DTYPE records of `count` configurations of a vLLM engine, defaults resolved.

    Parameters
    ----------
    take
        For a grid: `lambda key, encode: grid.take(key, indices, encode)`. For one configuration:
        `lambda key, encode: np.array([encode(config.value(key))])`, the configuration being `resolved`.
    """
    records = np.zeros(count, CONFIG_DTYPE)
    for name in _SAME_NAME:
        records[name] = take(f"engine.{name}", int)
    sizes = records["block_size"]
    records["block_shift"] = np.where(sizes & (sizes - 1) == 0, np.log2(sizes).astype(np.int64), -1)
    for name in _SAME_NAME_FLOAT:
        records[name] = take(f"engine.{name}", float)
    for name, codes in _CODED.items():
        records[name] = take(f"engine.{name}", code_of(codes))
    for name in _LIMITS:
        records[name] = take(f"engine.{name}", integer_or(int(NO_LIMIT)))
    for name in STEP_TIME:
        records[name] = take(f"latency.{name}", float)
    records["window_tokens"] = take("latency.window_tokens", integer_or(0))
    records["table_knots"] = take("latency.table_tokens", table_length)
    records["watermark_blocks"] = (take("engine.watermark", float) * records["num_gpu_blocks"]).astype(np.int64)
    scheduled = take("engine.max_num_scheduled_tokens", integer_or(int(NO_LIMIT)))
    records["max_num_scheduled_tokens"] = np.minimum(scheduled, np.iinfo(np.int64).max)
    unset = scheduled == NO_LIMIT
    records["max_num_scheduled_tokens"][unset] = records["max_num_batched_tokens"][unset]
    for field in ("freed_to_tail", "self_preemption_stops", "threshold_always"):
        records[field] = take("engine.name", _is_0_16)
    records["asynchronous"] = take("engine.name", _is_async)
    records["livelock_steps"] = take("engine.livelock_steps", integer_or(0))
    records["detect_livelock"] = 1
    records["timeout_us"] = take("workload.timeout_s", microseconds_or(int(NO_LIMIT)))
    records["retry_after_us"] = take("workload.retry_after_s", microseconds_or(int(NO_LIMIT)))
    records["seed"] = take("workload.seed", int)
    records["horizon_us"] = take("run.horizon_s", microseconds_or(int(NO_LIMIT)))
    records["max_steps"] = take("run.max_steps", int)
    records["fast_forward"] = 1
    records["dense"] = 1
    fill_policy(records, take)
    return records
