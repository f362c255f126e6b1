"""A model on a GPU: the keys below `hardware.`. What they give is in `fastsim.config.deployment`."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from fastsim.model import Coefficient, Model, Positive

Dtype = Literal["float32", "bfloat16", "float16", "fp8", "int8", "int4", "mxfp4", "nvfp4"]
Reached = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Bytes = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]


def _known_gpu(name: str) -> str:
    """Refuse a GPU without a data sheet."""
    from fastsim.presets import deployed_on, load_gpu  # here: most runs name no hardware, and need not load them

    load_gpu(deployed_on(name, {})[0])
    return name


def _known_version(version: str) -> str:
    """Refuse a version that is none, or too old."""
    from fastsim.config.deployment import release_settings

    release_settings(version)
    return version


class HardwareConfig(Model):
    """What is served on what. Pool, step times and the server's own defaults follow, where nothing else gives them."""

    model: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """A model by name, such as "llama-3.1-8b", or its Hugging Face config.json."""
    gpu: Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_known_gpu)] | None = None
    """A GPU by name; "4xh100" stands for tensor_parallel 4."""
    tensor_parallel: Positive | None = None
    """GPUs that share each layer. None: as `gpu` says, else 1."""
    weight_dtype: Dtype | None = None
    """Dtype of the layers' weights. None: the model's."""
    kv_dtype: Dtype | None = None
    """Dtype of the KV cache. None: the model's."""
    gpu_memory_utilization: Reached | None = None
    """Share of the memory that the server may take. None: its own default: vLLM's by version."""
    vllm_version: Annotated[str, AfterValidator(_known_version)] | None = None
    """Whose rules (`engine.name`) and defaults hold, such as "0.19.0". None: the newest known defaults."""
    bandwidth_efficiency: Reached | None = None
    """Share of the data sheet's bandwidth that kernels reach, in step times from data sheets."""
    compute_efficiency: Reached | None = None
    """Share of the data sheet's arithmetic that kernels reach, in step times from data sheets."""
    layer_overhead_us: Coefficient | None = None
    """Launches and small kernels of one layer in one step, in step times from data sheets."""
    step_overhead_us: Coefficient | None = None
    """The host's part of a step, in step times from data sheets."""
    allreduce_us: Coefficient | None = None
    """Latency of one all-reduce, of which there are two a layer, in step times from data sheets."""
    async_scheduling: bool | None = None
    """Whether the host schedules while the GPU computes, in tables of step times. None: as the version does."""
    activation_bytes: Bytes | None = None
    """Peak of activations on each GPU. None: the larger of a full step and sampling."""
    non_torch_bytes: Bytes | None = None
    """Memory outside of PyTorch on each GPU. None: 0.15 GiB."""
    typical_batch: Positive | None = None
    """Decoding requests in a step, for the experts that it touches: takes linear step times."""
