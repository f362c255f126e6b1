"""Which way of each result column is better."""

from fastsim.analysis.cost import COST
from fastsim.metrics import COLUMNS, Column

DEFAULT_METRICS = (
    "request_throughput_req_per_s",
    "ttft_p50_ms",
    "ttft_p99_ms",
    "tpot_served_mean_ms",
    "e2e_p50_ms",
    "preemptions",
    "recomputed_share",
)

_MORE = (
    "request_throughput_req_per_s",
    "output_throughput_tok_per_s",
    "total_throughput_tok_per_s",
    "goodput_req_per_s",
    "goodput_share",
    "goodput_admitted_share",
    "jain_slowdown",
    "kv_capacity_req_per_s",
    "completed",
    "prompt_tokens",
    "output_tokens",
)
_LESS = (
    "itl_mean_ms",
    "itl_max_ms",
    "ttft_first_life_served_mean_ms",
    "simulated_s",
    "recomputed_share",
    "slowdown_served_mean",
    "longest_admission_wait_ms",
    "backlog_slope_req_per_s",
    "starved_gap_s",
    "livelock",
    "starved",
    "thrash",
    "overloaded",
    "waiting",
    "held",
    "rejected",
    "timed_out",
    "unservable",
    "held_arrivals",
    "preemptions",
    "preempted_requests",
    "max_preemptions",
    "ineffective_preemptions",
    "prefill_tokens",
    "recomputed_tokens",
    "discarded_tokens",
    "swap_fallbacks",
    "waiting_peak",
)
_LATENCIES = ("ttft_", "tpot_", "e2e_", "queue_time_", "itl_", "blis_")
_QUANTILES = ("_p50_ms", "_p90_ms", "_p95_ms", "_p99_ms")


def better(name: str) -> int:
    """1 where more of a column is better, -1 where less is, 0 where it depends (batch sizes, KV use, swapped)."""
    if name in _MORE:
        return 1
    return -1 if name in _LESS or name == COST or name.startswith(_LATENCIES) else 0


def null_is_infinite(name: str) -> bool:
    """Whether null says infinitely much: a percentile among requests that never got there, a cost of no tokens."""
    return name == COST or (name.startswith(_LATENCIES[:4]) and name.endswith(_QUANTILES) and "_served_" not in name)


def comparable() -> list[str]:
    """The columns that can be compared: numbers and yes or no."""
    return [column.name for column in COLUMNS if is_comparable(column)]


def is_comparable(column: Column) -> bool:
    """Whether differences of a column mean anything."""
    return column.kind != "code"
