"""Step times of a model on GPUs without a run: a shipped table of measured kernels, else one from data sheets.

Both have the form of `LatencyConfig`: a table over a step's tokens, and terms beside it. What neither knows (the host,
sampling, the frontend) are a few constants fitted to published measurements of vLLM; `benchmarks accuracy` says how
well they hold on them.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from fastsim.presets.gpu import Gpu
from fastsim.presets.shapes import DTYPE_BYTES, ModelShapes

KNOTS = tuple(2**i for i in range(14))
"""Tokens at which an analytic table has its knots."""


@dataclass(frozen=True)
class Efficiency:
    """What kernels reach of the data sheet, and fixed times.

    All but `step_overhead_us` were fitted to the shipped tables of GPUs with NVLink (H100, H200, B200, A100), not to
    measured runs. Attributes are those of `Deployment` by the same name.
    """

    bandwidth_efficiency: float = 0.741
    compute_efficiency: float = 0.692
    layer_overhead_us: float = 38.9
    step_overhead_us: float = 27.4
    allreduce_us: float = 7.8


@dataclass(frozen=True)
class StepTimes:
    """Keys below `latency.` and their values, where they come from, and what the source itself is off by."""

    source: str
    values: dict[str, Any]
    notes: tuple[str, ...]
    expected: str


# --- The host ---------------------------------------------------------------------------------------------------------

SYNC_STEP_US, SYNC_WORKERS_US, SYNC_DECODER_US = 200.0, 900.0, 25.0
"""What a step waits for the host without asynchronous scheduling: on one GPU, with worker processes (several GPUs), and
by decoding request. Fitted to published rows of vLLM 0.10 to 0.12; with asynchronous scheduling, vLLM's default since
0.14, the host does this while the GPU computes."""


@dataclass(frozen=True)
class Host:
    """The part of a step that the GPU waits for, and how it is said."""

    step_us: float = 0.0
    decoder_us: float = 0.0
    note: str = "the host works while the GPU computes (async_scheduling), as vLLM does by default since 0.14"


def host(async_scheduling: bool, tensor_parallel: int) -> Host:
    """What vLLM's own work adds to a step."""
    if async_scheduling:
        return Host()
    step_us = SYNC_WORKERS_US if tensor_parallel > 1 else SYNC_STEP_US
    note = f"the GPU waits for the host, {step_us:g} us a step and {SYNC_DECODER_US:g} us a decoding request"
    return Host(step_us, SYNC_DECODER_US, f"{note} (async_scheduling = false)")


CHOICE = (
    "another source: step_times shipped, analytic or linear; bandwidth_efficiency, compute_efficiency, "
    "layer_overhead_us, step_overhead_us or allreduce_us take the table from data sheets, "
    "typical_batch takes linear step times"
)

# --- Shipped tables ---------------------------------------------------------------------------------------------------

HOST_US, DECODER_US, TABLE_FACTOR, ATTENTION_FACTOR, PREFILL_STEP_US, FRONTEND_US = (
    27.4,
    8.42,
    1.0671,
    1.0878,
    1353.2,
    14059.8,
)
"""On top of a shipped table: fitted to published rows of vLLM."""

TABLE_KV = {("llama-3.1-8b", "fp8"): "fp8", ("llama-3.1-70b", "fp8"): "fp8"}
"""Dtype of the KV cache in tables where it is not the model's."""


@cache
def _shipped() -> dict[str, Any]:
    raw = files("fastsim.presets").joinpath("tables.json").read_text(encoding="utf-8")
    tables: dict[str, Any] = json.loads(raw)
    return tables


def shipped(model: ModelShapes, gpu: Gpu, tensor_parallel: int, kv_dtype: str | None, waits: Host) -> StepTimes | None:
    """The table that comes with fastsim for this deployment; None when there is none."""
    data = _shipped()
    row = data["tables"].get(f"{model.name}|{gpu.name}|{tensor_parallel}|{model.weight_dtype}")
    if row is None:
        return None
    known = dict(zip(data["columns"], row, strict=True))
    measured_kv = TABLE_KV.get((model.name, model.weight_dtype), model.dtype)
    kv = DTYPE_BYTES[kv_dtype or model.dtype] / DTYPE_BYTES[measured_kv]
    values = {
        "b0_us": HOST_US + waits.step_us,
        "b1_us_per_prefill_token": round(ATTENTION_FACTOR * known["prefill_token_us"], 6),
        "b2_us_per_decode_token": round(ATTENTION_FACTOR * known["decode_us"] + DECODER_US + waits.decoder_us, 4),
        "b3_us_per_context_token": round(ATTENTION_FACTOR * known["context_us"] * kv, 9),
        "b4_us_per_prefill_pair": round(ATTENTION_FACTOR * known["pair_us"], 12),
        "b5_us_per_prefill_step": round(known["prefill_step_us"] + PREFILL_STEP_US, 2),
        "b6_us_per_window_token": 0.0,
        "window_tokens": 0,
        "table_tokens": tuple(data["knots"]),
        "table_us": tuple(round(TABLE_FACTOR * us, 1) for us in known["tokens_us"]),
        "frontend_us": FRONTEND_US,
    }
    name = data["models"][f"{model.name}|{model.weight_dtype}"]
    notes: tuple[str, ...] = (
        f"step times: a shipped table of {data['tool']} ({data['licence']}): measured kernels of vLLM for {name} on "
        f"{tensor_parallel} x {data['systems'][gpu.name]}; it misses that tool's step times by "
        f"{known['fit_mean_pct']:g} % on average (p99 {known['fit_p99_pct']:g} %); kernels slower for fewer tokens "
        f"than for more count as for more, at most {known['smoothed_pct']:g} %",
        f"six constants beside it, fitted to published measurements: {HOST_US:g} us a step, {DECODER_US:g} us a "
        f"decoding request, {PREFILL_STEP_US:,.0f} us a step with prefill, "
        f"{FRONTEND_US / 1000:.1f} ms of frontend, table x "
        f"{TABLE_FACTOR:g}, attention x {ATTENTION_FACTOR:g}",
        waits.note,
        CHOICE,
    )
    if kv != 1:
        notes += (f"attention scaled by {kv:g}: the table's KV cache is {measured_kv}",)
    return StepTimes("shipped", values, notes, _expected(model, gpu, "shipped"))


# --- From data sheets -------------------------------------------------------------------------------------------------

EIGHT_BIT_COMPUTE = 0.76
"""Of `compute_efficiency`: peaks of 8-bit arithmetic are farther than those of 16 bits."""
EIGHT_BIT_LAYER_US, EXPERT_LAYER_US = 9.6, 25.5
"""Small kernels of a layer: quantising activations; routing tokens to experts."""
EXPERT_BANDWIDTH, EXPERT_COMPUTE = 0.689, 0.225
LINK_EFFICIENCY = 0.65
DECODE_ATTENTION, DECODE_ATTENTION_FP8, PREFILL_ATTENTION = 0.85, 0.7, 0.62
"""Shares of the data sheet's peaks, and times, from the shipped tables like those above. The host, sampling and the
frontend are those beside a shipped table."""


def analytic(
    model: ModelShapes,
    gpu: Gpu,
    tensor_parallel: int,
    kv_bytes_per_token: float,
    kv_dtype: str | None,
    reach: Efficiency,
    waits: Host,
) -> StepTimes:
    """A table from the model's shapes and the GPU's data sheet, knot by knot."""
    attention_layers = model.layers - model.window_layers
    reading = DECODE_ATTENTION_FP8 if kv_dtype == "fp8" else DECODE_ATTENTION
    a_layer_us = kv_bytes_per_token / model.layers / (gpu.bandwidth_bytes_per_s * reading) * 1e6
    width = model.heads * model.head_dim * 2
    if model.mla is not None:
        width = model.heads * (model.mla.nope_dim + model.mla.rope_dim + model.mla.v_dim)
    pair_us = 2e6 * width * attention_layers / tensor_parallel / (gpu.bf16_flop_per_s * PREFILL_ATTENTION)
    times = [_knot_us(model, gpu, tensor_parallel, tokens, reach) for tokens in KNOTS]
    values = {
        "b0_us": max(reach.step_overhead_us + waits.step_us, 1.0),
        "b1_us_per_prefill_token": 0.0,
        "b2_us_per_decode_token": DECODER_US + waits.decoder_us,
        "b3_us_per_context_token": round(a_layer_us * attention_layers, 9),
        "b4_us_per_prefill_pair": round(pair_us, 12),
        "b5_us_per_prefill_step": PREFILL_STEP_US,
        "b6_us_per_window_token": round(a_layer_us * model.window_layers, 9),
        "window_tokens": model.window if model.window_layers else 0,
        "table_tokens": KNOTS,
        "table_us": tuple(round(us, 1) for us in times),
        "frontend_us": FRONTEND_US,
    }
    notes = (
        f"step times: a table from data sheets, as no shipped one is for {model.name} ({model.weight_dtype}) on "
        f"{tensor_parallel} x {gpu.name}: at each number of tokens the larger of bytes / bandwidth and arithmetic",
        f"of the data sheet kernels reach {reach.bandwidth_efficiency:.0%} of the bandwidth (bandwidth_efficiency), "
        f"{reach.compute_efficiency:.0%} of the arithmetic (compute_efficiency); experts {EXPERT_BANDWIDTH:.0%} and "
        f"{EXPERT_COMPUTE:.0%}; attention {reading:.0%} of the bandwidth in decodes, "
        f"{PREFILL_ATTENTION:.0%} of the arithmetic in prefills: as the shipped tables do",
        f"{_layer_us(model, reach):g} us a layer (layer_overhead_us), two all-reduces a layer of "
        f"{reach.allreduce_us:g} us (allreduce_us), {reach.step_overhead_us:g} us a step (step_overhead_us), "
        f"{DECODER_US:g} us a decoding request, {PREFILL_STEP_US:,.0f} us a step with prefill, "
        f"{FRONTEND_US / 1000:.1f} ms of frontend",
        waits.note,
        CHOICE,
    )
    return StepTimes("analytic", values, notes, _expected(model, gpu, "analytic"))


EIGHT_BIT = ("fp8", "int8")


def _layer_us(model: ModelShapes, reach: Efficiency) -> float:
    """Launches and small kernels of one layer."""
    quantised = EIGHT_BIT_LAYER_US if model.weight_dtype in EIGHT_BIT else 0.0
    return reach.layer_overhead_us + quantised + (EXPERT_LAYER_US if model.experts else 0.0)


def _knot_us(model: ModelShapes, gpu: Gpu, gpus: int, tokens: int, reach: Efficiency) -> float:
    """A step of so many tokens without attention: weights, experts, output layer, activations, all-reduces, layers."""
    bandwidth, peak = gpu.bandwidth_bytes_per_s, gpu.bf16_flop_per_s
    fast = {"fp8": gpu.fp8_flop_per_s, "int8": gpu.fp8_flop_per_s, "nvfp4": gpu.fp8_flop_per_s}

    def part(parameters: float, used: float, dtype: str, read: float, compute: float) -> float:
        flops = 2 * used * tokens / (fast.get(dtype, peak) * compute)
        return max(parameters * DTYPE_BYTES[dtype] / (bandwidth * read), flops) / gpus * 1e6

    always, read = model.always_parameters, reach.bandwidth_efficiency
    compute = reach.compute_efficiency * (EIGHT_BIT_COMPUTE if model.always_dtype in fast else 1.0)
    us = part(always, always, model.always_dtype, read, compute)
    if model.experts:
        share = model.experts_per_token / model.experts
        touched = 1 - (1 - share) ** tokens
        routed = model.routed_parameters
        us += part(routed * touched, routed * share, model.weight_dtype, EXPERT_BANDWIDTH, EXPERT_COMPUTE)
    us += part(model.head_parameters, 0.0, model.dtype, read, compute)  # prefills sample one token each
    # Activations: two norms read and write a token and its residual, on every GPU; the gate reads two and writes one
    wide = (model.experts_per_token * model.expert_intermediate if model.experts else model.intermediate) / gpus
    moved = (8 * model.hidden + 3 * wide) * DTYPE_BYTES[model.dtype] * tokens
    us += model.layers * (_layer_us(model, reach) + moved / (bandwidth * read) * 1e6)
    if gpus > 1:
        sent = 2 * (gpus - 1) / gpus * model.hidden * DTYPE_BYTES[model.dtype] * tokens
        us += 2 * model.layers * (reach.allreduce_us + sent / (gpu.link_bytes_per_s * LINK_EFFICIENCY) * 1e6)
    return us


# --- What to expect ---------------------------------------------------------------------------------------------------


def _expected(model: ModelShapes, gpu: Gpu, source: str) -> str:
    """What measurements say of such step times, in a sentence (see benchmarks/README.md)."""
    oss = model.name.startswith("gpt-oss")
    if model.experts and not oss:
        text = (
            "TPOT to about 30 %: of mixtures other than gpt-oss only Qwen3-235B was measured, whose TPOT is "
            f"{32 if source == 'analytic' else 26} % off in the median"
        )
    elif oss and gpu.name in ("b200", "gb200"):
        text = "TPOT is off by 15 % in the median where it was measured: vLLM runs other kernels there than the table's"
    elif source == "analytic":
        text = "TPOT and throughput to about 6 %, within 20 % nine times in ten"
    else:
        text = "TPOT and throughput to about 5 %, within 15 % nine times in ten"
    return text + "; TTFT by 5 to 60 % in the median, it depends on client and frontend"
