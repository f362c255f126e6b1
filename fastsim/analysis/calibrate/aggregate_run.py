"""Results that hold only means and percentiles, one a request rate: what was sent, and what came out."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastsim.config import Config, WorkloadConfig, load_spec
from fastsim.config.derived import with_values
from fastsim.errors import InputError
from fastsim.workload import Workload, build_workload
from fastsim.workload.workload import Int32Array

METRICS = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e"}
"""Names in the results of `vllm bench serve`, and in the columns here."""
STATISTICS = {"mean": "mean", "median": "p50", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
THROUGHPUT = "request_throughput_req_per_s"
LENGTHS = ("input_lens", "output_lens")


@dataclass(frozen=True)
class Level:
    """One result.

    Attributes
    ----------
    source
        Its file.
    recipe
        The requests as a description: number, rate, burstiness, lengths.
    lengths
        Prompt and output tokens of each request where they were recorded, int32 arrays; else None.
    figures
        What was measured, by result column: times in ms, and the throughput.
    """

    source: str
    recipe: WorkloadConfig
    lengths: tuple[Int32Array, Int32Array] | None
    figures: dict[str, float]

    def workload(self, seed: int) -> Workload:
        """Its requests, drawn anew for each seed."""
        drawn = build_workload(self.recipe.model_copy(update={"seed": seed}))
        if self.lengths is None:
            return drawn
        return Workload.from_arrays(drawn.arrival_us, *self.lengths, concurrency=drawn.concurrency)

    @property
    def load(self) -> str:
        """Its load in words."""
        if self.recipe.concurrency is not None:
            return f"{self.recipe.concurrency} clients"
        kind = self.recipe.arrival.kind
        return "all at once" if kind == "all_at_once" else f"{self.recipe.arrival.rate_per_s:g}/s"


@dataclass(frozen=True)
class Levels:
    """Results of one server: the engine's settings, the levels, sentences on what was assumed."""

    config: Config
    levels: tuple[Level, ...]
    provenance: dict[str, str]
    notes: tuple[str, ...]


def result_files(paths: Sequence[str | Path]) -> list[Path]:
    """The JSON files of the arguments, those of a folder in order of their names."""
    found: list[Path] = []
    for each in map(Path, paths):
        found += sorted(each.glob("*.json")) if each.is_dir() else [each]
    return found


def is_aggregate(paths: Sequence[str | Path]) -> bool:
    """Whether the arguments are results without per-request times: several files, or one that has only percentiles."""
    first = Path(paths[0])
    if len(paths) == 1 and first.is_dir():
        return not (first / "requests.jsonl").is_file() and bool(result_files(paths))
    if len(paths) > 1:
        return True
    document = _read(first) if first.suffix == ".json" and first.is_file() else None
    return document is not None and _has_figures(document) and not document.get("ttfts")


def read_levels(paths: Sequence[str | Path], sets: Sequence[str] = ()) -> Levels:
    """Read results of `vllm bench serve --save-result`, one file a rate.

    Parameters
    ----------
    paths
        Files, or a folder of them.
    sets
        `key=value` settings of the engine that served them, and of lengths that results do not record
        (`workload.prompt.dist`, ...).

    Raises
    ------
    InputError
        When a file is no such result, or a setting is wrong.
    """
    files = result_files(paths)
    if not files:
        raise InputError(f"{paths[0]}: has no *.json, but results of vllm bench serve were expected, one a rate")
    config = with_values(Config(), load_spec(None, sets).settings)
    if not config.engine.is_vllm:
        raise InputError(
            f"engine.name = {config.engine.name!r}, but one of vLLM's engines was expected for calibration"
        )
    notes: dict[str, None] = {}
    levels = []
    models = set()
    for file in files:
        document = _read(file)
        if document is None or not _has_figures(document):
            raise InputError(
                f"{file}: has no mean_ttft_ms, but a result of vllm bench serve --save-result was expected"
            )
        levels.append(_level(file, document, config.workload, notes))
        models.add(str(document.get("model_id", "")))
    if len(models) > 1:
        raise InputError(f"results of {', '.join(sorted(models))}, but those of one model were expected")
    name = models.pop()
    longest = max(_longest(level) for level in levels)
    if longest > config.engine.max_model_len:
        config = with_values(config, {"engine.max_model_len": longest})
        notes[f"engine.max_model_len is not given: taken as the longest request, {longest}"] = None
    return Levels(config, tuple(levels), {"model": name} if name else {}, tuple(notes))


def _read(file: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}), but a result was expected") from None
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _has_figures(document: Mapping[str, Any]) -> bool:
    return "mean_ttft_ms" in document and "completed" in document


def _level(file: Path, document: Mapping[str, Any], given: WorkloadConfig, notes: dict[str, None]) -> Level:
    completed = _number(file, document, "completed")
    if completed < 1:
        raise InputError(f"{file}: completed = {completed:g}, but at least 1 request was expected")
    count = int(_number(file, document, "num_prompts")) if "num_prompts" in document else int(completed)
    if count > completed:
        notes[f"{file.name}: {count - int(completed)} of {count} requests failed: simulated are those completed"] = None
        count = int(completed)
    lists = [document.get(name) for name in LENGTHS]
    lengths = None
    if all(isinstance(each, list) and len(each) == count for each in lists):
        lengths = tuple(np.maximum(np.asarray(each, np.int64), 1).astype(np.int32) for each in lists)
    values: dict[str, Any] = {"workload.num_requests": count} | _arrivals(file, document, notes)
    for name, key in (("prompt", "total_input_tokens"), ("output", "total_output_tokens")):
        if getattr(given, name).dist is None:
            mean = _number(file, document, key) / completed
            values |= {f"workload.{name}.dist": "constant", f"workload.{name}.mean": max(mean, 1.0)}
            if lengths is None:
                notes[
                    f"{name} lengths are not recorded: all are taken as their mean, unless workload.{name}.dist says "
                    "otherwise"
                ] = None
    figures = {THROUGHPUT: _number(file, document, "request_throughput")} if "request_throughput" in document else {}
    for theirs, ours in METRICS.items():
        for statistic, column in STATISTICS.items():
            value = document.get(f"{statistic}_{theirs}_ms")
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
                name = f"{ours}_mean_ms" if ours == "itl" else f"{ours}_served_mean_ms"
                figures[name if column == "mean" else f"{ours}_{column}_ms"] = float(value)
    recipe = with_values(Config(workload=given), values).workload
    return Level(file.name, recipe, (lengths[0], lengths[1]) if lengths else None, figures)


def _arrivals(file: Path, document: Mapping[str, Any], notes: dict[str, None]) -> dict[str, Any]:
    """How requests were sent: at a rate, all at once, or by a number of clients."""
    rate, clients = document.get("request_rate"), document.get("max_concurrency")
    if rate in ("inf", math.inf, None):
        if clients is None:
            return {"workload.arrival.kind": "all_at_once"}
        return {"workload.concurrency": int(_number(file, document, "max_concurrency"))}
    if clients is not None:
        notes["max_concurrency is left out where a rate is given: requests are simulated as they would have come"] = (
            None
        )
    shape = document.get("burstiness") or 1.0
    values = {"workload.arrival.rate_per_s": _number(file, document, "request_rate")}
    if shape == 1.0:
        return values | {"workload.arrival.kind": "poisson"}
    cv = _number(file, document, "burstiness") ** -0.5
    return values | {"workload.arrival.kind": "gamma", "workload.arrival.cv": min(max(cv, 0.01), 100.0)}


def _number(file: Path, document: Mapping[str, Any], key: str) -> float:
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise InputError(f"{file}: {key} = {value!r}, but a number of at least 0 was expected")
    if value == 0 and key in ("request_rate", "burstiness", "max_concurrency"):
        raise InputError(f"{file}: {key} = 0, but a number above 0 was expected")
    return float(value)


def _longest(level: Level) -> int:
    workload = level.workload(0)
    return int((workload.prompt_tokens.astype(np.int64) + workload.output_tokens).max())
