"""From a configuration to the record the kernels read."""

import numpy as np
import numpy.typing as npt

from fastsim.engines.encode import Take, code_of, microseconds_or
from fastsim.engines.trtllm.codes import NO_LIMIT, Chunking, Policy

_TIMES = {"beta0": "b0_us", "beta1": "b1_us_per_prefill_token", "beta2": "b2_us_per_decode_token"}
_COUNTS = (
    "num_blocks",
    "tokens_per_block",
    "max_batch_size",
    "max_num_tokens",
    "max_seq_len",
    "policy",  # Policy
    "chunking",  # Chunking
    "chunk_unit",
    "longest",  # tokens of a request, at most
    "longest_input",  # tokens of a context, at most
    "horizon_us",
    "max_steps",
    "fast_forward",
)
CONFIG_DTYPE = np.dtype([(name, np.int64) for name in _COUNTS] + [(name, np.float64) for name in _TIMES])
"""What a kernel reads."""


def config_records(take: Take, count: int) -> npt.NDArray[np.void]:
    """CONFIG_DTYPE records of `count` configurations, defaults resolved; `take` as in `Runtime.config_records`."""
    records = np.zeros(count, CONFIG_DTYPE)
    for name, key in (
        ("num_blocks", "engine.num_gpu_blocks"),
        ("tokens_per_block", "engine.block_size"),
        ("max_batch_size", "engine.max_num_seqs"),
        ("max_num_tokens", "engine.max_num_batched_tokens"),
        ("max_seq_len", "engine.max_model_len"),
        ("chunk_unit", "engine.trtllm.chunk_unit_tokens"),
        ("max_steps", "run.max_steps"),
    ):
        records[name] = take(key, int)
    records["policy"] = take("engine.trtllm.capacity_scheduler_policy", code_of(Policy))
    chunked = take("engine.enable_chunked_prefill", bool)
    chosen = take("engine.trtllm.context_chunking_policy", code_of(Chunking))
    records["chunking"] = np.where(chunked, chosen, int(Chunking.OFF))
    for name, coefficient in _TIMES.items():
        records[name] = take(f"latency.{coefficient}", float)
    records["horizon_us"] = take("run.horizon_s", microseconds_or(NO_LIMIT))
    records["fast_forward"] = 1
    derive(records)
    return records


def derive(records: npt.NDArray[np.void]) -> None:
    """Fill what follows from the other fields."""
    longest = np.minimum(records["max_seq_len"], records["num_blocks"] * records["tokens_per_block"])
    records["longest"] = longest
    records["longest_input"] = np.where(records["chunking"] == int(Chunking.OFF), records["max_num_tokens"], longest)
