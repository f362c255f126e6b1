"""Rows of real runs of every engine beside a row in plain Python: every column of the table, on random specs.

What an engine leaves (times by request, totals, gaps) is held by its oracle; here a row is made of it a second time.
`test_rows_of_the_oracle` goes the whole way in plain Python: from a configuration to the row.
"""

import math
import os
import random
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from fastsim.config import Config, check_rules, resolved
from fastsim.config.spec import spec_from_mapping
from fastsim.engines.contract import BatchRuntime, runtime_of
from fastsim.engines.outputs import RequestLog
from fastsim.engines.vllm.groups.layout import group_records
from fastsim.engines.vllm.groups.layouts import PLAIN, layouts_of
from fastsim.engines.vllm.groups.rows import run_recorded
from fastsim.engines.vllm.runtime import VllmRun
from fastsim.errors import InputError
from fastsim.metrics import COLUMNS, named_values
from fastsim.records import record_of
from fastsim.simulation import simulate
from fastsim.workload import Workload, build_workload
from tests.metrics_rows import SHARED, differences, expected_row, params_of
from tests.reference.cases import random_case
from tests.reference.metrics import OF_FLEETS, drafting, gap_counts, row
from tests.reference.vllm import simulate as run_oracle
from tests.specs.draw import random_spec
from tests.vllm_cases import oracle_facts, records_of, workload_of
from tests.vllm_cases import run_recorded as run_vllm

COUNT = int(os.environ.get("FASTSIM_CASES", "400"))
OF_BLOCKS = ("kv_capacity_req_per_s", "kv_safe_num_seqs", "offered_kv_load", "offered_token_load", "offered_load")
"""Null where a token does not need a block's worth of one kind, or a step of its own."""
DRAFTING = tuple(drafting({}, 0, 0))
BLIS = tuple(column.name for column in COLUMNS if column.name.startswith("blis_"))
SGLANG = ("sglang_retractions", "sglang_priority_preemptions", "sglang_aborted")


class Left(NamedTuple):
    """What a run left, and the row that was made of it."""

    log: RequestLog
    prompt_tokens: npt.NDArray[Any]
    output_tokens: npt.NDArray[Any]
    totals: npt.NDArray[np.void]
    histogram: npt.NDArray[np.int64]
    row: dict[str, Any]


def left_by(config: Config, workload: Workload) -> Left:
    records = record_of(config)
    (share,) = records.shares
    runtime = runtime_of(share.engine)
    if isinstance(runtime, BatchRuntime):
        result = simulate(config, workload)
        (batch,) = runtime.run_batches(workload, share.records, fast_forward=True)
        lengths = batch.prompt_tokens, batch.output_tokens
        return Left(batch.log, *lengths, batch.totals, batch.itl_histogram[0], result.metrics)
    lengths = workload.prompt_tokens, workload.output_tokens
    run = runtime.run(workload, share.records, records.params)
    named = named_values(run.rows.floats[0], run.rows.ints[0])
    if share.records["layout"][0] == PLAIN:
        assert isinstance(run, VllmRun)
        return Left(run.log, *lengths, run.totals, run.memory.gaps.histogram, named)
    mine = group_records(share.records, layouts_of(share.records["layout"]))
    memory = run_recorded(mine, records.params, workload, fast_forward=True, record_steps=False).memory
    return Left(run.log, *lengths, run.totals, memory.gaps.histogram, named)


def params_by_key(config: Config) -> dict[str, Any]:
    """What metrics know of a configuration, from the keys of a spec."""
    full = resolved(config)

    def key(name: str, nothing: Any = None) -> Any:
        value = full.value(name)
        return nothing if value is None else value

    params = {
        "warmup_us": round(key("metrics.warmup_s") * 1e6),
        "frontend_us": round(key("latency.frontend_us")),
        "block_size": key("engine.block_size"),
        "max_model_len": key("engine.max_model_len"),
        "max_num_seqs": key("engine.max_num_active_seqs", key("engine.max_num_seqs")),
        "token_budget": min(key("engine.max_num_scheduled_tokens", math.inf), key("engine.max_num_batched_tokens")),
        "starvation_window_us": round(key("engine.starvation_window_s") * 1e6),
        "starvation_overtakes": key("engine.starvation_overtakes"),
        "window_tokens": key("latency.window_tokens", 0),
        "replicas": key("fleet.replicas"),
        "closed_loop": int(key("workload.concurrency") is not None),
        "swap_us_per_block": key("engine.swap_us_per_block"),
        "thrash_threshold": key("engine.thrash_threshold"),
        "overload_threshold": 0.05,
        "max_cudagraph_capture_size": key("latency.max_cudagraph_capture_size", 0),
    }
    params |= {f"slo_{name}_us": key(f"slo.{name}_ms", math.inf) * 1000.0 for name in ("ttft", "tpot", "e2e")}
    coefficients = ("b0_us", "b1_us_per_prefill_token", "b2_us_per_decode_token", "b3_us_per_context_token")
    coefficients += ("b4_us_per_prefill_pair", "b5_us_per_prefill_step", "b6_us_per_window_token")
    params |= {name: key(f"latency.{name}") for name in coefficients}
    tokens, times_us = key("latency.table_tokens", ()), key("latency.table_us", ())
    params["table"] = [(at, us * key("latency.table_scale")) for at, us in zip(tokens, times_us, strict=True)]
    match key("engine.name"):
        case "blis":
            params["max_model_len"] = key("engine.blis.max_model_len") or 2**31 - 1
        case "vllm-rlt":
            params["max_model_len"] = 2**31 - 1
            params["swap_us_per_block"] = key("latency.rlt.swap_us_per_block")
        case "trtllm":
            params["max_model_len"] = 2**31 - 1  # outputs are cut before metrics see them
        case "sglang-0.5.23":
            chunk = key("engine.sglang.chunked_prefill_size")
            params["max_model_len"] = 2**31 - 1  # its limit to what is generated is in the outputs already
            params["block_size"] = key("engine.sglang.page_size")
            params["token_budget"] = chunk if chunk > 0 else key("engine.sglang.max_prefill_tokens")
    return params


def expected(config: Config, left: Left) -> dict[str, Any]:
    """The whole row of a run. An engine's own columns: null under the others."""
    full = resolved(config)
    (params,) = record_of(config).params
    assert params_of(params) == params_by_key(config)
    want = expected_row(*left[:5], params)
    name, k = full.engine.name, full.spec.num_speculative_tokens if full.spec.method else 0
    totals = {name: int(left.totals[name][0]) for name in ("drafts", "accepted", "steps", "empty_steps")}
    want |= drafting(totals, want["output_tokens"], k)
    want |= dict.fromkeys((*BLIS, *SGLANG))
    if name == "blis":  # their definitions: tests/reference_blis/metrics.py
        want |= {own: left.row[own] for own in BLIS}
    if name.startswith("sglang"):
        want |= {own: left.row[own] for own in SGLANG}
        assert sum(want[own] for own in SGLANG[:2]) == want["preemptions"]
        assert want["sglang_aborted"] <= want["rejected"] + want["timed_out"]
    records = record_of(config).shares[0].records
    if name.startswith("vllm-0") and records["layout"][0] != PLAIN:
        want |= dict.fromkeys(OF_BLOCKS)
    if name == "vllm-rlt" and records["planes"][0] > 1:
        want |= dict.fromkeys(set(OF_BLOCKS) - {"offered_token_load"})
    return want


def test_rows_of_every_engine() -> None:
    """Random specs as they come, and judged: with SLOs, and windows short enough for somebody to starve."""
    engines: Counter[str] = Counter()
    filled: set[str] = set()
    words: set[tuple[str, Any]] = set()
    for seed in range(COUNT):
        spec = {key: value for key, value in random_spec(seed).items() if not key.startswith("fleet.")}
        if seed % 2:
            spec |= {"slo.ttft_ms": 30.0, "slo.e2e_ms": 300.0, "engine.starvation_window_s": 0.001}
            spec |= {"engine.starvation_overtakes": 1, "metrics.warmup_s": (0.0, 1e-4)[seed // 2 % 2]}
        try:
            config = spec_from_mapping(spec).base
            check_rules(config, "spec")
            workload = build_workload(config.workload)
            left = left_by(config, workload)
        except InputError:
            continue
        want = expected(config, left)
        end_s = float(left.totals["end_us"][0]) / 1e6
        names = [column.name for column in COLUMNS]
        assert differences(left.row, want, names, end_s) == [], f"seed {seed}: {spec}"
        engines[config.engine.name] += 1
        filled |= {name for name, value in left.row.items() if value is not None}
        words |= {(name, value) for name, value in left.row.items() if isinstance(value, str)}
    if COUNT >= 400:
        assert min(engines.values()) > 30, engines
        assert {column.name for column in COLUMNS} - filled == set(OF_FLEETS)
        assert {
            ("verdict", word) for word in ("overloaded", "thrash", "starved", "misses_slo", "drained", "ok")
        } <= words


@pytest.mark.parametrize("family", ["vllm", "policies", "async", "async-policies"])
def test_rows_of_the_oracle(family: str) -> None:
    """From configuration and requests to a row without any kernel, beside the row that kernels make."""
    for seed in range(40):
        case, requests = random_case(random.Random(seed), family=family)
        outcome = run_oracle(case, requests, check=False)
        records = records_of(case)
        records.params["starvation_window_us"], records.params["starvation_overtakes"] = 2000, 1
        run = run_vllm(records, workload_of(case, requests), fast_forward=True, record_steps=False)
        facts = oracle_facts(outcome, case)
        logs = [
            log | {"prompt": request.prompt_tokens, "output": request.output_tokens}
            for log, request in zip(facts.requests, requests, strict=True)
        ]
        gaps = gap_counts(gap for request in outcome.requests for gap in request.gaps_us)
        want = row(logs, facts.totals, gaps, params_of(records.params[0]))
        got = named_values(run.rows.floats[0], run.rows.ints[0])
        end_s = facts.totals["end_us"] / 1e6
        assert differences(got, want, SHARED, end_s) == [], f"family {family}, seed {seed}"
