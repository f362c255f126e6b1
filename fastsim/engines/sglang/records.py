"""From a configuration to the record the kernels read: once for `fastsim run`, by columns for a sweep."""

import numpy as np
import numpy.typing as npt

from fastsim.engines.encode import Take, code_of, integer_or, microseconds_or
from fastsim.engines.sglang.codes import NO_LIMIT, Policy, Retraction
from fastsim.engines.sglang.config import CONFIG_DTYPE, derive
from fastsim.engines.sglang.knobs import SglangKnobs

_CODES = {"schedule_policy": code_of(Policy), "retraction_policy": code_of(Retraction)}
_FLOATS = ("schedule_conservativeness", "init_new_token_ratio", "min_new_token_ratio_factor")
_TIMES = {"beta0": "b0_us", "beta1": "b1_us_per_prefill_token", "beta2": "b2_us_per_decode_token"}


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
    derive(records)
    return records
