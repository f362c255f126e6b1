"""Settings as flags of `vllm serve`."""

from collections.abc import Mapping
from typing import Any

# vLLM 0.33.0, EngineArgs.add_cli_args
VALUES = {
    "engine.max_num_seqs": "--max-num-seqs",
    "engine.max_num_batched_tokens": "--max-num-batched-tokens",
    "engine.block_size": "--block-size",
    "engine.long_prefill_token_threshold": "--long-prefill-token-threshold",
    "engine.max_model_len": "--max-model-len",
    "engine.policy": "--scheduling-policy",
    "engine.watermark": "--watermark",
    "engine.prefill_schedule_interval": "--prefill-schedule-interval",
    "engine.num_gpu_blocks": "--num-gpu-blocks-override",
}
SWITCHES = {
    "engine.enable_prefix_caching": "--{}enable-prefix-caching",
    "engine.enable_chunked_prefill": "--{}enable-chunked-prefill",
    "engine.scheduler_reserve_full_isl": "--{}scheduler-reserve-full-isl",
}
"""A flag that is turned off by a `no-` in front."""


def serve_flags(settings: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Flags of `vllm serve` for these settings, and the settings that have none (remedies that vLLM lacks)."""
    flags, others = [], []
    for key, value in settings.items():
        if key in VALUES and value is not None:
            flags += [VALUES[key], str(value)]
        elif key in SWITCHES:
            flags.append(SWITCHES[key].format("" if value else "no-"))
        else:
            others.append(f"{key} = {'none' if value is None else value}")
    return flags, others


def deployment_flags(deployment: Mapping[str, Any]) -> list[str]:
    """Flags of `vllm serve` for what of a deployment is not vLLM's default."""
    flags = []
    gpus = deployment.get("tensor_parallel", 1)
    if gpus > 1:
        flags += ["--tensor-parallel-size", str(gpus)]
    if "gpu_memory_utilization" in deployment:  # said even where it is the default: that differs between versions
        flags += ["--gpu-memory-utilization", f"{deployment['gpu_memory_utilization']:g}"]
    if deployment.get("kv_dtype") == "fp8":
        flags += ["--kv-cache-dtype", "fp8"]
    return flags
