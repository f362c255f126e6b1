"""Which way of each result column is better."""

from fastsim.analysis.cost import COST
from fastsim.metrics import Column, by_name
from fastsim.metrics.names import split_class

DEFAULT_METRICS = (
    "request_throughput_req_per_s",
    "ttft_p50_ms",
    "ttft_p99_ms",
    "tpot_served_mean_ms",
    "e2e_p50_ms",
    "preemptions",
    "recomputed_share",
)

_LATENCIES = ("ttft_", "tpot_", "e2e_", "queue_time_")
_QUANTILES = ("_p50_ms", "_p90_ms", "_p95_ms", "_p99_ms")


def better(name: str) -> int:
    """1 where more of a column is better, -1 where less is, 0 where it depends (batch sizes, KV use, swapped)."""
    if name == COST:
        return -1
    column = by_name().get(name)
    return 0 if column is None else {"more": 1, "less": -1, "none": 0}[column.better]


def null_is_infinite(name: str) -> bool:
    """Whether null says infinitely much: a percentile among requests that never got there, a cost of no tokens."""
    name = split_class(name)[0]
    return name == COST or (name.startswith(_LATENCIES) and name.endswith(_QUANTILES) and "_served_" not in name)


def is_comparable(column: Column) -> bool:
    """Whether differences of a column mean anything."""
    return column.kind != "code"
