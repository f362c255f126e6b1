"""Step times of the presets against published measurements of vLLM: how far TPOT, TTFT and throughput are off.

`measured.csv` holds rows that others published, each with its source; `usable` says which can be repeated. Every usable
row is simulated with nothing fitted to it: the pool and the step times are the presets'.

What a row leaves open follows from its source. vLLM schedules asynchronously by default since 0.14; InferenceX turned
it on before. Where lengths are said to be constant, outputs spread by a fifth about their mean: with equal lengths all
clients of a closed loop would prefill in one step throughout, and the measured TTFT says that they did not. Where
prompts share a system prompt, the run cached it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.table import markdown, publish
from fastsim.config import Config
from fastsim.config.spec import spec_from_mapping
from fastsim.errors import InputError
from fastsim.presets import estimate, load_gpu, load_model
from fastsim.simulation import simulate

MEASURED = Path(__file__).parent / "measured.csv"
SOURCES = ("shipped", "analytic", "linear")
ASYNC_BY_DEFAULT = (0, 14)
"""The version of vLLM from which on scheduling is asynchronous unless it is turned off."""
SYSTEM_PROMPT = "system prompts of 100-150 tokens shared"
SYSTEM_PROMPT_TOKENS = 125
METRICS = {
    "tpot": ("tpot_mean_ms", "tpot_served_mean_ms"),
    "ttft": ("ttft_mean_ms", "ttft_served_mean_ms"),
    "throughput": ("output_tok_per_s", "output_throughput_tok_per_s"),
}
"""Columns of a measured row and of a result."""


@dataclass(frozen=True)
class Error:
    """How far a simulated row is off, in percent, by metric; what was not measured is missing."""

    row: dict[str, Any]
    source: str
    percent: dict[str, float]


def config_of(row: dict[str, Any], source: str) -> Config:
    """The configuration that repeats a measured row.

    Raises
    ------
    InputError
        When there is no such preset, it does not fit, or no table is shipped for it.
    """
    seqs, tokens = row["max_num_seqs"] or 256, row["max_num_batched_tokens"] or 2048
    plan: dict[str, Any] = {
        "tensor_parallel": row["tp"],
        "weight_dtype": row["weight_dtype"],
        "kv_dtype": None if row["kv_dtype"] == "auto" else row["kv_dtype"],
        "max_num_seqs": seqs,
        "max_num_batched_tokens": tokens,
        "step_times": source,
        "async_scheduling": is_async(row),
    }
    found = estimate(load_model(row["model"]), load_gpu(row["gpu"]), **plan)
    settings = {key: list(value) if isinstance(value, tuple) else value for key, value in found.settings().items()}
    settings |= {"engine.max_num_seqs": seqs, "engine.max_num_batched_tokens": max(tokens, seqs)}
    settings |= {"workload.num_requests": row["num_requests"], "engine.enable_prefix_caching": False}
    settings |= {"engine.name": "vllm-0.33.0-async" if is_async(row) else "vllm-0.33.0"}
    settings |= _lengths(row) | _load(row)
    if SYSTEM_PROMPT in (row["note"] or ""):
        settings |= {"engine.enable_prefix_caching": True, "workload.prefix.groups": 1}
        settings |= {"workload.prefix.tokens": SYSTEM_PROMPT_TOKENS}
    return spec_from_mapping(settings).base


def is_async(row: dict[str, Any]) -> bool:
    """Whether the measured vLLM scheduled asynchronously; a version that is not said is taken for one of today."""
    if "InferenceX" in row["source"] or "async" in (row["note"] or ""):
        return True
    version = re.match(r"(\d+)\.(\d+)", str(row["engine_version"] or ""))
    return version is None or (int(version[1]), int(version[2])) >= ASYNC_BY_DEFAULT


def _lengths(row: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, mean in (("prompt", row["isl"]), ("output", row["osl"])):
        key = f"workload.{name}"
        if row["length_kind"] == "constant" and row["load_kind"] == "closed" and name == "output":
            settings |= {f"{key}.dist": "uniform", f"{key}.min": round(0.8 * mean), f"{key}.max": round(1.2 * mean)}
            continue
        if row["length_kind"].startswith("uniform"):
            settings |= {f"{key}.dist": "uniform", f"{key}.min": round(0.8 * mean), f"{key}.max": mean}
        elif row["length_kind"] == "sharegpt":  # its spread is about its mean
            settings |= {f"{key}.dist": "lognormal", f"{key}.mean": mean, f"{key}.stdev": mean}
        else:
            settings |= {f"{key}.dist": "constant", f"{key}.mean": mean}
    return settings


def _load(row: dict[str, Any]) -> dict[str, Any]:
    if row["load_kind"] == "closed":
        return {"workload.concurrency": row["concurrency"]}
    if row["load_kind"] == "poisson":
        return {"workload.arrival.kind": "poisson", "workload.arrival.rate_per_s": row["rate_per_s"]}
    return {"workload.arrival.kind": "all_at_once"}


def class_of(row: dict[str, Any]) -> str:
    """Dense or mixture, dtype, GPU; all-at-once rows apart."""
    if row["load_kind"] == "all at once":
        return "all at once (apart)"
    if row["model"].startswith("gpt-oss") and row["gpu"] == "b200":
        return "gpt-oss B200 (apart)"
    family = "gpt-oss" if row["model"].startswith("gpt-oss") else row["model"] if "235b" in row["model"] else None
    kind = family or ("mixture" if load_model(row["model"]).experts else "dense")
    dtype = "" if family == "gpt-oss" else f" {row['weight_dtype']}"
    return f"{kind} {row['gpu'].upper()}{dtype}"


def errors_of(rows: Sequence[dict[str, Any]], sources: Sequence[str] = SOURCES) -> tuple[list[Error], dict[str, int]]:
    """Every row with every source; and why some could not be simulated, with how many."""
    found: list[Error] = []
    left_out: dict[str, int] = {}
    for row in rows:
        for source in sources:
            try:
                metrics = simulate(config_of(row, source)).metrics
            except InputError as error:
                if source != "shipped":
                    left_out[str(error)[:90]] = left_out.get(str(error)[:90], 0) + 1
                continue
            percent = {
                name: 100 * (metrics[simulated] / row[measured] - 1)
                for name, (measured, simulated) in METRICS.items()
                if row[measured] and metrics[simulated]
            }
            found.append(Error(row, source, percent))
    return found, left_out


def measured_rows() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows that can be repeated, and the others. Recorded traces are not part of this page: calibrate has them."""
    rows = pl.read_csv(MEASURED, infer_schema_length=None).to_dicts()
    usable = [row for row in rows if row["usable"] and row["load_kind"] != "trace" and row["num_requests"]]
    return usable, [row for row in rows if row not in usable]


def _cell(values: Sequence[float]) -> str:
    if not values:
        return ""
    off = np.abs(values)
    return f"{np.median(off):.0f} / {np.quantile(off, 0.9):.0f} %"


def _within(values: Sequence[float]) -> str:
    return f"{np.mean(np.abs(values) <= 20):.0%}" if values else ""


def table_rows(errors: Sequence[Error]) -> list[list[str]]:
    """One line a class and source, then all classes that are not apart."""
    lines = []
    classes = sorted({class_of(error.row) for error in errors}, key=lambda name: ("apart" in name, name))
    for name in (*classes, "all but those apart"):
        for source in SOURCES:
            mine = [
                error
                for error in errors
                if error.source == source
                and (class_of(error.row) == name or (name.startswith("all but") and "apart" not in class_of(error.row)))
            ]
            if not mine:
                continue
            by = {metric: [e.percent[metric] for e in mine if metric in e.percent] for metric in METRICS}
            lines.append(
                [
                    name,
                    source,
                    str(len(mine)),
                    _cell(by["tpot"]),
                    _within(by["tpot"]),
                    _cell(by["ttft"]),
                    _cell(by["throughput"]),
                    _within(by["throughput"]),
                ]
            )
    return lines


def main(tiny: bool, readme: bool) -> None:
    """Print the table; with `readme`, put it into benchmarks/README.md."""
    usable, others = measured_rows()
    errors, left_out = errors_of(usable[::40] if tiny else usable)
    columns = ["class", "step times", "rows", "TPOT", "within 20 %", "TTFT", "throughput", "within 20 % "]
    why: dict[str, int] = {}
    for row in others:
        reason = row["why_not"] or "a recorded trace of one run, or without a number of requests"
        why[reason] = why.get(reason, 0) + 1
    note = "Left out: " + "; ".join(f"{count} rows: {reason}" for reason, count in (why | left_out).items()) + "."
    publish("accuracy", markdown(columns, table_rows(errors), note), readme)
