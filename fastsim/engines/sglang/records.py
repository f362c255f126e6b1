"""From a configuration to the record the kernels read: once for `fastsim run`, by columns for a sweep."""

import numpy as np
import numpy.typing as npt

from fastsim.engines.encode import Take, code_of, integer_or, microseconds_or
from fastsim.engines.sglang.codes import NO_LIMIT, Policy, Retraction
from fastsim.engines.sglang.knobs import SglangKnobs

_CODES = {"schedule_policy": code_of(Policy), "retraction_policy": code_of(Retraction)}
_FLOATS = ("schedule_conservativeness", "init_new_token_ratio", "min_new_token_ratio_factor")
_TIMES = {"beta0": "b0_us", "beta1": "b1_us_per_prefill_token", "beta2": "b2_us_per_decode_token"}
_SHARED = ("max_running_requests", "context_length", "horizon_us", "max_steps", "ignore_eos", "fast_forward")
"""Integers that no knob of SGLang's own says."""
_FLAGS_THAT_FOLLOW = ("pool", "chunks", "mixes", "preempts", "urgency_sign")
_RATIOS_THAT_FOLLOW = ("init_ratio", "min_ratio", "decay")

CONFIG_DTYPE = np.dtype(
    [(name, np.int64) for name in SglangKnobs.model_fields if name not in _FLOATS]
    + [(name, np.int64) for name in (*_SHARED, *_FLAGS_THAT_FOLLOW)]
    + [(name, np.float64) for name in (*_FLOATS, *_TIMES, *_RATIOS_THAT_FOLLOW)]
)
"""What a kernel reads: SGLang's knobs, flags as 0 and 1, names as codes, no limit as NO_LIMIT, and what follows."""


def config_records(take: Take, count: int) -> npt.NDArray[np.void]:
    """CONFIG_DTYPE records of `count` configurations, defaults resolved; `take` as in `Runtime.config_records`."""
    records = np.zeros(count, CONFIG_DTYPE)
    for name in SglangKnobs.model_fields:
        encode = float if name in _FLOATS else _CODES.get(name, integer_or(NO_LIMIT))
        records[name] = take(f"engine.sglang.{name}", encode)
    records["max_running_requests"] = take("engine.max_num_seqs", int)
    records["context_length"] = take("engine.max_model_len", int)
    for name, coefficient in _TIMES.items():
        records[name] = take(f"latency.{coefficient}", float)
    records["horizon_us"] = take("run.horizon_s", microseconds_or(NO_LIMIT))
    records["max_steps"] = take("run.max_steps", int)
    records["ignore_eos"] = take("workload.ignore_eos", int)
    records["fast_forward"] = 1
    _derive(records)
    return records


def _derive(records: npt.NDArray[np.void]) -> None:
    """Fill what follows from the other fields."""
    records["pool"] = records["max_total_tokens"] // records["page_size"] * records["page_size"]
    has_chunks = records["chunked_prefill_size"] > 0
    records["chunks"] = has_chunks
    records["mixes"] = has_chunks & (records["enable_mixed_chunk"] != 0)
    records["preempts"] = (records["enable_priority_scheduling"] != 0) & (records["disable_priority_preemption"] == 0)
    records["urgency_sign"] = np.where(records["schedule_low_priority_values_first"] != 0, -1, 1)
    records["init_ratio"] = np.minimum(records["init_new_token_ratio"] * records["schedule_conservativeness"], 1.0)
    records["min_ratio"] = np.minimum(records["init_ratio"] * records["min_new_token_ratio_factor"], 1.0)
    records["decay"] = (records["init_ratio"] - records["min_ratio"]) / records["new_token_ratio_decay_steps"]
