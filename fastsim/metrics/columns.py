"""The table of result columns: it decides the schema of Parquet parts, the kernel's output rows, docs and printing.

A name ends in its unit. Latency percentiles are over all offered servable requests after warm-up; one that did not
get there by the end of the run, was rejected or timed out counts as +infinity, and a percentile that falls there is
null. `*_served_*` columns describe those that did get there, `*_censored_share` says how many did not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fastsim.engines import engines
from fastsim.engines.step_fields import TABLE_FIELDS
from fastsim.errors import InputError

Kind = Literal["float", "int", "bool", "code"]

STATUSES = ("ok", "max_steps", "error", "refused")
DID_NOT_RUN = ("error", "refused")
"""Statuses of rows in which all else is null: it failed; or vLLM refuses the setting at its start."""
STOPS = ("drained", "horizon", "max_steps", "livelock", "out_of_memory")
VERDICTS = ("unservable", "livelock", "starved", "thrash", "overloaded", "ok")
LATE_SHARE = 0.1
"""When more of those that alone would have been done are late, service is not `ok`."""
LIVELOCK_KINDS = ("none", "repeated_state", "no_progress")

NULL = -1
"""Stands for null in an integer column (floats have NaN)."""


@dataclass(frozen=True, slots=True)
class Column:
    """One result column.

    `kind` "bool" and "code" are integers in a kernel's row; a code is an index into `labels`. `prometheus` names
    vLLM's own metric where the column is one.
    """

    name: str
    kind: Kind
    unit: str
    description: str
    prometheus: str | None = None
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


def _latency_columns(prefix: str, what: str, prometheus: str) -> list[Column]:
    columns = [
        Column(f"{prefix}_{q}_ms", "float", "ms", f"{q} of {what}; null where the censored begin", prometheus)
        for q in _QUANTILE_NAMES
    ]
    columns.append(Column(f"{prefix}_served_mean_ms", "float", "ms", f"mean of {what}, served requests only"))
    columns += [
        Column(f"{prefix}_served_{q}_ms", "float", "ms", f"{q} of {what}, served requests only")
        for q in _QUANTILE_NAMES
    ]
    columns.append(Column(f"{prefix}_censored_share", "float", "share", f"requests without {what} at the end"))
    return columns


_ITL = "vllm:inter_token_latency_seconds"
_FLOATS = [
    *(column for latency in _LATENCIES for column in _latency_columns(*latency)),
    *(
        Column(f"itl_{q}_ms", "float", "ms", f"{q} of all token gaps, stalls included; within 0.4 %", _ITL)
        for q in _QUANTILE_NAMES
    ),
    Column("itl_mean_ms", "float", "ms", "mean gap between consecutive tokens of a request, stalls included", _ITL),
    Column("itl_max_ms", "float", "ms", "longest token gap that ended"),
    Column("ttft_first_life_served_mean_ms", "float", "ms", "mean TTFT of first lives (differs under restart)"),
    Column("simulated_s", "float", "s", "clock when the run ended"),
    Column("request_throughput_req_per_s", "float", "req/s", "completed requests, first arrival to end of run"),
    Column("output_throughput_tok_per_s", "float", "tok/s", "delivered output tokens, first arrival to end of run"),
    Column("total_throughput_tok_per_s", "float", "tok/s", "delivered output tokens and the prompts behind them"),
    Column("goodput_req_per_s", "float", "req/s", "completed within every SLO, after warm-up"),
    Column("goodput_share", "float", "share", "completed within every SLO, of all offered (censored are misses)"),
    Column("goodput_admitted_share", "float", "share", "completed within every SLO, of those not turned away"),
    Column("kv_use_mean", "float", "share", "usable KV blocks held, time average", "vllm:kv_cache_usage_perc"),
    Column("kv_use_peak", "float", "share", "usable KV blocks held, peak", "vllm:kv_cache_usage_perc"),
    Column("running_mean", "float", "requests", "batch size, time average", "vllm:num_requests_running"),
    Column("batch_tokens_mean", "float", "tokens", "tokens of a non-empty step", "vllm:iteration_tokens_total"),
    Column("busy_share", "float", "share", "time in non-empty steps, first arrival to end of run"),
    Column("cap_mean", "float", "requests", "running cap, mean over non-empty steps"),
    Column("recomputed_share", "float", "share", "recomputed of scheduled tokens: the verdict thrash looks at it"),
    Column("prefix_hit_share", "float", "share", "prefix-cache hits at first admission, of prompts with a first token"),
    Column("jain_slowdown", "float", "index", "Jain's fairness of E2E / unloaded E2E over completed requests"),
    Column("slowdown_served_mean", "float", "ratio", "E2E / unloaded E2E, completed requests"),
    Column("longest_admission_wait_ms", "float", "ms", "longest single stay in the waiting queue"),
    Column("unloaded_e2e_mean_ms", "float", "ms", "E2E of a request alone in the system, mean of the offered"),
    Column("kv_capacity_req_per_s", "float", "req/s", "usable blocks / blocks at full decode / unloaded E2E"),
    Column("offered_kv_load", "float", "ratio", "KV block-seconds needed by the arrivals over those there are"),
    Column("offered_token_load", "float", "ratio", "engine time needed at full batches over the time there is"),
    Column("offered_load", "float", "ratio", "the greater of the two; null in closed loop or all at once"),
    Column("backlog_slope_req_per_s", "float", "req/s", "growth of the backlog over the last half of the arrivals"),
    Column("starved_gap_s", "float", "s", "longest time without a completion that ended in preemptions"),
    Column("starved_at_s", "float", "s", "when that interval ended"),
    Column("livelock_s", "float", "s", "when the livelock was seen"),
    *(
        Column(own.name, "float", own.unit, f"{own.description}; null under other engines")
        for engine in engines()
        for own in engine.columns
    ),
]

_INTS = [
    Column("status", "code", "", "how the row came to be", labels=STATUSES),
    Column("stop", "code", "", "why the run ended", labels=STOPS),
    Column("verdict", "code", "", "the first of these that holds", labels=VERDICTS),
    Column("livelock", "bool", "", "a state came back, or nobody made progress"),
    Column("starved", "bool", "", "nobody completed for long, under preemptions"),
    Column("thrash", "bool", "", "recomputed_share above engine.thrash_threshold"),
    Column("overloaded", "bool", "", "the backlog kept growing; null when the arrivals are too short to tell"),
    Column("num_requests", "int", "requests", "requests of the workload"),
    Column("offered", "int", "requests", "servable requests that arrived during the run"),
    Column("completed", "int", "requests", "", "vllm:request_success"),
    Column("running", "int", "requests", "still running at the end", "vllm:num_requests_running"),
    Column("waiting", "int", "requests", "still waiting at the end", "vllm:num_requests_waiting"),
    Column("held", "int", "requests", "still held at the door by backpressure at the end"),
    Column("pending", "int", "requests", "not yet arrived at the end"),
    Column("rejected", "int", "requests", "refused at the front door"),
    Column("timed_out", "int", "requests", "aborted by their clients"),
    Column("unservable", "int", "requests", "could never fit, so never tried"),
    Column("held_arrivals", "int", "requests", "arrivals that backpressure kept at the door for a while"),
    Column("preemptions", "int", "count", "", "vllm:num_preemptions"),
    Column("preempted_requests", "int", "requests", "requests preempted at least once"),
    Column("max_preemptions", "int", "count", "preemptions of the request with the most"),
    Column("ineffective_preemptions", "int", "count", "slot preemptions that let nobody in"),
    Column("scheduled_tokens", "int", "tokens", "prefill and decode"),
    Column("prefill_tokens", "int", "tokens", "re-prefill after preemption included"),
    Column("decode_tokens", "int", "tokens", ""),
    Column("recomputed_tokens", "int", "tokens", "scheduled below the request's highest computed count ever"),
    Column("discarded_tokens", "int", "tokens", "output tokens of lives that were restarted"),
    Column("salvaged_tokens", "int", "tokens", "prefix-cache hits of re-admitted requests"),
    Column("prefix_hit_tokens", "int", "tokens", "prefix-cache hits of all admissions", "vllm:prefix_cache_hits"),
    Column("swapped_tokens", "int", "tokens", "KV moved out to the host, in whole blocks"),
    Column("swapped_out_blocks", "int", "blocks", ""),
    Column("swapped_in_blocks", "int", "blocks", ""),
    Column("swap_fallbacks", "int", "count", "swaps that became recomputes because the host pool was full"),
    Column("prompt_tokens", "int", "tokens", "prompts of requests with a first token", "vllm:prompt_tokens"),
    Column("output_tokens", "int", "tokens", "delivered output tokens", "vllm:generation_tokens"),
    Column("usable_blocks", "int", "blocks", "KV blocks that requests can hold"),
    Column("kv_peak_blocks", "int", "blocks", "most blocks held at once"),
    Column("kv_safe_num_seqs", "int", "requests", "how many requests fit at full decode (mean lengths)"),
    Column("running_peak", "int", "requests", "largest batch"),
    Column("waiting_peak", "int", "requests", "longest queue"),
    Column("batch_tokens_peak", "int", "tokens", "most tokens in one step", "vllm:iteration_tokens_total"),
    Column("cap_min", "int", "requests", "least running cap"),
    Column("cap_final", "int", "requests", "running cap at the end"),
    Column("steps", "int", "count", "schedule() calls"),
    Column("empty_steps", "int", "count", "calls that scheduled nothing"),
    Column("livelock_step", "int", "step", "when the livelock was seen"),
    Column("livelock_kind", "code", "", "which sign of it", labels=LIVELOCK_KINDS),
]

_FIRST = ("status", "stop", "verdict")
COLUMNS: tuple[Column, ...] = (
    *(column for column in _INTS if column.name in _FIRST),
    *_FLOATS,
    *(column for column in _INTS if column.name not in _FIRST),
)
"""All result columns, in the order in which they are stored and printed."""

FLOAT_COLUMNS = tuple(column.name for column in _FLOATS)
INT_COLUMNS = tuple(column.name for column in _INTS)

NUM_LATENCIES = len(_LATENCIES)
_PER_LATENCY = len(_QUANTILE_NAMES) * 2 + 2

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
            "window_tokens",  # of sliding-window layers
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
            "thrash_threshold",
            "overload_threshold",  # share of the arrivals that must pile up to call it overloaded
        )
    ]
    + TABLE_FIELDS
)
"""What metrics know of a configuration, whatever the engine: one record."""


@cache
def by_name() -> Mapping[str, Column]:
    """Columns by name."""
    return {column.name: column for column in COLUMNS}


def new_rows(count: int) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
    """Empty output rows: records of shape (count,), FLOAT_ROW_DTYPE and INT_ROW_DTYPE."""
    return np.full(count * len(FLOAT_COLUMNS), np.nan).view(FLOAT_ROW_DTYPE), np.zeros(count, INT_ROW_DTYPE)


def named_values(floats: npt.NDArray[np.float64], ints: npt.NDArray[np.int64]) -> dict[str, Any]:
    """One row as a dict by column name, in the order of COLUMNS: None for null, bools, labels for codes.

    Parameters
    ----------
    floats, ints
        Shape (len(FLOAT_COLUMNS),) float64 and (len(INT_COLUMNS),) int64.
    """
    numbers: dict[str, Any] = {
        name: None if value != value else value for name, value in zip(FLOAT_COLUMNS, floats.tolist(), strict=True)
    }
    numbers.update(zip(INT_COLUMNS, ints.tolist(), strict=True))
    return {column.name: _plain(column, numbers[column.name]) for column in COLUMNS}


def _plain(column: Column, value: Any) -> Any:
    if column.kind == "float":
        return value
    if value == NULL:
        return None
    if column.kind == "bool":
        return bool(value)
    return column.labels[value] if column.kind == "code" else value


def column_or_error(name: str) -> Column:
    """The column of that name; a mistake is answered with names that are near."""
    if name in by_name():
        return by_name()[name]
    near = get_close_matches(name, by_name(), n=3)
    hint = f"; did you mean {', '.join(near)}?" if near else "; `fastsim columns` lists them"
    raise InputError(f"no result column {name!r}{hint}")
