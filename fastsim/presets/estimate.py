"""First estimates from data sheets: the KV pool, and the four latency coefficients from a roofline.

They place a model on a GPU to within tens of percent. `fastsim calibrate` fits the coefficients to one measured run.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from fastsim.errors import InputError
from fastsim.presets.gpu import Gpu
from fastsim.presets.kv_groups import KVGroups, kv_groups
from fastsim.presets.shapes import DTYPE_BYTES, ModelShapes
from fastsim.presets.step_times import Efficiency, StepTimes, analytic, host, shipped

LOGIT_BYTES = 32
"""Memory that vLLM's sampler takes a logit when it measures its peak: float32 copies, sort keys and indices.

Set, together with `non_torch_bytes`, so that vLLM 0.19.0's pool of 2,588 blocks for Llama-3.1-8B on an RTX 4090 comes
out (2,600, +0.5 %). A check on another machine: vLLM 0.6.4 reported 53.29 GiB of KV cache for Llama-3-8B on an H100,
the estimate is 55.2 (+3.6 %), and with tensor parallelism over two of them it is 6 % too high: NCCL took more then.
"""

SOURCES = ("auto", "shipped", "analytic", "linear")
"""Where step times can come from."""

AMOUNTS = ("layer_overhead_us", "step_overhead_us", "allreduce_us", "activation_bytes", "non_torch_bytes")


class DoesNotFit(InputError):
    """The model does not fit on the GPUs, or cannot be divided among them: no server would start."""


@dataclass(frozen=True)
class Deployment:
    """How a model is served, and what is assumed where no data sheet helps. All of it can be overridden.

    Attributes
    ----------
    tensor_parallel
        GPUs that share each layer.
    gpu_memory_utilization
        Share of the memory vLLM may take.
    block_size, max_num_seqs, max_num_batched_tokens
        As in vLLM.
    weight_dtype, kv_dtype
        Dtype of the layers' weights and of the KV cache; None: the model's.
    bandwidth_efficiency, compute_efficiency
        Share of the data sheet's peak that kernels reach.
    layer_overhead_us
        Launches and small kernels of one layer in one step.
    step_overhead_us
        The host's part of a step that no kernel hides.
    allreduce_us
        Latency of one all-reduce; there are two a layer with tensor parallelism.
    activation_bytes
        Peak of activations that vLLM's profiling finds, each GPU; None: the larger of a full step and sampling.
    non_torch_bytes
        Memory that vLLM's profiling finds outside of PyTorch (CUDA graphs, NCCL), each GPU.
    typical_batch
        Decoding requests in a step, for the share of a mixture's experts that a step touches: linear step times only.
    step_times
        Where step times come from: `shipped` (a table of measured kernels), `analytic` (a table from data sheets),
        `linear` (four coefficients, exact at one typical batch), `auto` (shipped where there is one, else analytic).
    async_scheduling
        Whether the host schedules the next step while the GPU computes: vLLM's default since 0.14. Without it every
        step waits for the host; linear step times do not know it.
    disable_hybrid_kv_cache_manager
        Keep the whole context of every layer: one group of KV cache, of full attention.
    """

    tensor_parallel: int = 1
    gpu_memory_utilization: float = 0.9
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    weight_dtype: str | None = None
    kv_dtype: str | None = None
    bandwidth_efficiency: float = 0.85
    compute_efficiency: float = 0.7
    layer_overhead_us: float = 15.0
    step_overhead_us: float = 500.0
    allreduce_us: float = 10.0
    activation_bytes: float | None = None
    non_torch_bytes: float = 0.15 * 2**30
    typical_batch: int = 32
    step_times: str = "auto"
    async_scheduling: bool = True
    disable_hybrid_kv_cache_manager: bool = False


@dataclass(frozen=True)
class Estimate:
    """What a model on a GPU comes to.

    Attributes
    ----------
    num_gpu_blocks
        KV blocks, vLLM's null block included.
    kv_bytes_per_token
        On each GPU.
    weight_bytes, activation_bytes
        On each GPU.
    longest, max_model_len
        The model's longest context, and that of it which the pool holds.
    b0_us, b1_us_per_prefill_token, b2_us_per_decode_token, b3_us_per_context_token
        Step-time coefficients.
    step_times
        The table and the terms beside it; None: only the coefficients, which stand for linear step times.
    assumptions
        One sentence each: everything that was not in the two data sheets.
    groups
        Groups of KV cache that share the pool.
    block_size, window_blocks
        Tokens of a block; blocks that a request's windows take at most, while it is prefilled.
    """

    num_gpu_blocks: int
    kv_bytes_per_token: float
    weight_bytes: float
    activation_bytes: float
    max_model_len: int
    longest: int
    b0_us: float
    b1_us_per_prefill_token: float
    b2_us_per_decode_token: float
    b3_us_per_context_token: float
    step_times: StepTimes | None
    assumptions: tuple[str, ...]
    groups: KVGroups
    block_size: int
    window_blocks: int

    def model_len(self, blocks: int) -> int:
        """The longest request that so many blocks hold: windows first, then its whole context where that is kept."""
        if not self.groups.full:
            return self.longest
        left = max(blocks - 1 - self.window_blocks, 0)
        return min(self.longest, left // self.groups.full * self.block_size)

    def settings(self) -> dict[str, Any]:
        """The keys of a configuration that the estimate gives."""
        groups = {} if self.groups.texts is None else {"engine.kv_cache_groups": self.groups.texts}
        return {
            "engine.num_gpu_blocks": self.num_gpu_blocks,
            "engine.max_model_len": self.max_model_len,
            **groups,
            **{f"latency.{name}": value for name, value in self.latency().items()},
        }

    def latency(self) -> dict[str, Any]:
        """The keys below `latency.`: a table and its terms, or four coefficients."""
        return self.linear() if self.step_times is None else self.step_times.values

    def linear(self) -> dict[str, float]:
        """The four coefficients of linear step times."""
        return {
            "b0_us": round(self.b0_us, 3),
            "b1_us_per_prefill_token": round(self.b1_us_per_prefill_token, 6),
            "b2_us_per_decode_token": round(self.b2_us_per_decode_token, 6),
            "b3_us_per_context_token": round(self.b3_us_per_context_token, 9),
        }


def estimate(model: ModelShapes, gpu: Gpu, deployment: Deployment | None = None, **overrides: Any) -> Estimate:
    """Estimate pool and coefficients; `overrides` are fields of `Deployment`.

    Raises
    ------
    InputError
        When the model does not fit, the GPUs do not divide it, or an override is not one.
    """
    plan = _checked(replace(deployment or Deployment(), **_known(overrides)), model)
    if plan.weight_dtype is not None:
        model = replace(model, weight_dtype=plan.weight_dtype)
    weights = model.weight_bytes / plan.tensor_parallel
    activations = _activation_bytes(model, plan) if plan.activation_bytes is None else plan.activation_bytes
    kv_per_token = model.kv_bytes_per_token(plan.tensor_parallel, plan.kv_dtype)
    allowed = gpu.memory_bytes * plan.gpu_memory_utilization
    left = allowed - weights - activations - plan.non_torch_bytes
    groups = KVGroups(None, model.layers) if plan.disable_hybrid_kv_cache_manager else kv_groups(model)
    block_bytes = kv_per_token / model.layers * groups.layers * plan.block_size
    blocks = int(left // block_bytes)
    window_blocks = _window_blocks(model, groups, plan)
    if blocks < 2 + window_blocks:
        raise DoesNotFit(
            f"{model.name} on {plan.tensor_parallel} x {gpu.name}: weights of {weights / 2**30:.1f} GiB and "
            f"{(activations + plan.non_torch_bytes) / 2**30:.1f} GiB of working memory leave no room for KV blocks in "
            f"{allowed / 2**30:.1f} GiB, but a larger tensor_parallel, GPU or gpu_memory_utilization was expected"
        )
    coefficients, latency_notes = _roofline(model, gpu, plan, kv_per_token)
    step_times = _step_times(model, gpu, plan, kv_per_token)
    if step_times is not None:
        latency_notes = step_times.notes
    memory_notes = (
        f"{plan.tensor_parallel} x {gpu.name} (tensor_parallel), {plan.gpu_memory_utilization:.0%} of "
        f"{gpu.memory_bytes / 2**30:.2f} GiB each (gpu_memory_utilization)",
        f"weights {weights / 2**30:.2f} GiB on each GPU: {model.parameters / 1e9:.2f} billion parameters, "
        f"{model.weight_dtype} (weight_dtype)",
        f"peak of activations {activations / 2**30:.2f} GiB (activation_bytes)"
        + (
            f": the larger of one step of {plan.max_num_batched_tokens} tokens and sampling for {plan.max_num_seqs} "
            f"requests ({LOGIT_BYTES} bytes a logit)"
            if plan.activation_bytes is None
            else ""
        ),
        f"{plan.non_torch_bytes / 2**30:.2f} GiB outside of PyTorch (non_torch_bytes)",
        f"KV cache {kv_per_token:,.0f} bytes a token on each GPU, {plan.kv_dtype or model.dtype} (kv_dtype): "
        f"{blocks:,} blocks of {plan.block_size}",
        *_group_notes(model, groups, block_bytes),
    )
    found = Estimate(
        num_gpu_blocks=blocks,
        kv_bytes_per_token=kv_per_token,
        weight_bytes=weights,
        activation_bytes=activations,
        max_model_len=model.max_model_len,
        longest=model.max_model_len,
        **coefficients,
        step_times=step_times,
        assumptions=(),
        groups=groups,
        block_size=plan.block_size,
        window_blocks=window_blocks,
    )
    held = found.model_len(blocks)
    length_note = f"max_model_len {held:,}: the model's {model.max_model_len:,}, if the pool holds it"
    said = (*model.assumptions, *memory_notes, length_note, *latency_notes)
    return replace(found, max_model_len=held, assumptions=said)


def _group_notes(model: ModelShapes, groups: KVGroups, block_bytes: float) -> Iterator[str]:
    """How layers with a window share the pool with the others."""
    if not model.window_layers:
        return
    local = f"{model.window_layers} of {model.layers} layers attend within {model.window:,} tokens"
    if groups.texts is None:
        yield f"{local}; in the pool every layer keeps the whole context (engine.disable_hybrid_kv_cache_manager)"
        return
    yield (
        f"{local}: KV cache groups {', '.join(groups.texts)} of up to {groups.layers} layers, {block_bytes:,.0f} bytes "
        "a block (engine.disable_hybrid_kv_cache_manager = true keeps the whole context of every layer)"
    )


def _step_times(model: ModelShapes, gpu: Gpu, plan: Deployment, kv_per_token: float) -> StepTimes | None:
    """What `plan.step_times` asks for; None: linear."""
    assumed = {item.name for item in fields(Deployment) if getattr(plan, item.name) != item.default}
    if plan.step_times == "linear" or (plan.step_times == "auto" and "typical_batch" in assumed):
        return None
    given = {item.name: getattr(plan, item.name) for item in fields(Efficiency) if item.name in assumed}
    found = None
    waits = host(plan.async_scheduling, plan.tensor_parallel)
    if plan.step_times == "shipped" or (plan.step_times == "auto" and not given):
        found = shipped(model, gpu, plan.tensor_parallel, plan.kv_dtype, waits)
    if found is None and plan.step_times == "shipped":
        raise InputError(
            f"{model.name} ({model.weight_dtype}) on {plan.tensor_parallel} x {gpu.name}: no table of step times is "
            'shipped, but step_times "auto", "analytic" or "linear" was expected'
        )
    kv = plan.kv_dtype
    return found or analytic(model, gpu, plan.tensor_parallel, kv_per_token, kv, Efficiency(**given), waits)


def _known(overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    known = [item.name for item in fields(Deployment)]
    for name in overrides:
        if name not in known:
            raise InputError(f"preset: {name} is not an assumption, but one of {', '.join(known)} was expected")
    return overrides


def _checked(plan: Deployment, model: ModelShapes) -> Deployment:
    if plan.tensor_parallel < 1 or model.heads % plan.tensor_parallel:
        raise DoesNotFit(
            f"{model.name}: tensor_parallel = {plan.tensor_parallel}, but a divisor of its {model.heads} attention "
            "heads was expected"
        )
    if not 0 < plan.gpu_memory_utilization <= 1:
        raise InputError(
            f"preset: gpu_memory_utilization = {plan.gpu_memory_utilization:g}, "
            "but a share above 0 and up to 1 was expected"
        )
    for name in ("weight_dtype", "kv_dtype"):
        value = getattr(plan, name)
        if value is not None and value not in DTYPE_BYTES:
            raise InputError(f"preset: {name} = {value!r}, but one of {', '.join(DTYPE_BYTES)} was expected")
    for name in ("bandwidth_efficiency", "compute_efficiency"):
        if not 0 < getattr(plan, name) <= 1:
            raise InputError(f"preset: {name} = {getattr(plan, name):g}, but a share above 0 and up to 1 was expected")
    for name in AMOUNTS:
        value = getattr(plan, name)
        if value is not None and not 0 <= value < math.inf:
            raise InputError(f"preset: {name} = {value:g}, but a number of at least 0 was expected")
    if plan.step_times not in SOURCES:
        raise InputError(f"preset: step_times = {plan.step_times!r}, but one of {', '.join(SOURCES)} was expected")
    if plan.typical_batch < 1:
        raise InputError(f"preset: typical_batch = {plan.typical_batch}, but an integer of at least 1 was expected")
    return plan


def _window_blocks(model: ModelShapes, groups: KVGroups, plan: Deployment) -> int:
    """Blocks of a request's windows, and of the chunk behind them that is being prefilled."""
    reach = min(model.window + plan.max_num_batched_tokens, model.max_model_len)
    return groups.windows * (-(-reach // plan.block_size) + 1)


def _activation_bytes(model: ModelShapes, plan: Deployment) -> float:
    """Peak of activations when vLLM profiles itself: the widest layer of a full step, or the sampler."""
    width = max(model.intermediate, model.expert_intermediate * model.experts_per_token) / plan.tensor_parallel
    step = plan.max_num_batched_tokens * (3 * width + 6 * model.hidden) * DTYPE_BYTES[model.dtype]
    sampler = plan.max_num_seqs * model.vocab * LOGIT_BYTES
    return max(step, sampler)


def _roofline(
    model: ModelShapes, gpu: Gpu, plan: Deployment, kv_per_token: float
) -> tuple[dict[str, float], tuple[str, ...]]:
    gpus = plan.tensor_parallel
    bandwidth = gpu.bandwidth_bytes_per_s * plan.bandwidth_efficiency
    peak = gpu.fp8_flop_per_s if model.weight_dtype == "fp8" else gpu.bf16_flop_per_s
    touched = 1 - (1 - model.experts_per_token / model.experts) ** plan.typical_batch if model.experts else 1.0
    read = model.always_parameters * DTYPE_BYTES[model.always_dtype]
    read += touched * model.routed_parameters * DTYPE_BYTES[model.weight_dtype]
    read += model.head_parameters * DTYPE_BYTES[model.dtype]
    compute_us = 2e6 * model.active_parameters / gpus / (peak * plan.compute_efficiency)
    link_us = 0.0
    if gpus > 1:
        sent = 2 * (gpus - 1) / gpus * model.hidden * DTYPE_BYTES[model.dtype]
        link_us = 2 * model.layers * sent / (gpu.link_bytes_per_s * plan.bandwidth_efficiency) * 1e6
    read_us = read / gpus / bandwidth * 1e6
    overhead_us = plan.step_overhead_us + model.layers * (
        plan.layer_overhead_us + (2 * plan.allreduce_us if gpus > 1 else 0.0)
    )
    sampling_us = model.vocab * LOGIT_BYTES / bandwidth * 1e6
    coefficients = {
        "b0_us": read_us + overhead_us,
        "b1_us_per_prefill_token": compute_us + link_us,
        "b2_us_per_decode_token": sampling_us + link_us,
        "b3_us_per_context_token": kv_per_token / bandwidth * 1e6,
    }
    notes = [
        f"kernels reach {plan.bandwidth_efficiency:.0%} of the bandwidth (bandwidth_efficiency) and "
        f"{plan.compute_efficiency:.0%} of the arithmetic (compute_efficiency) of the data sheet",
        f"b0: reading {read / gpus / 1e9:.2f} GB of weights ({read_us:,.0f} us) and {overhead_us:,.0f} us of overhead "
        f"(step_overhead_us {plan.step_overhead_us:g}, layer_overhead_us {plan.layer_overhead_us:g})",
        f"b1: {2 * model.active_parameters / gpus / 1e9:.2f} GFLOP a token on each GPU, none of it hidden behind "
        "reading weights",
        "b2: sampling only, a decoding token's arithmetic is hidden behind reading weights",
        "b3: reading the KV cache of decoding requests; attention of prefills is left out",
    ]
    if model.experts:
        notes.append(
            f"a step touches {touched:.0%} of the experts, as with {plan.typical_batch} decoding requests "
            "(typical_batch)"
        )
    if gpus > 1:
        notes.append(
            f"two all-reduces a layer of {plan.allreduce_us:g} us (allreduce_us), "
            f"{gpu.link_bytes_per_s / 1e9:g} GB/s links"
        )
    return coefficients, tuple(notes)
