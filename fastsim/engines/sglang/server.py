"""What `python -m sglang.launch_server` takes from the GPU where no flag says it, and its flags.

Figures: SGLang 0.5's ServerArgs (`_handle_gpu_memory_settings`) and the size of its request pool. They were read, not
recorded.
"""

from typing import Any

from fastsim.engines.declaration import Server, Taken

MIB = 2**20
TIERS = (
    # below so many MiB of memory: chunk, largest CUDA graph below four GPUs and from four on
    (20 * 1024, 2048, 8, 8),
    (35 * 1024, 2048, 24, 80),
    (60 * 1024, 4096, 32, 160),
    (90 * 1024, 8192, 256, 512),
    (160 * 1024, 8192, 256, 512),
)
LARGEST_TIER = (16384, 512, 512)


def gpu_tier(memory_mib: float) -> tuple[int, int, int]:
    """Chunk, and largest CUDA graph below four GPUs and from four on."""
    return next((tuple(rest) for below, *rest in TIERS if memory_mib < below), LARGEST_TIER)  # type: ignore[return-value]


def mem_fraction_static(memory_mib: float, chunk: int, graph: int, gpus: int) -> float:
    """Share of the memory for weights and KV pool: the rest is for activations, CUDA graphs and parallelism."""
    reserved = 512 + max(chunk, 2048) * 1.5 + graph * 2 + gpus / 8 * 1024
    if memory_mib > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    return round((memory_mib - reserved) / memory_mib, 3)


def of_gpu(release: str | None, gpu: str, memory_bytes: float, gpus: int) -> Taken:
    """The chunk, and what of a deployment: all that the share leaves beside the weights is KV pool."""
    memory_mib = memory_bytes / MIB
    chunk, small, large = gpu_tier(memory_mib)
    share = mem_fraction_static(memory_mib, chunk, small if gpus < 4 else large, gpus)
    deployment = {"gpu_memory_utilization": share, "activation_bytes": 0.0, "non_torch_bytes": 0.0}
    return Taken({}, {"engine.sglang.chunked_prefill_size": chunk}, deployment, f"SGLang 0.5's own on {gpu}")


def of_pool(tokens: int, max_model_len: int) -> dict[str, Any]:
    """Request slots for a pool."""
    return {"engine.max_num_seqs": min(max(int(tokens / max_model_len * 512), 2048), 4096)}


_TABLE = "engine.sglang."
SERVER = Server(
    command="python -m sglang.launch_server --model-path MODEL",
    flags={
        "engine.max_num_seqs": "--max-running-requests",
        "engine.max_model_len": "--context-length",
        "engine.max_num_batched_tokens": "--chunked-prefill-size",  # what the chunk follows where it is not given
        **{
            _TABLE + name: f"--{name.replace('_', '-')}"
            for name in (
                "max_total_tokens",
                "page_size",
                "chunked_prefill_size",
                "max_prefill_tokens",
                "prefill_max_requests",
                "schedule_policy",
                "schedule_conservativeness",
                "priority_scheduling_preemption_threshold",
                "prefill_decode_interval",
            )
        },
    },
    switches={
        _TABLE + name: (f"--{name.replace('_', '-')}", "")
        for name in (
            "enable_mixed_chunk",
            "disable_radix_cache",
            "enable_priority_scheduling",
            "schedule_low_priority_values_first",
            "disable_priority_preemption",
            "disable_overlap_schedule",
        )
    },
    deployment={
        "tensor_parallel": "--tp-size",
        "gpu_memory_utilization": "--mem-fraction-static",
        "fp8": "--kv-cache-dtype fp8_e4m3",
        "sync": "--disable-overlap-schedule",
    },
    of_gpu=of_gpu,
    of_pool=of_pool,
)
