"""The table of result columns: it decides the schema of Parquet parts, the kernel's output rows, docs and printing.

A name ends in its unit. Latency percentiles are over all offered servable requests after warm-up; one that did not
get there by the end of the run, was rejected or timed out counts as +infinity, and a percentile that falls there is
null. `*_served_*` columns describe those that did get there, `*_censored_share` says how many did not.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from fastsim.engines import engines
from fastsim.engines.step_fields import TABLE_FIELDS

Kind = Literal["float", "int", "bool", "code"]

STATUSES = ("ok", "max_steps", "error", "refused")
DID_NOT_RUN = ("error", "refused")
"""Statuses of rows in which all else is null: it failed; or vLLM refuses the setting at its start."""
STOPS = ("drained", "horizon", "max_steps", "livelock", "out_of_memory")
VERDICTS = (
    "unservable",
    "livelock",
    "out_of_memory",
    "starved",
    "thrash",
    "overloaded",
    "misses_slo",
    "not_judged",
    "drained",
    "ok",
)
NOT_JUDGED = (
    "nothing_offered",
    "ended_too_soon",
    "cut_in_flight",
    "closed_loop",
    "all_at_once",
    "arrivals_too_short",
)
"""Why a row's `overloaded` is null: nobody arrived; nobody was done, nor could more than half of them have been; too
many were in flight when the run was cut; there is no offered load; there is no rate; the rate did not last."""
LATE_SHARE = 0.1
"""When more of those that alone would have been done are late, service is not `ok`."""
LIVELOCK_KINDS = ("none", "repeated_state", "no_progress")

NULL = -1
"""Stands for null in an integer column (floats have NaN)."""


@dataclass(frozen=True, slots=True)
class Column:
    """One result column.

    `kind` "bool" and "code" are integers in a kernel's row; a code is an index into `labels`. `prometheus` names
    vLLM's own metric where the column is one; `better` the side on which a value is better, as far as that is sure.
    """

    name: str
    kind: Kind
    unit: str
    description: str
    prometheus: str | None = None
    _: KW_ONLY
    better: Literal["more", "less", "none"]
    labels: tuple[str, ...] = ()


QUANTILES = (0.5, 0.9, 0.95, 0.99)
_QUANTILE_NAMES = ("p50", "p90", "p95", "p99")

_LATENCIES = (
    (
        "ttft",
        "time to first token, from arrival (frontend included)",
        "vllm:time_to_first_token_seconds",
    ),
    (
        "tpot",
        "time per output token after the first, (E2E - TTFT) / (output - 1), of requests with two outputs or more",
        "vllm:request_time_per_output_token_seconds",
    ),
    ("e2e", "arrival to last token (frontend included)", "vllm:e2e_request_latency_seconds"),
    ("queue_time", "arrival to first admission", "vllm:request_queue_time_seconds"),
)


_LATENCY_PARTS = (
    *(f"{q}_ms" for q in _QUANTILE_NAMES),
    "served_mean_ms",
    *(f"served_{q}_ms" for q in _QUANTILE_NAMES),
    "censored_share",
)


def _latency_columns(prefix: str, what: str, prometheus: str) -> list[Column]:
    columns = [
        Column(
            f"{prefix}_{q}_ms",
            "float",
            "ms",
            f"{q} of {what}; null where the censored begin",
            prometheus,
            better="less",
        )
        for q in _QUANTILE_NAMES
    ]
    columns.append(
        Column(f"{prefix}_served_mean_ms", "float", "ms", f"mean of {what}, served requests only", better="less")
    )
    columns += [
        Column(f"{prefix}_served_{q}_ms", "float", "ms", f"{q} of {what}, served requests only", better="less")
        for q in _QUANTILE_NAMES
    ]
    columns.append(
        Column(f"{prefix}_censored_share", "float", "share", f"requests without {what} at the end", better="less")
    )
    return columns


_ITL = "vllm:inter_token_latency_seconds"
_FLOATS = [
    *(column for latency in _LATENCIES for column in _latency_columns(*latency)),
    *(
        Column(
            f"itl_{q}_ms", "float", "ms", f"{q} of all token gaps, stalls included; within 0.4 %", _ITL, better="less"
        )
        for q in _QUANTILE_NAMES
    ),
    Column(
        "itl_mean_ms",
        "float",
        "ms",
        "mean gap between consecutive tokens of a request, stalls included",
        _ITL,
        better="less",
    ),
    Column("itl_max_ms", "float", "ms", "longest token gap that ended", better="less"),
    Column(
        "ttft_first_life_served_mean_ms",
        "float",
        "ms",
        "mean TTFT of first lives (differs under restart)",
        better="less",
    ),
    Column("simulated_s", "float", "s", "clock when the run ended", better="less"),
    Column(
        "request_throughput_req_per_s",
        "float",
        "req/s",
        "completed requests, first arrival to end of run",
        better="more",
    ),
    Column(
        "output_throughput_tok_per_s",
        "float",
        "tok/s",
        "delivered output tokens, first arrival to end of run",
        better="more",
    ),
    Column(
        "total_throughput_tok_per_s",
        "float",
        "tok/s",
        "delivered output tokens and the prompts behind them",
        better="more",
    ),
    Column("goodput_req_per_s", "float", "req/s", "completed within every SLO, after warm-up", better="more"),
    Column(
        "goodput_share",
        "float",
        "share",
        "completed within every SLO, of all offered (censored are misses)",
        better="more",
    ),
    Column(
        "goodput_admitted_share",
        "float",
        "share",
        "completed within every SLO, of those not turned away",
        better="more",
    ),
    Column(
        "kv_use_mean",
        "float",
        "share",
        "usable KV blocks held, time average",
        "vllm:kv_cache_usage_perc",
        better="none",
    ),
    Column(
        "kv_use_peak",
        "float",
        "share",
        "usable KV blocks held, peak (of any replica)",
        "vllm:kv_cache_usage_perc",
        better="none",
    ),
    Column(
        "running_mean",
        "float",
        "requests",
        "batch size, time average (mean of replicas)",
        "vllm:num_requests_running",
        better="none",
    ),
    Column(
        "batch_tokens_mean",
        "float",
        "tokens",
        "tokens of a non-empty step",
        "vllm:iteration_tokens_total",
        better="none",
    ),
    Column(
        "busy_share",
        "float",
        "share",
        "time in non-empty steps, first arrival to end of run (mean of replicas)",
        better="none",
    ),
    Column("cap_mean", "float", "requests", "running cap, mean over non-empty steps", better="none"),
    Column("recomputed_share", "float", "share", "recomputed of scheduled tokens", better="less"),
    Column(
        "recomputed_time_share",
        "float",
        "share",
        "busy time that went into computing tokens again, by step times",
        better="less",
    ),
    Column("swapped_time_share", "float", "share", "busy time that went into moving swapped blocks", better="less"),
    Column(
        "prefix_hit_share",
        "float",
        "share",
        "prefix-cache hits at first admission, of prompts with a first token",
        better="none",
    ),
    Column(
        "jain_slowdown",
        "float",
        "index",
        "Jain's fairness of E2E / unloaded E2E over completed requests",
        better="more",
    ),
    Column("slowdown_served_mean", "float", "ratio", "E2E / unloaded E2E, completed requests", better="less"),
    Column("longest_admission_wait_ms", "float", "ms", "longest single stay in the waiting queue", better="less"),
    Column(
        "unloaded_e2e_mean_ms",
        "float",
        "ms",
        "E2E of a request alone in the system, mean of the offered",
        better="none",
    ),
    Column(
        "kv_capacity_req_per_s", "float", "req/s", "usable blocks / blocks at full decode / unloaded E2E", better="more"
    ),
    Column(
        "offered_kv_load",
        "float",
        "ratio",
        "KV block-seconds needed by the arrivals over those there are",
        better="none",
    ),
    Column(
        "offered_token_load",
        "float",
        "ratio",
        "engine time needed at full batches over the time there is",
        better="none",
    ),
    Column(
        "offered_load", "float", "ratio", "the greater of the two; null in closed loop or all at once", better="none"
    ),
    Column(
        "backlog_slope_req_per_s",
        "float",
        "req/s",
        "growth of the backlog over the last half of the arrivals",
        better="less",
    ),
    Column("late_share", "float", "share", "not done at the end, of those that alone would have been", better="less"),
    Column(
        "starved_gap_s", "float", "s", "longest time without a completion, a fifth of it recomputation", better="less"
    ),
    Column("starved_at_s", "float", "s", "when that interval ended", better="none"),
    Column("overtaken_wait_s", "float", "s", "longest time without a token of one that many overtook", better="less"),
    Column("livelock_s", "float", "s", "when the livelock was seen", better="none"),
    Column(
        "replica_seconds",
        "float",
        "replica s",
        "replicas times the time from first arrival to end of run",
        better="less",
    ),
    *(
        Column(
            f"imbalance_{what}",
            "float",
            "ratio",
            f"{of} of the replica with the most, over the mean of all; null for one replica",
            better="less",
        )
        for what, of in (("requests", "requests"), ("tokens", "scheduled tokens"), ("busy", "busy time"))
    ),
    Column(
        "hottest_replica_share",
        "float",
        "share",
        "busy_share of the replica that is busy longest; null for one replica",
        better="none",
    ),
    *(
        Column(own.name, "float", own.unit, f"{own.description}; null under other engines", better=own.better)
        for engine in engines()
        for own in engine.columns
    ),
]

_INTS = [
    Column("status", "code", "", "how the row came to be", labels=STATUSES, better="none"),
    Column("stop", "code", "", "why the run ended", labels=STOPS, better="none"),
    Column("verdict", "code", "", "the first of these that holds", labels=VERDICTS, better="none"),
    Column("livelock", "bool", "", "a state came back, or nobody made progress", better="less"),
    Column(
        "starved", "bool", "", "nobody served for long while recomputing, or somebody overtaken for long", better="less"
    ),
    Column(
        "thrash", "bool", "", "recomputed and swapped time shares together above engine.thrash_threshold", better="less"
    ),
    Column(
        "overloaded",
        "bool",
        "",
        "more comes than is served; null where that cannot be told: see not_judged",
        better="less",
    ),
    Column(
        "misses_slo", "bool", "", "the p99 of a latency with a bound is above it; null without an SLO", better="less"
    ),
    Column("drained", "bool", "", "a burst, served to its end with none of the above", better="none"),
    Column("not_judged", "code", "", "why overloaded is null", labels=NOT_JUDGED, better="none"),
    Column(
        "overtaken", "int", "requests", "got no token for long while many later ones came and were done", better="less"
    ),
    Column("replicas", "int", "replicas", "replicas of the engine", better="less"),
    Column("num_requests", "int", "requests", "requests of the workload", better="none"),
    Column("offered", "int", "requests", "servable requests that arrived during the run", better="none"),
    Column("completed", "int", "requests", "", "vllm:request_success", better="more"),
    Column("running", "int", "requests", "still running at the end", "vllm:num_requests_running", better="none"),
    Column("waiting", "int", "requests", "still waiting at the end", "vllm:num_requests_waiting", better="less"),
    Column("held", "int", "requests", "still held at the door by backpressure at the end", better="less"),
    Column("pending", "int", "requests", "not yet arrived at the end", better="none"),
    Column("rejected", "int", "requests", "refused at the front door", better="less"),
    Column("timed_out", "int", "requests", "aborted by their clients", better="less"),
    Column("unservable", "int", "requests", "could never fit, so never tried", better="less"),
    Column(
        "held_arrivals", "int", "requests", "arrivals that backpressure kept at the door for a while", better="less"
    ),
    Column("preemptions", "int", "count", "", "vllm:num_preemptions", better="less"),
    Column("preempted_requests", "int", "requests", "requests preempted at least once", better="less"),
    Column("max_preemptions", "int", "count", "preemptions of the request with the most", better="less"),
    Column("ineffective_preemptions", "int", "count", "slot preemptions that let nobody in", better="less"),
    Column("scheduled_tokens", "int", "tokens", "prefill and decode", better="none"),
    Column("prefill_tokens", "int", "tokens", "re-prefill after preemption included", better="less"),
    Column("decode_tokens", "int", "tokens", "", better="none"),
    Column(
        "recomputed_tokens", "int", "tokens", "scheduled below the request's highest computed count ever", better="less"
    ),
    Column("discarded_tokens", "int", "tokens", "output tokens of lives that were restarted", better="less"),
    Column("salvaged_tokens", "int", "tokens", "prefix-cache hits of re-admitted requests", better="none"),
    Column(
        "prefix_hit_tokens",
        "int",
        "tokens",
        "prefix-cache hits of all admissions",
        "vllm:prefix_cache_hits",
        better="none",
    ),
    Column("swapped_tokens", "int", "tokens", "KV moved out to the host, in whole blocks", better="none"),
    Column("swapped_out_blocks", "int", "blocks", "", better="none"),
    Column("swapped_in_blocks", "int", "blocks", "", better="none"),
    Column(
        "swap_fallbacks", "int", "count", "swaps that became recomputes because the host pool was full", better="less"
    ),
    Column(
        "prompt_tokens", "int", "tokens", "prompts of requests with a first token", "vllm:prompt_tokens", better="more"
    ),
    Column("output_tokens", "int", "tokens", "delivered output tokens", "vllm:generation_tokens", better="more"),
    Column("usable_blocks", "int", "blocks", "KV blocks that requests can hold, of all replicas", better="none"),
    Column("kv_peak_blocks", "int", "blocks", "most blocks held at once (by any replica)", better="none"),
    Column(
        "kv_safe_num_seqs",
        "int",
        "requests",
        "how many requests fit on a replica at full decode (mean lengths)",
        better="none",
    ),
    Column("running_peak", "int", "requests", "largest batch (of any replica)", better="none"),
    Column("waiting_peak", "int", "requests", "longest queue (of any replica)", better="less"),
    Column(
        "batch_tokens_peak", "int", "tokens", "most tokens in one step", "vllm:iteration_tokens_total", better="none"
    ),
    Column("cap_min", "int", "requests", "least running cap", better="none"),
    Column("cap_final", "int", "requests", "running cap at the end (least of any replica)", better="none"),
    Column("steps", "int", "count", "schedule() calls", better="none"),
    Column("empty_steps", "int", "count", "calls that scheduled nothing", better="none"),
    Column("livelock_step", "int", "step", "when the livelock was seen", better="none"),
    Column("livelock_kind", "code", "", "which sign of it", labels=LIVELOCK_KINDS, better="none"),
]

_FIRST = ("status", "stop", "verdict")
COLUMNS: tuple[Column, ...] = (
    *(column for column in _INTS if column.name in _FIRST),
    *_FLOATS,
    *(column for column in _INTS if column.name not in _FIRST),
)
"""All result columns, in the order in which they are stored and printed."""

SLO_NAMES = ("ttft", "tpot", "e2e")
"""The latencies that an SLO can bound."""
OF_A_CLASS = frozenset(
    (
        *(f"{prefix}_{what}" for prefix, *_ in _LATENCIES for what in _LATENCY_PARTS),
        "request_throughput_req_per_s",
        "output_throughput_tok_per_s",
        "goodput_req_per_s",
        "goodput_share",
        "goodput_admitted_share",
        "prefix_hit_share",
        "misses_slo",
        "num_requests",
        "offered",
        "completed",
        "rejected",
        "timed_out",
        "unservable",
        "preemptions",
        "preempted_requests",
        "prompt_tokens",
        "output_tokens",
    )
)
CLASS_COLUMNS: tuple[Column, ...] = tuple(column for column in COLUMNS if column.name in OF_A_CLASS)
"""The result columns that each class of requests has too (`workload.classes`), as `NAME[CLASS]`."""

FLOAT_COLUMNS = tuple(column.name for column in _FLOATS)
INT_COLUMNS = tuple(column.name for column in _INTS)

NUM_LATENCIES = len(_LATENCIES)
_PER_LATENCY = len(_LATENCY_PARTS)

FLOAT_ROW_DTYPE = np.dtype(
    [("latencies", np.float64, (NUM_LATENCIES, _PER_LATENCY)), ("itl_quantiles_ms", np.float64, (len(QUANTILES),))]
    + [(name, np.float64) for name in FLOAT_COLUMNS[NUM_LATENCIES * _PER_LATENCY + len(QUANTILES) :]]
)
"""A row's float64 columns as a record, percentiles in arrays; its memory is that of FLOAT_COLUMNS.

`latencies[k]` holds the columns of one latency in order: quantiles, served mean, served quantiles, censored share.
"""

INT_ROW_DTYPE = np.dtype([(name, np.int64) for name in INT_COLUMNS])

PARAMS_DTYPE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "warmup_us",  # requests that arrive before it are left out
            "frontend_us",  # added to TTFT and E2E
            "block_size",
            "max_model_len",
            "max_num_seqs",
            "token_budget",  # tokens a step can schedule
            "starvation_window_us",
            "starvation_overtakes",
            "window_tokens",  # of sliding-window layers
            "replicas",  # of the engine: totals are those of all
            "closed_loop",  # 1: arrivals follow completions, so that no load is offered and no backlog grows
        )
    ]
    + [
        (name, np.float64)
        for name in (
            "slo_ttft_us",  # infinity: none
            "slo_tpot_us",
            "slo_e2e_us",
            "b0_us",
            "b1_us_per_prefill_token",
            "b2_us_per_decode_token",
            "b3_us_per_context_token",
            "b4_us_per_prefill_pair",
            "b5_us_per_prefill_step",
            "b6_us_per_window_token",
            "swap_us_per_block",
            "thrash_threshold",
            "overload_threshold",  # share of the arrivals that must pile up to call it overloaded
        )
    ]
    + TABLE_FIELDS
)
"""What metrics know of a configuration, whatever the engine: one record."""


def new_rows(count: int) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
    """Empty output rows: records of shape (count,), FLOAT_ROW_DTYPE and INT_ROW_DTYPE."""
    return np.full(count * len(FLOAT_COLUMNS), np.nan).view(FLOAT_ROW_DTYPE), np.zeros(count, INT_ROW_DTYPE)
