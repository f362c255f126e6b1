"""One measured load as a load generator summarises it: what was sent, what came out, and how the engine was set."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from fastsim.config.engine import EngineConfig
from fastsim.errors import InputError
from fastsim.model import shown
from fastsim.workload.workload import Int32Array

THROUGHPUT = "request_throughput_req_per_s"
OUTPUT_THROUGHPUT = "output_throughput_tok_per_s"
STATISTICS = {"mean": "mean", "avg": "mean", "median": "p50", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
"""Names of statistics in files, and in result columns."""
QUANTILES = {"min": 0.0, "p1": 0.01, "p5": 0.05, "p10": 0.1, "p25": 0.25, "p50": 0.5, "median": 0.5, "p75": 0.75} | {
    "p90": 0.9,
    "p95": 0.95,
    "p99": 0.99,
    "p99.9": 0.999,
    "max": 1.0,
}
ENGINE_SETTINGS = (
    *("max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size", "num_gpu_blocks"),
    *("enable_prefix_caching", "enable_chunked_prefill", "long_prefill_token_threshold", "policy", "watermark"),
)
"""Settings of the engine that a result may state under vLLM's names."""


@dataclass(frozen=True)
class MeasuredLengths:
    """Tokens of a prompt or an output: their mean, and quantiles (share to tokens) where the file has them."""

    mean: float | None = None
    quantiles: Mapping[float, float] = field(default_factory=dict)

    def drawn(self, count: int, seed: int) -> Int32Array | None:
        """`count` lengths with these quantiles, in random order; None without quantiles."""
        if len(self.quantiles) < 3 or count < 1:
            return None
        shares = sorted(self.quantiles)
        values = np.interp((np.arange(count) + 0.5) / count, shares, [self.quantiles[share] for share in shares])
        drawn = np.random.default_rng([seed, count]).permutation(np.maximum(np.rint(values), 1))
        return drawn.astype(np.int32)


@dataclass(frozen=True)
class MeasuredLoad:
    """A measured load.

    Attributes
    ----------
    source, tool
        Name for messages (file, and which part of it), and the program that wrote it.
    load
        Settings of the workload that say what was sent (`workload.num_requests`, arrivals or concurrency).
    prompt, output
        Lengths in tokens.
    figures
        What was measured, by result column: times in ms, throughputs, and what an engine says of itself.
    engine
        Settings of the engine that the file states, by key.
    provenance
        Model, GPU, version, as far as the file says.
    notes
        Sentences on what was assumed.
    missing
        What the file does not say and must be given: key and sentence.
    pairs
        Prompt and output tokens of each request where they were recorded.
    """

    source: str
    tool: str
    load: Mapping[str, Any] = field(default_factory=dict)
    prompt: MeasuredLengths = MeasuredLengths()
    output: MeasuredLengths = MeasuredLengths()
    figures: Mapping[str, float] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    pairs: tuple[Int32Array, Int32Array] | None = None

    @property
    def load_in_words(self) -> str:
        """How requests were sent."""
        if "workload.concurrency" in self.load:
            clients = self.load["workload.concurrency"]
            return f"{clients} client{'s' * (clients != 1)}"
        if self.load.get("workload.arrival.kind") == "all_at_once":
            return "all at once"
        rate = self.load.get("workload.arrival.rate_per_s")
        return f"{rate:g}/s" if rate is not None else "not said"


def figure_columns(tables: Mapping[str, Mapping[str, Any]], scale_ms: float = 1.0) -> dict[str, float]:
    """Result columns from tables of statistics: latency (ttft, tpot, itl, e2e) to its statistics; `scale_ms` each."""
    figures: dict[str, float] = {}
    for latency, table in tables.items():
        for name, statistic in STATISTICS.items():
            value = table.get(name)
            if is_number(value) and 0 < value < math.inf:
                figures.setdefault(column_of(latency, statistic), float(value) * scale_ms)
    return figures


def column_of(latency: str, statistic: str) -> str:
    """The result column of a latency's statistic: means are of those served."""
    if statistic != "mean":
        return f"{latency}_{statistic}_ms"
    return "itl_mean_ms" if latency == "itl" else f"{latency}_served_mean_ms"


def lengths_of(table: Any, mean: str = "mean") -> MeasuredLengths:
    """Lengths from a table of statistics with quantiles."""
    if not isinstance(table, Mapping):
        return MeasuredLengths()
    quantiles = {share: float(table[name]) for name, share in QUANTILES.items() if is_number(table.get(name))}
    value = table.get(mean)
    return MeasuredLengths(float(value) if is_number(value) and value > 0 else None, quantiles)


def engine_settings(table: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's settings among the entries of a table, whether written with dashes or underscores."""
    known = {name for name in ENGINE_SETTINGS if name in EngineConfig.model_fields}
    named = {str(key).lstrip("-").replace("-", "_"): value for key, value in table.items()}
    return {f"engine.{name}": named[name] for name in sorted(known) if is_setting(named.get(name))}


def is_setting(value: Any) -> bool:
    """Whether a value can be a setting's (results leave what was not set as null)."""
    return isinstance(value, bool | int | float | str) and value != ""


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def count_of(where: str, table: Mapping[str, Any], key: str) -> int:
    """A number of requests of at least 1.

    Raises
    ------
    InputError
        When it is missing or something else.
    """
    value = table.get(key)
    if not is_number(value) or value < 1 or value != int(value):
        raise InputError(f"{where}: {key} = {shown(value)}, but a whole number of at least 1 was expected")
    return int(value)


def positive(where: str, table: Mapping[str, Any], key: str) -> float:
    """A number above 0.

    Raises
    ------
    InputError
        When it is missing or something else.
    """
    value = table.get(key)
    if not is_number(value) or value <= 0:
        raise InputError(f"{where}: {key} = {shown(value)}, but a number above 0 was expected")
    return float(value)


def sent(where: str, rate: Any, clients: Any, burstiness: Any = None) -> tuple[dict[str, Any], list[str]]:
    """How requests were sent, as settings of the workload, and notes: at a rate, by clients, or all at once.

    Raises
    ------
    InputError
        When the rate, the burstiness or the number of clients is no number above 0.
    """
    if rate in ("inf", math.inf, None):
        if clients is None:
            return {"workload.arrival.kind": "all_at_once"}, []
        return {"workload.concurrency": count_of(where, {"max_concurrency": clients}, "max_concurrency")}, []
    notes = []
    if clients is not None:
        notes.append(
            "max_concurrency is left out where a rate is given: requests are simulated as they would have come"
        )
    values: dict[str, Any] = {"workload.arrival.rate_per_s": positive(where, {"request_rate": rate}, "request_rate")}
    shape = 1.0 if burstiness in (None, 1) else positive(where, {"burstiness": burstiness}, "burstiness")
    if shape == 1.0:
        return values | {"workload.arrival.kind": "poisson"}, notes
    return values | {"workload.arrival.kind": "gamma", "workload.arrival.cv": min(max(shape**-0.5, 0.01), 100.0)}, notes


def name_of(path: Path, part: str = "") -> str:
    """A file's name for tables, with its folder where that says more than the name, and a part of it."""
    stem = f"{path.parent.name}/{path.name}" if path.name.startswith("run=") else path.name
    return f"{stem}{part}"


def paired(prompts: Any, outputs: Any, count: int) -> tuple[Int32Array, Int32Array] | None:
    """Recorded lengths of all requests, if both lists are there and complete."""
    lists: Sequence[Any] = (prompts, outputs)
    if not all(isinstance(each, list) and len(each) == count and all(map(is_number, each)) for each in lists):
        return None
    first, second = (np.maximum(np.asarray(each, np.int64), 1).astype(np.int32) for each in lists)
    return first, second
