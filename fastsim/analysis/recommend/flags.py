"""Settings as flags of the server."""

from collections.abc import Mapping
from typing import Any

from fastsim.engines import engine_of

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
DEPLOYMENT = {
    "tensor_parallel": "--tensor-parallel-size",
    "gpu_memory_utilization": "--gpu-memory-utilization",
    "fp8": "--kv-cache-dtype fp8",
}


def serve_command(engine: str) -> str:
    """What starts the server of an engine, up to its flags."""
    server = engine_of(engine).server
    return "vllm serve MODEL" if server is None else server.command


def serve_flags(settings: Mapping[str, Any], engine: str = "vllm-0.33.0") -> tuple[list[str], list[str]]:
    """Flags of the engine's server for these settings, and the settings that have none (remedies that it lacks)."""
    server = engine_of(engine).server
    values = VALUES if server is None else server.flags
    switches = SWITCHES if server is None else server.switches
    flags, others = [], []
    for key, value in settings.items():
        if key in values and value is not None:
            flags += [values[key], str(value)]
        elif key in switches:
            flag = switches[key].format("" if value else "no-")
            flags += [flag] if server is None or value else []
        else:
            others.append(f"{key} = {'none' if value is None else value}")
    return flags, others


def deployment_flags(deployment: Mapping[str, Any], engine: str = "vllm-0.33.0") -> list[str]:
    """Flags of the engine's server for what of a deployment is not its default."""
    server = engine_of(engine).server
    names = DEPLOYMENT if server is None else server.deployment
    flags = []
    gpus = deployment.get("tensor_parallel", 1)
    if gpus > 1:
        flags += [names["tensor_parallel"], str(gpus)]
    if "gpu_memory_utilization" in deployment:
        flags += [names["gpu_memory_utilization"], f"{deployment['gpu_memory_utilization']:g}"]
    if deployment.get("kv_dtype") == "fp8":
        flags += names["fp8"].split()
    return flags
