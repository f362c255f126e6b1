"""What was measured, by result column, to be laid beside a run."""

from pathlib import Path
from typing import Any

import numpy as np

from fastsim.analysis.measured.read import is_summary, read_results
from fastsim.analysis.measured.result import THROUGHPUT, MeasuredLoad, column_of
from fastsim.config import Config
from fastsim.errors import InputError
from fastsim.workload import Trace, load_trace

ENGINE_COLUMNS = {
    "running_mean": ("running_mean", 1.0),
    "running_max": ("running_peak", 1.0),
    "waiting_max": ("waiting_peak", 1.0),
    "kv_use_pct_mean": ("kv_use_mean", 0.01),
    "kv_use_pct_max": ("kv_use_peak", 0.01),
    "hit_rate_pct_max": ("prefix_hit_share", 0.01),
    "preemptions": ("preemptions", 1.0),
}
"""What a log or a scrape says of the engine: the result column that it stands for, and the factor between them."""


def measured_figures(path: Path, config: Config) -> tuple[str, dict[str, float]]:
    """What a file says was measured: what it is, and figures by result column.

    Parameters
    ----------
    path
        A summary, a log, a scrape, or a run with per-request times.
    config
        The run that it is laid beside: of several loads in a file, the one with its load is taken.

    Raises
    ------
    InputError
        When the file holds no measured times.
    """
    if is_summary([path]):
        result = _of_this_load(path, read_results([path]), config)
        figures = {name: value for name, value in result.figures.items() if name not in ENGINE_COLUMNS}
        for name, (column, factor) in ENGINE_COLUMNS.items():
            if name in result.figures:
                figures[column] = result.figures[name] * factor
        if "workload.num_requests" in result.load:
            figures["completed"] = float(result.load["workload.num_requests"])
        return f"{result.tool}, {result.source}", figures
    trace = load_trace(path)
    if trace.ttft_us is None and trace.e2e_us is None:
        raise InputError(
            f"{path}: the {trace.format} format holds no measured times, but some were expected beside a run"
        )
    return f"{trace.format}, {path.name}", _of_requests(trace)


def _of_this_load(path: Path, results: list[MeasuredLoad], config: Config) -> MeasuredLoad:
    if len(results) == 1:
        return results[0]
    workload = config.workload
    for result in results:
        load = result.load
        if workload.concurrency is not None and load.get("workload.concurrency") == workload.concurrency:
            return result
        rate = load.get("workload.arrival.rate_per_s")
        if workload.concurrency is None and rate is not None and abs(rate - workload.arrival.rate_per_s) <= 1e-9 * rate:
            return result
    loads = ", ".join(result.load_in_words for result in results)
    raise InputError(
        f"{path}: holds results of {loads}, but one of the run's own load was expected "
        "(workload.arrival.rate_per_s or workload.concurrency)"
    )


def _of_requests(trace: Trace) -> dict[str, float]:
    """Means and percentiles of a run's own requests; those without a time are left out, as a client leaves them."""
    nothing = np.full(trace.num_rows, np.nan)
    ttft = nothing if trace.ttft_us is None else trace.ttft_us
    e2e = nothing if trace.e2e_us is None else trace.e2e_us
    gaps = trace.output_tokens - 1.0
    tpot = np.where(gaps >= 1, (e2e - ttft) / np.maximum(gaps, 1.0), np.nan)
    figures: dict[str, float] = {}
    for name, values in (("ttft", ttft), ("tpot", tpot), ("e2e", e2e)):
        values = values[np.isfinite(values)] / 1e3
        if not len(values):
            continue
        figures[column_of(name, "mean")] = float(values.mean())
        for percent in (50, 90, 95, 99):
            figures[f"{name}_p{percent}_ms"] = float(np.percentile(values, percent))
    done = np.isfinite(e2e)
    if done.any():
        figures["completed"] = float(done.sum())
        span_s = float((trace.arrival_us + e2e)[done].max() - trace.arrival_us.min()) / 1e6
        if span_s > 0:
            figures[THROUGHPUT] = float(done.sum()) / span_s
    return figures


def understood(results: list[MeasuredLoad]) -> list[list[Any]]:
    """Rows of a table of what was understood: file, tool, load, requests, mean lengths, figures, settings."""
    rows = []
    for result in results:
        settings = ", ".join(f"{key.removeprefix('engine.')} {value}" for key, value in result.engine.items())
        rows.append(
            [
                result.source,
                result.tool,
                result.load_in_words,
                result.load.get("workload.num_requests"),
                _mean(result.prompt.mean, None if result.pairs is None else float(result.pairs[0].mean())),
                _mean(result.output.mean, None if result.pairs is None else float(result.pairs[1].mean())),
                len(result.figures),
                settings or "-",
            ]
        )
    return rows


UNDERSTOOD = ("file", "tool", "sent", "requests", "prompt", "output", "figures", "settings it states")


def _mean(value: float | None, recorded: float | None) -> float | None:
    return value if value is not None else recorded
