"""Step times of a model on GPUs without a run: a shipped table of measured kernels, else one from data sheets.

Both have the form of `LatencyConfig`: a table over a step's tokens, and terms beside it. What neither knows (the host,
sampling, the frontend) are six constants fitted to published measurements of vLLM; `benchmarks accuracy` says how well
they hold on them.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from fastsim.presets.gpu import Gpu
from fastsim.presets.model import DTYPE_BYTES, Model

KNOTS = tuple(2**i for i in range(14))
"""Tokens at which an analytic table has its knots."""


@dataclass(frozen=True)
class Efficiency:
    """What kernels reach of the data sheet, and fixed times: fitted together to published rows of vLLM.

    Attributes are those of `Deployment` by the same name.
    """

    bandwidth_efficiency: float = 0.745
    compute_efficiency: float = 0.572
    layer_overhead_us: float = 15.08
    step_overhead_us: float = 679.8
    allreduce_us: float = 12.6


@dataclass(frozen=True)
class StepTimes:
    """Keys below `latency.` and their values, where they come from, and what the source itself is off by."""

    source: str
    values: dict[str, Any]
    notes: tuple[str, ...]
    expected: str


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


def shipped(model: Model, gpu: Gpu, tensor_parallel: int, kv_dtype: str | None) -> StepTimes | None:
    """The table that comes with fastsim for this deployment; None when there is none."""
    data = _shipped()
    row = data["tables"].get(f"{model.name}|{gpu.name}|{tensor_parallel}|{model.weight_dtype}")
    if row is None:
        return None
    tokens_us, context_us, pair_us, decode_us, prefill_step_us, mean_pct, p99_pct, smoothed_pct = row
    measured_kv = TABLE_KV.get((model.name, model.weight_dtype), model.dtype)
    kv = DTYPE_BYTES[kv_dtype or model.dtype] / DTYPE_BYTES[measured_kv]
    values = {
        "b0_us": HOST_US,
        "b1_us_per_prefill_token": 0.0,
        "b2_us_per_decode_token": round(decode_us + DECODER_US, 4),
        "b3_us_per_context_token": round(ATTENTION_FACTOR * context_us * kv, 9),
        "b4_us_per_prefill_pair": round(ATTENTION_FACTOR * pair_us, 12),
        "b5_us_per_prefill_step": round(prefill_step_us + PREFILL_STEP_US, 2),
        "b6_us_per_window_token": 0.0,
        "window_tokens": 0,
        "table_tokens": tuple(data["knots"]),
        "table_us": tuple(round(TABLE_FACTOR * us, 1) for us in tokens_us),
        "frontend_us": FRONTEND_US,
    }
    name = data["models"][f"{model.name}|{model.weight_dtype}"]
    notes: tuple[str, ...] = (
        f"step times: a shipped table of {data['tool']} ({data['licence']}): measured kernels of vLLM for {name} on "
        f"{tensor_parallel} x {data['systems'][gpu.name]}; the table misses that tool by {mean_pct:g} % on average "
        f"(p99 {p99_pct:g} %), smoothing moved it by at most {smoothed_pct:g} %",
        f"six constants beside it, fitted to published measurements: {HOST_US:g} us a step, {DECODER_US:g} us a "
        f"decoding request, {PREFILL_STEP_US:,.0f} us a step with prefill, "
        f"{FRONTEND_US / 1000:.1f} ms of frontend, table x "
        f"{TABLE_FACTOR:g}, attention x {ATTENTION_FACTOR:g}",
    )
    notes += (CHOICE,)
    if kv != 1:
        notes += (f"attention scaled by {kv:g}: the table's KV cache is {measured_kv}",)
    return StepTimes("shipped", values, notes, _expected(model, gpu, "shipped"))


# --- From data sheets -------------------------------------------------------------------------------------------------

DECODE_ATTENTION, PREFILL_ATTENTION = 0.889, 0.304
EXPERT_BANDWIDTH, EXPERT_ARITHMETIC = 0.542, 0.187
ANALYTIC_DECODER_US, ANALYTIC_PREFILL_US, ANALYTIC_FRONTEND_US = 8.91, 970.2, 10590.7
"""Shares of the data sheet's peaks, and times; fitted together to the same published rows as the constants above."""


def analytic(model: Model, gpu: Gpu, tensor_parallel: int, kv_bytes_per_token: float, reach: Efficiency) -> StepTimes:
    """A table from the model's shapes and the GPU's data sheet, knot by knot."""
    attention_layers = model.layers - model.window_layers
    a_layer_us = kv_bytes_per_token / model.layers / (gpu.bandwidth_bytes_per_s * DECODE_ATTENTION) * 1e6
    width = model.heads * model.head_dim * 2
    if model.mla is not None:
        width = model.heads * (model.mla.nope_dim + model.mla.rope_dim + model.mla.v_dim)
    pair_us = 2e6 * width * attention_layers / tensor_parallel / (gpu.bf16_flop_per_s * PREFILL_ATTENTION)
    times = [_knot_us(model, gpu, tensor_parallel, tokens, reach) for tokens in KNOTS]
    values = {
        "b0_us": max(reach.step_overhead_us, 1.0),
        "b1_us_per_prefill_token": 0.0,
        "b2_us_per_decode_token": ANALYTIC_DECODER_US,
        "b3_us_per_context_token": round(a_layer_us * attention_layers, 9),
        "b4_us_per_prefill_pair": round(pair_us, 12),
        "b5_us_per_prefill_step": ANALYTIC_PREFILL_US,
        "b6_us_per_window_token": round(a_layer_us * model.window_layers, 9),
        "window_tokens": model.window if model.window_layers else 0,
        "table_tokens": KNOTS,
        "table_us": tuple(round(us, 1) for us in times),
        "frontend_us": ANALYTIC_FRONTEND_US,
    }
    notes = (
        f"step times: a table from data sheets, as no shipped one is for {model.name} ({model.weight_dtype}) on "
        f"{tensor_parallel} x {gpu.name}: at each number of tokens the larger of bytes / bandwidth and arithmetic",
        f"of the data sheet kernels reach {reach.bandwidth_efficiency:.0%} of the bandwidth (bandwidth_efficiency), "
        f"{reach.compute_efficiency:.0%} of the arithmetic (compute_efficiency); experts {EXPERT_BANDWIDTH:.0%} and "
        f"{EXPERT_ARITHMETIC:.0%}; attention {DECODE_ATTENTION:.0%} of the bandwidth in decodes, "
        f"{PREFILL_ATTENTION:.0%} of the arithmetic in prefills",
        f"{reach.layer_overhead_us:g} us a layer (layer_overhead_us), two all-reduces a layer of "
        f"{reach.allreduce_us:g} us (allreduce_us), {reach.step_overhead_us:g} us a step (step_overhead_us), "
        f"{ANALYTIC_DECODER_US:g} us a decoding request, {ANALYTIC_PREFILL_US:g} us a step with prefill, "
        f"{ANALYTIC_FRONTEND_US / 1000:.1f} ms of frontend",
        CHOICE,
    )
    return StepTimes("analytic", values, notes, _expected(model, gpu, "analytic"))


def _knot_us(model: Model, gpu: Gpu, gpus: int, tokens: int, reach: Efficiency) -> float:
    """One step of so many tokens without attention: weights, experts, output layer, all-reduces, layers."""
    bandwidth, peak = gpu.bandwidth_bytes_per_s, gpu.bf16_flop_per_s
    fast = {"fp8": gpu.fp8_flop_per_s, "int8": gpu.fp8_flop_per_s, "nvfp4": gpu.fp8_flop_per_s}

    def part(parameters: float, used: float, dtype: str, read: float, compute: float) -> float:
        flops = 2 * used * tokens / (fast.get(dtype, peak) * compute)
        return max(parameters * DTYPE_BYTES[dtype] / (bandwidth * read), flops) / gpus * 1e6

    always = model.always_parameters
    own = (reach.bandwidth_efficiency, reach.compute_efficiency)
    us = part(always, always, model.always_dtype, *own)
    if model.experts:
        share = model.experts_per_token / model.experts
        touched = 1 - (1 - share) ** tokens
        routed = model.routed_parameters
        us += part(routed * touched, routed * share, model.weight_dtype, EXPERT_BANDWIDTH, EXPERT_ARITHMETIC)
    us += part(model.head_parameters, 0.0, model.dtype, *own)  # prefills sample one token each
    us += model.layers * reach.layer_overhead_us
    if gpus > 1:
        sent = 2 * (gpus - 1) / gpus * model.hidden * DTYPE_BYTES[model.dtype] * tokens
        us += 2 * model.layers * (reach.allreduce_us + sent / (gpu.link_bytes_per_s * own[0]) * 1e6)
    return us


# --- What to expect ---------------------------------------------------------------------------------------------------


def _expected(model: Model, gpu: Gpu, source: str) -> str:
    """What measurements say of such step times, in a sentence (see benchmarks/README.md)."""
    if source == "analytic":
        text = "TPOT and throughput to about 15 %, within 25 to 30 % nine times in ten"
    elif model.name.startswith("gpt-oss") and gpu.name in ("b200", "gb200"):
        text = "TPOT is off by 23 % in the median where it was measured: vLLM runs other kernels there than the table's"
    elif model.name == "qwen3-235b-a22b":
        text = "TPOT is off by 25 % in the median where it was measured; why is not understood"
    else:
        text = "TPOT and throughput to about 10 %, within 20 % nine times in ten"
    return text + "; TTFT by 7 to 40 % in the median, it depends on client and frontend"
