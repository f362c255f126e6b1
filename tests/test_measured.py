"""Files that people have: results of load generators, logs, scrapes, tables; each does what its users expect."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastsim.analysis.calibrate.aggregate_run import read_levels
from fastsim.analysis.measured.engine_log import pool_blocks
from fastsim.analysis.measured.prometheus import quantile
from fastsim.analysis.measured.read import is_summary, read_results
from fastsim.analysis.measured.result import THROUGHPUT, MeasuredLoad
from fastsim.cli import main
from fastsim.workload import load_trace

from .sentences import bad_input

DATA = Path(__file__).parent / "data" / "measured"


def only(name: str) -> MeasuredLoad:
    (result,) = read_results([DATA / name])
    return result


def command(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    printed = capsys.readouterr()
    assert ended.value.code == code, printed.err
    return " ".join((printed.out if code == 0 else printed.err).split())


@pytest.mark.parametrize("path", sorted(path.name for path in DATA.iterdir()))
def test_every_file_is_shown_or_refused_in_one_sentence(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused = path in ("guidellm_sample_60_of_600.json", "inference_perf_sweep.yml")
    text = command(capsys, "workload", "show", str(DATA / path), code=2 if refused else 0)
    assert path.split("/")[0] in text or "SERVE" in text
    assert "Traceback" not in text


def test_aiperf_is_known_by_name() -> None:
    result = only("aiperf_profile_export.json")
    assert (result.tool, result.load) == ("AIPerf", {"workload.num_requests": 4895, "workload.concurrency": 64})
    assert result.figures["ttft_served_mean_ms"] == 51.4
    assert result.figures["tpot_p90_ms"] == 15.73
    assert result.figures["e2e_p99_ms"] == 11493.0
    assert result.figures[THROUGHPUT] == 16.33
    level = read_levels([DATA / "aiperf_profile_export.json"]).levels[0]
    workload = level.workload(0)
    assert np.median(workload.prompt_tokens) == pytest.approx(150, abs=2), "lengths have the recorded percentiles"
    assert np.percentile(workload.output_tokens, 99) == pytest.approx(779, rel=0.02)
    bad_input(lambda: load_trace(DATA / "aiperf_profile_export.json"), "AIPerf's aggregate", "profile_export.jsonl")


def test_inference_perf_is_one_rate() -> None:
    result = only("stage_0_lifecycle_metrics.json")
    assert (result.tool, result.load["workload.arrival.rate_per_s"]) == ("inference-perf", 10.0)
    assert result.figures["ttft_served_mean_ms"] == pytest.approx(80)
    assert result.figures["tpot_p99_ms"] == pytest.approx(44)
    assert result.figures["e2e_p90_ms"] == pytest.approx(6000), "seconds became milliseconds"
    assert any("even" in note for note in result.notes), "what the file does not say is said"
    bad_input(lambda: load_trace(DATA / "stage_0_lifecycle_metrics.json"), "a summary of inference-perf")
    bad_input(lambda: load_trace(DATA / "inference_perf_sweep.yml"), "load.sweep", "load.stages")


def test_guidellm_that_stores_a_part_is_never_the_whole() -> None:
    sample, empty = DATA / "guidellm_sample_60_of_600.json", DATA / "guidellm_no_requests.json"
    bad_input(lambda: load_trace(sample), "stores 60 of its 600 requests", "--sample-requests")
    bad_input(lambda: read_levels([sample]), "stores 60 of 600 requests", "--sample-requests")
    bad_input(lambda: load_trace(empty), "stores 0 of its 22 requests", "--sample-requests")
    bad_input(lambda: read_levels([empty]), "stores no requests and no times", "--sample-requests")
    assert is_summary([sample])


def test_guidellm_percentiles(tmp_path: Path) -> None:
    document = json.loads((DATA / "guidellm_no_requests.json").read_text())
    document["benchmarks"][0]["metrics"] |= {
        "time_to_first_token_ms": {
            "successful": {"mean": 50.0, "median": 45.0, "percentiles": {"p90": 80.0, "p99": 99.0}}
        },
        "request_latency": {"successful": {"mean": 2.0, "percentiles": {"p50": 1.5}}},
        "prompt_token_count": {"successful": {"mean": 300.0}},
        "output_token_count": {"successful": {"mean": 20.0}},
    }
    (tmp_path / "report.json").write_text(json.dumps(document))
    level = read_levels([tmp_path / "report.json"]).levels[0]
    assert level.recipe.concurrency == 1
    assert level.figures["ttft_p50_ms"] == 45.0
    assert level.figures["ttft_p90_ms"] == 80.0
    assert level.figures["e2e_served_mean_ms"] == 2000.0
    assert level.workload(0).prompt_tokens.tolist() == [300] * 22


def test_a_sweep_of_vllm_bench_states_its_settings() -> None:
    for path in ("vllm_bench_sweep_runs", "vllm_bench_sweep_summary.json"):
        levels = read_levels([DATA / path], ["engine.num_gpu_blocks=1000"]).levels
        assert len(levels) == 2
        assert all(level.recipe.concurrency == 2 for level in levels)
    folder = read_levels([DATA / "vllm_bench_sweep_runs"], ["engine.num_gpu_blocks=1000"]).levels
    assert [level.config.engine.max_num_seqs for level in folder] == [4, 8]
    given = read_levels([DATA / "vllm_bench_sweep_runs"], ["engine.max_num_seqs=16"]).levels
    assert [level.config.engine.max_num_seqs for level in given] == [16, 16], "what is given wins"


def test_sglang_is_a_result_a_line() -> None:
    results = read_results([DATA / "sglang_bench_serving.jsonl"])
    assert [result.load["workload.arrival.rate_per_s"] for result in results] == [1.0, 4.0, 16.0]
    assert {result.tool for result in results} == {"SGLang bench_serving"}
    assert results[2].figures["itl_p50_ms"] == 190.6
    assert results[2].figures["e2e_served_mean_ms"] == 154145
    levels = read_levels([DATA / "sglang_bench_serving.jsonl"])
    prompts = levels.levels[1].workload(0).prompt_tokens
    assert prompts.min() < 20
    assert prompts.max() > 1000, "the random data set draws from 1 to 1024, and says so"
    assert any("simulated by vLLM's rules" in note for note in levels.notes)
    bad_input(lambda: load_trace(DATA / "sglang_bench_serving.jsonl"), "SGLang's bench_serving", "--output-details")


def test_a_log_has_the_pool(capsys: pytest.CaptureFixture[str]) -> None:
    result = only("vllm_engine.log")
    assert pool_blocks(result, 16) == 10_991
    assert result.engine == {"engine.max_model_len": 8192}
    assert result.figures["running_mean"] == 8.0
    assert result.figures["kv_use_pct_max"] == 99.9
    assert result.figures["waiting_max"] == 3.0
    bad_input(lambda: read_levels([DATA / "vllm_engine.log"]), "vLLM's log", "--from-log")
    text = command(
        capsys,
        *("calibrate", str(DATA / "vllm_bench_sweep_runs"), "--bootstrap", "0", "--json"),
        *("--from-log", str(DATA / "vllm_engine.log")),
    )
    assert '"b0_us"' in text
    refused = command(
        capsys,
        *("calibrate", str(DATA / "vllm_bench_sweep_runs"), "--from-log", str(DATA / "bench_console.txt")),
        code=2,
    )
    assert "does not say how large the KV cache is" in refused


def test_a_scrape_has_percentiles_by_bucket() -> None:
    result = only("vllm_metrics.prom")
    assert result.figures["preemptions"] == 120
    assert result.figures["ttft_p50_ms"] == pytest.approx(100 + 900 * (500 - 10) / 890)
    assert any("bucket from 0.1 to 1 s" in note for note in result.notes)
    assert "ttft_p95_ms" not in result.figures, "it lies beyond the last edge"
    assert quantile({1.0: 0.0, 2.0: 10.0}, 0.5) == (1.0, 2.0, 1.5)
    assert quantile({}, 0.5)[2] is None


def test_the_console_table_asks_for_what_it_does_not_say() -> None:
    path = DATA / "bench_console.txt"
    bad_input(lambda: read_levels([path]), "does not say how requests were sent", "workload.concurrency")
    level = read_levels([path], ["workload.arrival.kind=all_at_once"]).levels[0]
    assert (level.recipe.num_requests, level.recipe.arrival.kind) == (1000, "all_at_once")
    assert level.figures["tpot_p99_ms"] == 211.21
    assert level.recipe.prompt.mean == pytest.approx(229.711)


def test_names_that_are_common_are_known_and_doubtful_ones_asked(tmp_path: Path) -> None:
    trace = load_trace(DATA / "other_names.csv")
    assert trace.arrival_us.tolist() == [0, 1_500_000]
    assert trace.prompt_tokens.tolist() == [100, 200]
    assert "arrival = timestamp (s)" in trace.report.notes[0]
    rows: list[tuple[str, list[Any], list[int]]] = [
        ("timestamp_ms", [0, 1500], [0, 1_500_000]),
        ("time", [1.7e9, 1.7e9 + 2], [0, 2_000_000]),
        ("ts", [1.7e12, 1.7e12 + 2], [0, 2_000]),
        ("created_at", ["2026-01-01 00:00:00", "2026-01-01T00:00:01.5Z"], [0, 1_500_000]),
    ]
    for name, times, arrivals in rows:
        path = tmp_path / f"{name}.csv"
        path.write_text(f"{name},isl,osl\n" + "".join(f"{time},5,6\n" for time in times))
        assert load_trace(path).arrival_us.tolist() == arrivals, name
    doubtful = tmp_path / "doubtful.csv"
    doubtful.write_text("timestamp,input_tokens,output_tokens\n0,1,2\n1500,3,4\n")
    bad_input(lambda: load_trace(doubtful), "timestamp", "arrival_s, arrival_ms or arrival_us")
    doubtful.write_text("arrival_time,input_tokens,prompt_tokens,output_tokens\n0.5,1,2,3\n")
    bad_input(lambda: load_trace(doubtful), "input_tokens and prompt_tokens")


def test_beside_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    load = (
        *("run", "--set", "engine.num_gpu_blocks=8000", "--set", "workload.num_requests=200"),
        *("--set", "workload.prompt.dist=constant", "--set", "workload.prompt.mean=218"),
        *("--set", "workload.output.dist=constant", "--set", "workload.output.mean=100"),
    )
    for name in ("stage_0_lifecycle_metrics.json", "vllm_engine.log", "vllm_metrics.prom", "bench_console.txt"):
        text = command(capsys, *load, "--beside", str(DATA / name))
        assert name in text
        assert "measured" in text
    rows = json.loads(command(capsys, *load, "--json", "--beside", str(DATA / "stage_0_lifecycle_metrics.json")))[
        "beside"
    ]
    (ttft,) = [row for row in rows if row["column"] == "ttft_served_mean_ms"]
    assert ttft["measured"] == 80.0
    assert ttft["relative"] == pytest.approx(ttft["fastsim"] / 80 - 1)
    several = str(DATA / "sglang_bench_serving.jsonl")
    assert "1/s, 4/s, 16/s" in command(
        capsys, *load, "--set", "workload.arrival.rate_per_s=3", "--beside", several, code=2
    )
    text = command(capsys, *load, "--set", "workload.arrival.rate_per_s=4", "--beside", several)
    assert "sglang_bench_serving.jsonl[1]" in text


def test_beside_a_run_with_its_own_requests(capsys: pytest.CaptureFixture[str]) -> None:
    run = DATA.parent / "vllm-0.19.0_RTX4090_Llama-3.1-8B"
    text = command(
        capsys,
        *("run", "--trace", str(run), "--set", "engine.num_gpu_blocks=2588", "--beside", str(run), "--json"),
    )
    figures = {row["column"]: row["measured"] for row in json.loads(text)["beside"]}
    assert figures["completed"] == 300
    assert figures["ttft_served_mean_ms"] == pytest.approx(65_000, rel=0.05)
