"""Measured runs in other clothes: failures, other names, no meta.json, rows in any order, other settings."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastsim.analysis.calibrate.calibrate import calibrate, read_run
from fastsim.analysis.calibrate.run import _check_one_engine
from fastsim.config import Config, EngineConfig, LatencyConfig
from fastsim.errors import InputError
from fastsim.simulation import simulate
from fastsim.workload import Workload, load_trace

from .sentences import bad_input

REAL = Path(__file__).parent / "data" / "vllm-0.19.0_RTX4090_Llama-3.1-8B"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in (REAL / "requests.jsonl").read_text().splitlines()]
META: dict[str, Any] = json.loads((REAL / "meta.json").read_text())


def write(folder: Path, rows: list[dict[str, Any]], meta: dict[str, Any] | None = None) -> Path:
    (folder / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if meta is not None:
        (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def same_times(folder: Path) -> None:
    """A folder reads as the run that it was made from."""
    real, found = read_run(REAL), read_run(folder)
    assert found.workload.arrival_us.tolist() == real.workload.arrival_us.tolist()
    assert found.workload.prompt_tokens.tolist() == real.workload.prompt_tokens.tolist()
    assert np.allclose(found.ttft_us, real.ttft_us)
    assert np.allclose(found.e2e_us, real.e2e_us)


def renamed(row: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {new: row[old] for old, new in names.items()}


OTHER_NAMES = [
    {
        "input_toks": "num_prompt_tokens",
        "output_toks": "num_generation_tokens",
        "queued_ts": "arrival_time",
        "first_token_ts": "first_token_time",
        "last_token_ts": "finished_time",
    },
    {
        "input_toks": "prompt_tokens",
        "output_toks": "completion_tokens",
        "queued_ts": "start_time",
        "first_token_ts": "first_token_ts",
        "last_token_ts": "end_time",
    },
]


@pytest.mark.parametrize("names", OTHER_NAMES)
def test_other_names_of_fields(names: dict[str, str], tmp_path: Path) -> None:
    same_times(write(tmp_path, [renamed(row, names) for row in ROWS], META))
    run = read_run(tmp_path)
    assert not run.engine_clock, "these are a client's times"
    assert any("as a client sees it" in note for note in run.notes)
    assert read_run(REAL).engine_clock


def test_durations_instead_of_moments(tmp_path: Path) -> None:
    rows = [
        {
            "arrival_time": row["queued_ts"],
            "prompt_len": row["input_toks"],
            "output_len": row["output_toks"],
            "ttft_ms": (row["first_token_ts"] - row["queued_ts"]) * 1e3,
            "e2e_s": row["last_token_ts"] - row["queued_ts"],
        }
        for row in ROWS
    ]
    same_times(write(tmp_path, rows, META))


def test_a_csv_of_moments(tmp_path: Path) -> None:
    names = OTHER_NAMES[0]
    lines = [",".join(names.values()), *(",".join(str(row[old]) for old in names) for row in ROWS)]
    (tmp_path / "run.csv").write_text("\r\n".join(lines) + "\r\n")
    (tmp_path / "meta.json").write_text(json.dumps(META))
    same_times(tmp_path / "run.csv")


def test_rows_in_any_order_and_any_zero_of_the_clock(tmp_path: Path) -> None:
    rows = [{key: value + 27_536.66 if key.endswith("_ts") else value for key, value in row.items()} for row in ROWS]
    random.Random(1).shuffle(rows)
    real, found = read_run(REAL), read_run(write(tmp_path, rows, META))
    assert np.abs(found.workload.arrival_us - real.workload.arrival_us).max() <= 1
    assert np.allclose(found.e2e_us, real.e2e_us, atol=2)


def test_failures_are_left_out_and_said_and_requests_without_times_are_load(tmp_path: Path) -> None:
    rows = [dict(row) for row in ROWS]
    for number in (70, 150, 260):
        rows[number] |= {"first_token_ts": None, "last_token_ts": None, "error": "timeout"}
    for number in range(30, 35):
        del rows[number]["last_token_ts"]
    rows[40]["first_token_ts"] = rows[40]["queued_ts"] - 1.0
    rows[50]["success"] = False
    rows[51]["output_toks"] = 0
    rows[52] |= {"output_toks": 0, "first_token_ts": None, "last_token_ts": None}
    run = read_run(write(tmp_path, rows, META))
    assert run.workload.num_requests == 300 - 5
    assert np.isfinite(run.e2e_us).sum() == 300 - 5 - 5 - 2
    text = " ".join(run.notes)
    for words in ("4 rows cannot be used, and are no load", "1 rows cannot be used", "not in this order"):
        assert words in text
    assert "2 requests have no output token: load, as if it had one, whose times are not compared" in text
    prefilled = run.workload.output_tokens == 1
    assert prefilled.sum() >= 2
    assert np.isnan(run.ttft_us[prefilled]).sum() == 2
    found = calibrate(run, train_fraction=0.5, bootstrap=0)
    assert found.test is not None
    assert max(abs(row["mean_error_pct"]) for row in found.test.values()) < 5


def test_experts_split_over_gpus_are_said(tmp_path: Path) -> None:
    split = META | {"engine_kwargs": META.get("engine_kwargs", {}) | {"enable_expert_parallel": True}}
    assert any("enable_expert_parallel" in note for note in read_run(write(tmp_path, ROWS, split)).notes)
    assert not any("enable_expert_parallel" in note for note in read_run(REAL).notes)


def test_without_meta_the_pool_is_fitted_and_defaults_are_said(tmp_path: Path) -> None:
    found = calibrate(write(tmp_path, ROWS), train_fraction=0.5, bootstrap=0)
    assert found.coefficients["num_gpu_blocks"] == pytest.approx(2588, rel=0.03)
    assert found.test is not None
    assert max(abs(row["mean_error_pct"]) for row in found.test.values()) < 2.5
    assert "vLLM's defaults are assumed: engine.max_num_seqs 256, engine.max_num_batched_tokens 2048" in " ".join(
        found.notes
    )


@pytest.mark.parametrize("table", ["", "engine_args", "vllm_config.cache_config"])
def test_settings_elsewhere_in_meta_json(table: str, tmp_path: Path) -> None:
    values = {"num_gpu_blocks": 999, "max_num_seqs": 7, "block_size": 32, "max_num_batched_tokens": 512}
    meta: dict[str, Any] = {"gpu_name": "NVIDIA H100", "model": "meta-llama/Llama-3.1-8B"}
    inner = meta
    for name in filter(None, table.split(".")):
        inner = inner.setdefault(name, {})
    inner.update(values)
    run = read_run(write(tmp_path, ROWS, meta))
    engine = run.config.engine
    assert {name: getattr(engine, name) for name in values} == values
    assert run.provenance == {"gpu": "NVIDIA H100", "model": "meta-llama/Llama-3.1-8B"}


@pytest.mark.parametrize(("seqs", "budget"), [(12, 256), (64, 8192)])
def test_other_settings_of_the_engine(seqs: int, budget: int, tmp_path: Path) -> None:
    """A run made with other caps, noise on every time, a pool that is fitted."""
    truth = LatencyConfig(b0_us=12_000.0, b1_us_per_prefill_token=60.0, b2_us_per_decode_token=20.0)
    engine = EngineConfig(num_gpu_blocks=1100, max_num_seqs=seqs, max_num_batched_tokens=budget)
    rng = np.random.default_rng(8)
    workload = Workload.from_arrays(
        np.cumsum(rng.exponential(0.35e6, 200)).astype(np.int64), rng.integers(30, 1500, 200), rng.integers(2, 300, 200)
    )
    log = simulate(Config(engine=engine, latency=truth), workload).requests
    noise = 1 + 0.03 * rng.standard_normal(200)
    rows = [
        {"input_toks": p, "output_toks": o, "queued_ts": a / 1e6, "first_token_ts": (a + t) / 1e6, "last_token_ts": e}
        for p, o, a, t, e in zip(
            workload.prompt_tokens.tolist(),
            workload.output_tokens.tolist(),
            workload.arrival_us.tolist(),
            ((log.first_token_us - log.arrival_us) * noise).tolist(),
            ((log.arrival_us + (log.last_token_us - log.arrival_us) * noise) / 1e6).tolist(),
            strict=True,
        )
    ]
    meta = {"max_num_seqs": seqs, "max_num_batched_tokens": budget, "num_gpu_blocks": 1100}
    found = calibrate(write(tmp_path, rows, meta), train_fraction=0.5, bootstrap=0)
    assert found.test is not None
    assert max(abs(row["mean_error_pct"]) for row in found.test.values()) < 5
    assert found.coefficients["b0_us"] == pytest.approx(12_000, rel=0.1)


def test_the_asynchronous_engine_predicts_the_second_half_too() -> None:
    found = calibrate(REAL, ["engine.name=vllm-0.33.0-async"], train_fraction=0.5, bootstrap=0)
    assert found.test is not None
    assert max(abs(row["mean_error_pct"]) for row in found.test.values()) < 2.5


def test_runs_that_are_none(tmp_path: Path) -> None:
    no_times = [{key: row[key] for key in ("input_toks", "output_toks", "queued_ts")} for row in ROWS]
    bad_input(lambda: read_run(write(tmp_path, no_times)), "0 requests have times")
    assert load_trace(REAL).format == "vLLM engine times JSONL"


def test_a_data_parallel_run_is_refused() -> None:
    for meta in ({"data_parallel_size": 2}, {"engine_kwargs": {"data_parallel_size": 4}}):
        with pytest.raises(InputError, match=r"data_parallel_size = [24], but 1 was expected"):
            _check_one_engine(meta, "run")
    _check_one_engine({"engine_kwargs": {"data_parallel_size": 1}}, "run")
