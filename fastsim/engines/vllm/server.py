"""What `vllm serve` takes from the GPU where no flag says it, and its flags (0.33.0, `EngineArgs.add_cli_args`)."""

from typing import Any

from fastsim.engines.declaration import Server, Taken
from fastsim.engines.vllm.versions import ASYNCHRONOUS, server_defaults, version_settings, vllm_release


def of_gpu(release: str | None, gpu: str, memory_bytes: float, gpus: int) -> Taken:
    """The two batch limits and the share of memory, by release."""
    defaults = server_defaults(release, gpu, memory_bytes)
    deployment: dict[str, Any] = {"gpu_memory_utilization": defaults.gpu_memory_utilization}
    if release is not None and vllm_release(release).since < ASYNCHRONOUS:
        deployment["async_scheduling"] = False
    return Taken(defaults.settings(), {}, deployment, defaults.source)


SERVER = Server(
    command="vllm serve MODEL",
    flags={
        "engine.max_num_seqs": "--max-num-seqs",
        "engine.max_num_batched_tokens": "--max-num-batched-tokens",
        "engine.block_size": "--block-size",
        "engine.long_prefill_token_threshold": "--long-prefill-token-threshold",
        "engine.max_model_len": "--max-model-len",
        "engine.policy": "--scheduling-policy",
        "engine.watermark": "--watermark",
        "engine.prefill_schedule_interval": "--prefill-schedule-interval",
        "engine.num_gpu_blocks": "--num-gpu-blocks-override",
    },
    switches={
        f"engine.{name}": (f"--{name.replace('_', '-')}", f"--no-{name.replace('_', '-')}")
        for name in ("enable_prefix_caching", "enable_chunked_prefill", "scheduler_reserve_full_isl")
    },
    deployment={
        "tensor_parallel": "--tensor-parallel-size",
        "gpu_memory_utilization": "--gpu-memory-utilization",
        "fp8": "--kv-cache-dtype fp8",
        "sync": "--no-async-scheduling",
        "one_group": "--disable-hybrid-kv-cache-manager",
    },
    of_gpu=of_gpu,
    of_release=version_settings,
)
