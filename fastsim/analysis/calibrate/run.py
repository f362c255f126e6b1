"""A measured run: its requests, what was measured of each, and the settings of the engine that served them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.config import Config
from fastsim.config.derived import with_values
from fastsim.config.keys import KEYS
from fastsim.config.spec import load_spec
from fastsim.engines import check_ability
from fastsim.errors import InputError
from fastsim.model import shown
from fastsim.workload import Workload, load_trace

Floats = npt.NDArray[np.float64]

META = "meta.json"

META_KEYS = {
    "engine.num_gpu_blocks": ("kv_cache.num_gpu_blocks", "resolved_config.cache_config.num_gpu_blocks"),
    "engine.block_size": ("kv_cache.block_size", "resolved_config.cache_config.block_size"),
    "engine.enable_prefix_caching": (
        "kv_cache.enable_prefix_caching",
        "resolved_config.cache_config.enable_prefix_caching",
    ),
    "engine.max_num_seqs": ("resolved_config.scheduler_config.max_num_seqs", "engine_kwargs.max_num_seqs"),
    "engine.max_num_batched_tokens": (
        "resolved_config.scheduler_config.max_num_batched_tokens",
        "engine_kwargs.max_num_batched_tokens",
    ),
    "engine.max_num_scheduled_tokens": ("resolved_config.scheduler_config.max_num_scheduled_tokens",),
    "engine.long_prefill_token_threshold": ("resolved_config.scheduler_config.long_prefill_token_threshold",),
    "engine.enable_chunked_prefill": ("resolved_config.scheduler_config.enable_chunked_prefill",),
    "engine.scheduler_reserve_full_isl": ("resolved_config.scheduler_config.scheduler_reserve_full_isl",),
    "engine.policy": ("resolved_config.scheduler_config.policy",),
    "engine.max_model_len": ("resolved_config.model_config.max_model_len", "engine_kwargs.max_model_len"),
}
"""Where the settings stand in the meta.json of LLMServingSim's bench, which holds vLLM's resolved configuration."""

TABLES = (
    *("engine", "engine_args", "engine_kwargs", "engine_config", "vllm_config", "config", "args", "server_args"),
    *("cache_config", "scheduler_config", "model_config", "parallel_config"),
    *(f"vllm_config.{name}_config" for name in ("cache", "scheduler", "model", "parallel")),
)
"""Where else a meta.json may hold them, by vLLM's names."""

EXPERT_PARALLEL = (
    "engine_kwargs.enable_expert_parallel",
    "resolved_config.parallel_config.enable_expert_parallel",
)
ASSUMED = ("max_num_seqs", "max_num_batched_tokens", "block_size", "enable_prefix_caching")
"""Settings that are worth a word when neither meta.json nor --set gives them."""


@dataclass(frozen=True)
class MeasuredRun:
    """What was measured.

    Attributes
    ----------
    source
        Name for messages and provenance.
    workload
        The requests, arrivals from 0.
    ttft_us, e2e_us
        Measured, float64, shape (num_requests,); NaN where not.
    config
        The engine's settings: of meta.json, then those given.
    engine_clock
        Whether times are the engine's own (nothing outside of it is in them).
    provenance
        What the run says of itself: model, GPU, version.
    notes
        Sentences on what was assumed or left out.
    """

    source: str
    workload: Workload
    ttft_us: Floats
    e2e_us: Floats
    config: Config
    engine_clock: bool
    provenance: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def release(self) -> str | None:
        """The release of the server, where the run says it."""
        return self.provenance.get("vllm")

    @property
    def tpot_us(self) -> Floats:
        """Time per output token after the first; NaN for outputs of one token."""
        gaps = self.workload.output_tokens - 1.0
        return np.where(gaps >= 1, (self.e2e_us - self.ttft_us) / np.maximum(gaps, 1.0), np.nan)


def read_run(path: str | Path, sets: Sequence[str] = (), *, format: str | None = None) -> MeasuredRun:  # noqa: A002
    """Read a measured run: a file, or a folder with `requests.jsonl` and `meta.json`.

    Parameters
    ----------
    path
        Requests in any format that holds first- and last-token times.
    sets
        `key=value` settings of the engine; they win over meta.json.
    format
        Key of the trace format; none: recognised.

    Raises
    ------
    InputError
        When the file has no such times, too few requests, or a setting is wrong.
    """
    path = Path(path)
    trace = load_trace(path, format)
    if trace.ttft_us is None or trace.e2e_us is None:
        raise InputError(
            f"{path}: the {trace.format} format has no times of first and last tokens, but a measured run was expected "
            "(vLLM engine times, vllm bench serve JSON, guidellm JSON, or a plain CSV with ttft_s and e2e_s)"
        )
    measured = np.isfinite(trace.ttft_us) & np.isfinite(trace.e2e_us)
    if np.count_nonzero(measured) < 10:
        raise InputError(
            f"{path}: {np.count_nonzero(measured)} requests have times of first and last tokens, "
            "but at least 10 were expected"
        )
    meta = _read_meta(path / META if path.is_dir() else path.parent / META)
    _check_one_engine(meta, str(path))
    settings = _settings(meta)
    given = load_spec(None, sets).settings
    base = with_values(Config(), settings | given)
    notes = _differences(meta, base.engine.name)
    longest = int((trace.prompt_tokens.astype(np.int64) + trace.output_tokens).max())
    if "engine.max_model_len" not in settings | given and longest > base.engine.max_model_len:
        base = with_values(base, {"engine.max_model_len": longest})
        notes.append(f"engine.max_model_len is not given: taken as the longest request, {longest}")
    assumed = [name for name in ASSUMED if f"engine.{name}" not in settings | given]
    if assumed:
        words = ", ".join(f"engine.{name} {shown(getattr(base.engine, name))}" for name in assumed)
        notes.append(f"neither {META} nor --set says, and vLLM's defaults are assumed: {words}")
    check_ability(base.engine.name, "has_sessions", "calibration runs them thousands of times in one memory")
    notes += trace.report.notes
    notes += [
        f"{count} rows cannot be used, and are no load in the simulation: {reason}"
        for reason, count in trace.report.unusable.items()
    ]
    workload = Workload.from_arrays(
        trace.arrival_us,
        trace.prompt_tokens,
        trace.output_tokens,
        max_tokens=trace.max_tokens,
        priority=trace.priority,
        prefix_group=trace.prefix_group,
        prefix_tokens=trace.prefix_tokens,
        groups=trace.groups,
        report=trace.report,
    )
    return MeasuredRun(
        source=path.name,
        workload=workload,
        ttft_us=trace.ttft_us,
        e2e_us=trace.e2e_us,
        config=base,
        engine_clock=trace.engine_clock,
        provenance=_provenance(meta),
        notes=tuple(notes),
    )


def _read_meta(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    try:
        meta = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not readable JSON ({error}), but the run's settings were expected") from None
    if not isinstance(meta, dict):
        raise InputError(f"{path}: not a JSON object, but the run's settings were expected")
    return meta


def _find(meta: Mapping[str, Any], dotted: str) -> Any:
    value: Any = meta
    for part in dotted.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _first(meta: Mapping[str, Any], places: Sequence[str]) -> Any:
    """The value at the first of these places that has one; else of the last one's name, in any of `TABLES`."""
    name = places[-1].rpartition(".")[2]
    everywhere = (*places, name, *(f"{table}.{name}" for table in TABLES))
    return next((found for place in everywhere if (found := _find(meta, place)) is not None), None)


def _settings(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by key."""
    settings = {}
    for key, places in META_KEYS.items():
        value = _first(meta, places)
        if value is not None:
            settings[key] = KEYS[key].validate(value, META)
    return settings


def _differences(meta: Mapping[str, Any], engine: str) -> list[str]:
    """Sentences on what the simulated engine does otherwise than the one that ran."""
    notes = []
    if version := _find(meta, "vllm_version"):
        notes.append(
            f"vLLM {version} is simulated by the rules of {engine} with the run's own settings "
            "(engine.name chooses another)"
        )
    if _find(meta, "resolved_config.scheduler_config.async_scheduling") and not engine.endswith("-async"):
        notes.append(
            "the run scheduled asynchronously (one step ahead); simulated is the synchronous scheduler, whose "
            "coefficients take in what the overlap hides"
        )
    if _first(meta, EXPERT_PARALLEL) is True:
        notes.append(
            "the run split experts over GPUs (enable_expert_parallel): tables of step times split each expert, which "
            "moves the same bytes and other messages; the factor of the table takes in the difference"
        )
    return notes


def _check_one_engine(meta: Mapping[str, Any], source: str) -> None:
    """Refuse a run of several engines: fitted as one, its step times would be wrong, and nothing would show it.

    Raises
    ------
    InputError
        When the run's meta.json says that it was served data-parallel.
    """
    places = ("engine_kwargs.data_parallel_size", "resolved_config.parallel_config.data_parallel_size")
    engines = _first(meta, (*places, "data_parallel_size"))
    if isinstance(engines, int) and engines > 1:
        raise InputError(
            f"{source}: data_parallel_size = {engines}, but 1 was expected: {engines} engines shared these requests, "
            "and which served which is not recorded; calibrate on a run of one engine"
        )


def _provenance(meta: Mapping[str, Any]) -> dict[str, str]:
    places = {
        "model": ("model", "engine_kwargs.model"),
        "gpu": ("hardware.device_name", "device_name", "gpu_name", "gpu"),
        "vllm": ("vllm_version",),
        "tensor_parallel": (
            "engine_kwargs.tensor_parallel_size",
            "resolved_config.parallel_config.tensor_parallel_size",
        ),
        "quantization": ("resolved_config.model_config.quantization",),
    }
    found = {}
    for name, options in places.items():
        value = _first(meta, options)
        if value is not None and not isinstance(value, Mapping):
            found[name] = str(value)
    return found
