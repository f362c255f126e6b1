"""What is believed of the coefficients before a run is looked at, and how firmly.

One run seldom tells all four apart: while the KV cache is full, batch and context stand still, and fixed time, time a
request and time a context token look alike. A weak pull towards data sheets settles what the run leaves open.

Where a table of step times is known for what ran, three numbers are fitted instead of four coefficients: a factor of
the table, the fixed time of a step (the host's), and that of a step with prefill. The rest stays the table's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.analysis.calibrate.run import MeasuredRun
from fastsim.config import Config
from fastsim.engines import engine_of
from fastsim.errors import InputError
from fastsim.presets import Estimate, estimate, load_gpu, load_model
from fastsim.presets.shapes import DTYPE_BYTES
from fastsim.presets.step_times import StepTimes

Floats = npt.NDArray[np.float64]

COEFFICIENTS = ("b0_us", "b1_us_per_prefill_token", "b2_us_per_decode_token", "b3_us_per_context_token")
SCALE, PREFILL_STEP = "table_scale", "b5_us_per_prefill_step"
TABLE_TERMS = (SCALE, "b0_us", PREFILL_STEP)
FRONTEND = "frontend_us"
BLOCKS = "num_gpu_blocks"

ROOFLINE_SPREAD = (0.2, 0.4, 1.0, 0.3)
"""Standard deviations of the logarithms around a roofline: memory traffic is known well, arithmetic less, sampling
and launches hardly."""
PROPORTIONS_SPREAD = (0.4, 0.7, 1.5, 0.7)
"""The same around the usual proportions."""
TABLE_SPREAD = (0.2, 1.5, 0.7)
"""Around a table's terms: kernels are known, what the host adds is not."""
LEAST_HOST_US = 300.0
"""Centre of the fixed time beside a table, where the table's own is less: logarithms are fitted, and a run whose host
is not hidden adds a millisecond."""
PREFILL_RATIO, DECODE_RATIO, CONTEXT_RATIO = 1 / 200, 1e-3, 1e-5
"""Other coefficients over the fixed time of a step, when nothing else is known: a GPU computes about 200 tokens while
it reads the weights once, and a token's KV cache is about a hundred thousandth of the weights."""


@dataclass(frozen=True)
class Prior:
    """Centres and log standard deviations of the parameters, shape (num_parameters,), and where they come from."""

    names: tuple[str, ...]
    centre: Floats
    spread: Floats
    source: str
    fixed: dict[str, Any] = field(default_factory=dict)
    """Keys of the table and of the terms beside it that stand as they are, with their values; none: linear."""


def prior_of(
    run: MeasuredRun,
    model: str | None,
    gpu: str | None,
    *,
    frontend: bool = False,
    blocks: bool = False,
    table: bool = False,
) -> Prior:
    """The prior of a run: a roofline when model and GPU are known, else usual proportions of the measured time.

    With `table` the table of step times that presets have, as `has_table` says, and its terms.

    Raises
    ------
    InputError
        When `model` or `gpu` is given and not known.
    """
    preset, why = preset_of(run.provenance, run.config, model, gpu)
    names = list(COEFFICIENTS)
    fixed: dict[str, Any] = {}
    if table and preset is not None and preset.step_times is not None:
        names, centre, spread, fixed, why = table_terms(preset.step_times, why)
    elif preset is not None:
        centre = [getattr(preset, name) for name in COEFFICIENTS]
        spread = list(ROOFLINE_SPREAD)
    else:
        centre, spread = _proportions(run), list(PROPORTIONS_SPREAD)
    if frontend:
        names, centre, spread = [*names, FRONTEND], [*centre, 5000.0], [*spread, 1.5]
    if blocks:
        given = run.config.engine.num_gpu_blocks or (preset.num_gpu_blocks if preset is not None else None)
        names, centre = [*names, BLOCKS], [*centre, float(given or _busy_blocks(run))]
        spread = [*spread, 0.3 if given else 1.0]
    return Prior(tuple(names), np.array(centre), np.array(spread), why, fixed)


def table_terms(times: StepTimes, what: str) -> tuple[list[str], list[float], list[float], dict[str, Any], str]:
    """Names, centres and spreads of what is fitted beside a table, the keys that stand, and where it comes from."""
    values = times.values
    centre = [1.0, max(values["b0_us"], LEAST_HOST_US), max(values[PREFILL_STEP], LEAST_HOST_US)]
    left = (*TABLE_TERMS, FRONTEND)
    fixed = {f"latency.{name}": value for name, value in values.items() if name not in left}
    kind = "the shipped table" if times.source == "shipped" else "the table from data sheets"
    return list(TABLE_TERMS), centre, list(TABLE_SPREAD), fixed, f"{kind} of {what.removeprefix('roofline of ')}"


def has_table(provenance: Mapping[str, str], config: Config, model: str | None, gpu: str | None) -> bool:
    """Whether a table of step times is known for what ran, by an engine that has such."""
    preset, _ = preset_of(provenance, config, model, gpu)
    return preset is not None and preset.step_times is not None and engine_of(config.engine.name).table_time


def preset_of(
    provenance: Mapping[str, str], config: Config, model: str | None, gpu: str | None
) -> tuple[Estimate | None, str]:
    """The roofline of what ran, as given or as the run says, and where the prior comes from; None if not known.

    Raises
    ------
    InputError
        When `model` or `gpu` is given and not known.
    """
    model_name, gpu_name = model or provenance.get("model"), gpu or provenance.get("gpu")
    if model_name is None or gpu_name is None:
        return None, "usual proportions of the measured time per output token (model or GPU are not known)"
    try:
        plan: dict[str, Any] = {
            "tensor_parallel": int(provenance.get("tensor_parallel", "1")),
            "max_num_seqs": config.engine.max_num_seqs,
            "max_num_batched_tokens": config.engine.max_num_batched_tokens,
        }
        if (dtype := provenance.get("quantization")) in DTYPE_BYTES:
            plan["weight_dtype"] = dtype
        found = estimate(load_model(model_name), load_gpu(gpu_name), **plan)
    except InputError as error:
        if model is not None or gpu is not None:
            raise
        return None, f"usual proportions of the measured time per output token ({error})"
    return found, f"roofline of {model_name} on {gpu_name}"


def _proportions(run: MeasuredRun) -> list[float]:
    """Coefficients that split the median time per output token in the usual proportions."""
    tpot = float(np.nanmedian(run.tpot_us))
    if not np.isfinite(tpot) or tpot <= 0:
        tpot = float(np.nanmedian(run.e2e_us - run.ttft_us)) or 10_000.0
    workload = run.workload
    decoding_us = np.nansum(run.e2e_us - run.ttft_us)
    span_us = float(np.nanmax(workload.arrival_us + run.e2e_us) - workload.arrival_us.min())
    batch = max(float(decoding_us) / max(span_us, 1.0), 1.0)
    context = float(np.mean(workload.prompt_tokens + workload.output_tokens / 2))
    return proportions(tpot, batch, context)


def proportions(tpot_us: float, batch: float, context_tokens: float) -> list[float]:
    """Coefficients that split a time per output token, with so many requests decoding, in the usual proportions."""
    fixed = max(tpot_us / (1 + batch * (DECODE_RATIO + context_tokens * CONTEXT_RATIO)), 1.0)
    return [fixed, fixed * PREFILL_RATIO, fixed * DECODE_RATIO, fixed * CONTEXT_RATIO]


def _busy_blocks(run: MeasuredRun) -> int:
    """Blocks that the requests decoding at the busiest moment hold: a pool cannot be much smaller."""
    start, end = run.workload.arrival_us + run.ttft_us, run.workload.arrival_us + run.e2e_us
    held = (run.workload.prompt_tokens + run.workload.output_tokens / 2) / run.config.engine.block_size
    busy = [float(held[(start <= moment) & (moment < end)].sum()) for moment in start[np.isfinite(start)]]
    return max(int(max(busy)), 16)
