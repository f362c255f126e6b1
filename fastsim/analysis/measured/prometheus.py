"""vLLM's /metrics in Prometheus text: counters and histograms since the server started."""

import math
import re
from collections import defaultdict

from fastsim.analysis.measured.result import MeasuredLoad

SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>[^}]*)\})?\s+(?P<value>\S+)", re.MULTILINE)
EDGE = re.compile(r'le="([^"]+)"')
HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": "ttft",
    "vllm:request_time_per_output_token_seconds": "tpot",
    "vllm:time_per_output_token_seconds": "itl",
    "vllm:inter_token_latency_seconds": "itl",
    "vllm:e2e_request_latency_seconds": "e2e",
    "vllm:request_queue_time_seconds": "queue_time",
}
"""Older servers' time_per_output_token is a gap between tokens."""
GAUGES = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:num_preemptions_total": "preemptions",
    "vllm:kv_cache_usage_perc": "kv_use_share",
    "vllm:gpu_cache_usage_perc": "kv_use_share",
}
QUANTILES = (50, 90, 95, 99)


def is_result(text: str) -> bool:
    """Whether a text is a scrape of vLLM's metrics."""
    return re.search(r"^(# (HELP|TYPE) )?vllm:", text, re.MULTILINE) is not None


def read(source: str, text: str) -> MeasuredLoad:
    """What a scrape says; a percentile is interpolated inside its bucket, as histogram_quantile does."""
    buckets: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    sums: dict[str, float] = defaultdict(float)
    for match in SAMPLE.finditer(text):
        try:
            value = float(match["value"])
        except ValueError:
            continue
        name, edge = match["name"], EDGE.search(match["labels"] or "")
        if name.endswith("_bucket") and edge:
            buckets[name.removesuffix("_bucket")][math.inf if edge[1] == "+Inf" else float(edge[1])] += value
        else:
            sums[name] += value
    figures: dict[str, float] = {column: sums[name] for name, column in GAUGES.items() if name in sums}
    notes = []
    for name, latency in HISTOGRAMS.items():
        for percent in QUANTILES:
            low, high, found = quantile(buckets.get(name, {}), percent / 100)
            if found is not None:
                figures[f"{latency}_p{percent}_ms"] = found * 1e3
                if high > 2 * low:
                    notes.append(f"{latency} p{percent} lies in a bucket from {low:g} to {high:g} s")
        total, count = sums.get(f"{name}_sum"), sums.get(f"{name}_count")
        if total is not None and count:
            figures["itl_mean_ms" if latency == "itl" else f"{latency}_served_mean_ms"] = total / count * 1e3
    return MeasuredLoad(
        source=source,
        tool="vLLM's /metrics",
        figures=figures,
        notes=tuple(notes),
        missing={
            "workload": "the requests: counters since the server's start do not hold them (vllm bench serve "
            "--save-result --save-detailed does)"
        },
    )


def quantile(buckets: dict[float, float], share: float) -> tuple[float, float, float | None]:
    """The bucket of a quantile and its value, interpolated; None in an open bucket or without counts."""
    edges = sorted(buckets)
    if not edges or buckets[edges[-1]] <= 0:
        return 0.0, 0.0, None
    rank, low, below = share * buckets[edges[-1]], 0.0, 0.0
    for edge in edges:
        if buckets[edge] >= rank and buckets[edge] > below:
            if math.isinf(edge):
                return low, edge, None
            return low, edge, low + (edge - low) * (rank - below) / (buckets[edge] - below)
        low, below = edge, buckets[edge]
    return low, math.inf, None
