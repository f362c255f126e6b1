"""inference-perf's configuration (YAML): load stages and length distributions, from which requests are drawn.

`load.type` constant or poisson, `load.stages[].{rate,duration}` one after the other with `load.interval` seconds
(default 1) between them; `data.{input,output}_distribution.{min,max,mean,std_dev}` are clipped normals, and
`data.shared_prefix` gives groups that share a system prompt. Everything else does not touch the traffic.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fastsim.errors import InputError
from fastsim.model import shown
from fastsim.workload.readers.files import MAX_LINE_BYTES, read_text
from fastsim.workload.readers.table import Floats, microseconds
from fastsim.workload.readers.yaml_subset import parse
from fastsim.workload.trace import Format, Head, Trace, Window, in_window
from fastsim.workload.workload import INT32_MAX, Int32Array, Report

STREAM = 11
"""Seed word of the stream."""
MOST_REQUESTS = 10**7


def draw(path: Path, seed: int, window: Window) -> Trace:
    """Draw the requests that a configuration describes.

    Raises
    ------
    InputError
        When the file is not such a configuration.
    """
    document = _document(path)
    load, data = _table(path, document, "load"), _table(path, document, "data")
    rng = np.random.default_rng([seed, STREAM])
    arrival_s = _arrivals(path, load, rng)
    count = len(arrival_s)
    shared = data.get("shared_prefix")
    trace = Trace(str(path), FORMAT.name, microseconds(arrival_s), _ones(count), _ones(count), Report(count, count))
    if isinstance(shared, Mapping) and data.get("type") in (None, "shared_prefix"):
        trace = _with_shared_prefix(path, trace, shared, rng)
    else:
        trace = replace(
            trace,
            prompt_tokens=_lengths(path, data, "input_distribution", count, rng),
            output_tokens=_lengths(path, data, "output_distribution", count, rng),
        )
    return in_window(trace, window)


def _ones(count: int) -> Int32Array:
    return np.ones(count, np.int32)


def _document(path: Path) -> Mapping[str, Any]:
    try:
        document = parse(read_text(path, "a YAML file", MAX_LINE_BYTES))
    except ValueError as error:
        raise InputError(f"{path}: not readable YAML: {error}") from None
    if not isinstance(document, Mapping):
        raise InputError(f"{path}: not a mapping, but an inference-perf configuration was expected")
    return document


def _table(path: Path, document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = document.get(name)
    if not isinstance(table, Mapping):
        raise InputError(f"{path}: {name} is missing, but inference-perf's {name} section was expected")
    return table


def _number(path: Path, table: Mapping[str, Any], key: str, where: str, default: float | None = None) -> float:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e18:
        raise InputError(f"{path}: {where}.{key} = {shown(value)}, but a number of at least 0 was expected")
    return float(value)


def _arrivals(path: Path, load: Mapping[str, Any], rng: np.random.Generator) -> Floats:
    """Arrival times in seconds of all stages."""
    kind = load.get("type", "constant")
    if kind not in ("constant", "poisson"):
        raise InputError(f'{path}: load.type = {shown(kind)}, but "constant" or "poisson" was expected')
    if isinstance(load.get("sweep"), Mapping) and not load.get("stages"):
        raise InputError(
            f"{path}: load.sweep finds its rates by measuring a server first, so that they do not stand in the file, "
            "but load.stages with a rate and a duration each was expected (the stages that inference-perf then ran)"
        )
    stages = load.get("stages")
    if not isinstance(stages, list) or not stages:
        raise InputError(f"{path}: load.stages is missing or empty, but a list of stages was expected")
    pause = _number(path, load, "interval", "load", 1.0)
    start, parts, total = 0.0, [], 0
    for index, stage in enumerate(stages):
        where = f"load.stages[{index}]"
        if not isinstance(stage, Mapping):
            raise InputError(f"{path}: {where} = {shown(stage)}, but a rate and a duration were expected")
        rate, duration = _number(path, stage, "rate", where), _number(path, stage, "duration", where)
        count = int(rate * duration)
        total += count
        if total > MOST_REQUESTS:
            raise InputError(f"{path}: load.stages make more than {MOST_REQUESTS} requests, but fewer were expected")
        if kind == "constant":
            parts.append(start + np.arange(count) / max(rate, 1e-300))
        else:
            gaps = rng.standard_exponential(int(count + 6 * math.sqrt(count) + 6)) / max(rate, 1e-300)
            times = np.cumsum(gaps)
            parts.append(start + times[times < duration])
        start += duration + pause
    return np.concatenate(parts)


def _lengths(path: Path, data: Mapping[str, Any], key: str, count: int, rng: np.random.Generator) -> Int32Array:
    """Lengths of a clipped normal, as inference-perf draws them."""
    table = _table(path, data, key)
    where = f"data.{key}"
    kind = table.get("type", "normal")
    if kind not in ("normal", "uniform", "fixed"):
        raise InputError(f'{path}: {where}.type = {shown(kind)}, but "normal", "uniform" or "fixed" was expected')
    mean = _number(path, table, "mean", where, 512.0)
    low = max(_number(path, table, "min", where, 1.0 if kind != "fixed" else mean), 1.0)
    high = _number(path, table, "max", where, 1024.0 if kind != "fixed" else mean)
    if not low <= high <= INT32_MAX:
        raise InputError(
            f"{path}: {where}.min = {low:g} and max = {high:g}, but min <= max <= {INT32_MAX} was expected"
        )
    if kind == "normal":
        raw = mean + _number(path, table, "std_dev", where, 0.0) * rng.standard_normal(count)
    else:
        raw = low + (high - low + 1) * rng.random(count) if kind == "uniform" else np.full(count, mean)
    return np.clip(np.floor(raw) if kind == "uniform" else np.rint(raw), low, high).astype(np.int32)


def _with_shared_prefix(path: Path, trace: Trace, shared: Mapping[str, Any], rng: np.random.Generator) -> Trace:
    """Groups that share a system prompt, requests dealt to them in random order."""
    where = "data.shared_prefix"
    groups, prefix, question, output = (
        int(_number(path, shared, key, where))
        for key in ("num_groups", "system_prompt_len", "question_len", "output_len")
    )
    if min(groups, prefix, output) < 1 or max(groups, prefix + question, output) > 2**26:
        raise InputError(
            f"{path}: {where} has num_groups {groups}, system_prompt_len {prefix}, question_len {question} and "
            f"output_len {output}, but whole numbers from 1 to {2**26} were expected"
        )
    count = trace.num_rows
    return replace(
        trace,
        prompt_tokens=np.full(count, prefix + question, np.int32),
        output_tokens=np.full(count, output, np.int32),
        prefix_group=rng.permutation(np.arange(count) % groups).astype(np.int32),
        prefix_tokens=np.full(count, prefix, np.int32),
    )


def _detect(head: Head) -> bool:
    lines = {line.split(":")[0] for line in head.text.splitlines() if line[:1].isalpha()}
    return {"load", "data"} <= lines and not head.text.lstrip().startswith("{")


FORMAT = Format("inference-perf", "inference-perf YAML", (), _detect, draw=draw)
