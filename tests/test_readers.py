"""Every trace format: a file in its shape, its odd rows, and a sentence for each fault."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastsim.config import WorkloadConfig
from fastsim.workload import Window, build_workload, load_trace
from fastsim.workload.readers import FORMATS

from .sentences import bad_input, one_line_or_none

DATA = Path(__file__).parent / "data"


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def lines(*rows: Any) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


# --- CSV --------------------------------------------------------------------------------


def test_burstgpt_versions(tmp_path: Path) -> None:
    first = written(
        tmp_path,
        "v1.csv",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\r\n"
        "5,ChatGPT,472,18,490,Conversation log\r\n"
        "45.25,ChatGPT,1087,230,1317,Conversation log\r\n"
        "118,GPT-4,417,0,417,API log\r\n"
        'x,GPT-4,1,1,2,"API, log"\r\n'
        "119,GPT-4,,7,7,API log\r\n",
    )
    trace = load_trace(first)
    assert trace.format == "BurstGPT CSV"
    assert trace.arrival_us.tolist() == [0, 40_250_000]
    assert trace.prompt_tokens.tolist() == [472, 1087]
    assert trace.report.unusable == {
        "0 Response tokens (a failed request)": 1,
        "a Timestamp that is not a number of seconds": 1,
        "Request tokens that are not a whole number of at least 1": 1,
    }
    third = written(
        tmp_path,
        "v3.csv",
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "10.1,a,1.2,GPT-4,3,4,7,API log\n"
        "9.6,b,,GPT-4,5,6,11,API log\n",
    )
    trace = load_trace(third)
    assert trace.arrival_us.tolist() == [0, 500_000]
    assert trace.output_tokens.tolist() == [6, 4]
    assert trace.report.notes == ("rows were sorted by arrival",)


def test_vidur(tmp_path: Path) -> None:
    text = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.000007,10,20\n0.5,11,0\n-1,1,1\n0.75,12,21\n"
    trace = load_trace(written(tmp_path, "v.csv", text))
    assert trace.format == "Vidur CSV"
    assert trace.arrival_us.tolist() == [7, 750_000]
    assert trace.output_tokens.tolist() == [20, 21]
    assert trace.report.unusable == {
        "num_decode_tokens of 0": 1,
        "an arrived_at that is not a number of at least 0": 1,
    }


def test_azure_2025_with_images(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\r\n"
        "2025-01-01 00:00:00.5+00,2,10,20\r\n"
        "2025-01-01 01:00:01+0100,0,11,21\r\n"
    )
    trace = load_trace(written(tmp_path, "a.csv", text))
    assert trace.arrival_us.tolist() == [0, 500_000]
    assert trace.report.notes == ("the images of 1 requests are not modelled",)


def test_plain_with_everything(tmp_path: Path) -> None:
    text = (
        "arrival_s,prompt_tokens,output_tokens,max_tokens,prefix_path,prefix_tokens,ttft_s,e2e_s\n"
        "0,100,5,8,7:0/3:32,48,0.5,1.25\n"
        "1,100,5,,7:0,32,,\n"
        "2,100,5,3,,,,-1\n"
        "3,100,5,3,7:1,4,,\n"
        "4,100,5,-3,,,,\n"
    )
    path = written(tmp_path, "p.csv", text)
    trace = load_trace(path)
    assert trace.report.unusable == {
        "a prefix_path that is not group:start/group:start/...": 1,
        "max_tokens that are not a whole number of at least 0": 1,
    }
    assert trace.ttft_us is not None
    assert trace.e2e_us is not None
    assert trace.ttft_us[0] == 500_000
    assert np.isnan(trace.ttft_us[1:]).all()
    assert np.isnan(trace.e2e_us[2])
    workload = build_workload(WorkloadConfig(trace=str(path)))
    assert workload.max_tokens.tolist() == [8, 0, 3]
    assert workload.output_tokens.tolist() == [5, 5, 3]
    assert workload.prefix_group.tolist() == [1, 0, -1]
    assert workload.group_parent.tolist() == [-1, 0]
    assert workload.group_start_tokens.tolist() == [0, 32]
    assert workload.group_end_tokens.tolist() == [32, 48]


def test_paths_that_contradict_each_other(tmp_path: Path) -> None:
    text = "arrival_s,prompt_tokens,output_tokens,prefix_path,prefix_tokens\n0,9,1,1:0/2:4,8\n0,9,1,1:0/2:5,8\n"
    bad_input(lambda: load_trace(written(tmp_path, "p.csv", text)), "p.csv", "prefix_path", "group 2")


def test_large_group_numbers_become_small(tmp_path: Path) -> None:
    text = (
        "arrival_s,prompt_tokens,output_tokens,prefix_group,prefix_tokens\n0,9,1,2000000000,8\n0,9,1,-1,0\n0,9,1,5,8\n"
    )
    trace = load_trace(written(tmp_path, "p.csv", text))
    assert trace.prefix_group is not None
    assert trace.prefix_group.tolist() == [1, -1, 0]


# --- JSON lines --------------------------------------------------------------------------------


def test_mooncake_odd_rows(tmp_path: Path) -> None:
    good = {"timestamp": 27000.5, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
    path = written(
        tmp_path,
        "m.jsonl",
        lines(
            good,
            good | {"timestamp": 0, "hash_ids": [1, 3]},
            good | {"output_length": 0},
            good | {"input_length": 0},
            good | {"input_length": "600"},
            good | {"timestamp": -1},
            good | {"timestamp": None},
            good | {"hash_ids": "1"},
            "",
            "{",
            "[1]",
            {key: value for key, value in good.items() if key != "hash_ids"},
        ),
    )
    trace = load_trace(path)
    assert trace.arrival_us.tolist() == [0, 27_000_500, 27_000_500]
    assert trace.report.rows_read == 11
    assert trace.report.rows_used == 3
    assert trace.report.unusable == {
        "output_length of 0": 1,
        "input_length of 0": 1,
        "input_length that is not a whole number of at least 1": 1,
        "a timestamp below 0": 1,
        "timestamp that is not a number": 1,
        "hash_ids that are not a list of whole numbers": 1,
        "text that is not a JSON object": 2,
    }
    assert trace.prefix_group is not None
    assert trace.prefix_tokens is not None
    assert trace.prefix_group.tolist() == [0, 0, -1]
    assert trace.prefix_tokens.tolist() == [512, 512, 0]


def test_llmservingsim(tmp_path: Path) -> None:
    row = {"input_toks": 10, "output_toks": 20, "arrival_time_ns": 46_926_808}
    path = written(tmp_path, "l.jsonl", lines(row, row | {"arrival_time_ns": "soon"}, row | {"input_toks": 12.0}))
    trace = load_trace(path)
    assert trace.format == "LLMServingSim JSONL"
    assert trace.arrival_us.tolist() == [46_926, 46_926]
    assert trace.prompt_tokens.tolist() == [10, 12]
    assert trace.report.unusable == {"arrival_time_ns that is not a number": 1}


def test_times_of_an_engine(tmp_path: Path) -> None:
    row = {"input_toks": 10, "output_toks": 20, "arrival_time": 9e8, "queued_ts": 100.5, "scheduled_ts": 100.6}
    row |= {"first_token_ts": 101.0, "last_token_ts": 103.0}
    path = written(
        tmp_path,
        "requests.jsonl",
        lines(row, row | {"queued_ts": 100.0}, row | {"first_token_ts": None}, row | {"last_token_ts": 1.0}),
    )
    for source in (path, tmp_path):
        trace = load_trace(source)
        assert trace.arrival_us.tolist() == [0, 500_000, 500_000]
        assert trace.ttft_us is not None
        assert trace.e2e_us is not None
        assert trace.ttft_us[:2].tolist() == [1_000_000, 500_000]
        assert np.isnan(trace.ttft_us[2]), "a request without a first token is load"
        assert trace.e2e_us.tolist() == [3_000_000, 2_500_000, 2_500_000]
        assert trace.engine_clock
        assert trace.report.unusable == {
            "queued_ts, first_token_ts and last_token_ts that are not in this order": 1,
        }


# --- JSON documents --------------------------------------------------------------------------------

BENCH: dict[str, Any] = {
    "date": "20260101-000000",
    "request_rate": 2.0,
    "burstiness": 1.0,
    "max_concurrency": None,
    "completed": 2,
    "request_throughput": 1.0,
    "input_lens": [10, 20, 30],
    "output_lens": [3, 0, 2],
    "ttfts": [0.1, 0.0, 0.3],
    "itls": [[0.01, 0.02], [], [0.5]],
    "errors": ["", "Traceback: ...", ""],
}


def test_vllm_bench_with_request_timestamps(tmp_path: Path) -> None:
    named = {name: json.dumps(BENCH | {name: [7.5, 7.0, 7.0]}) for name in ("start_times", "request_timestamps")}
    first, second = (load_trace(written(tmp_path, f"{name}.json", text)) for name, text in named.items())
    assert second.arrival_us.tolist() == first.arrival_us.tolist() == [0, 500_000]
    assert not any("drawn" in note for note in second.report.notes)


def test_vllm_bench_with_start_times(tmp_path: Path) -> None:
    document = BENCH | {"start_times": [7.5, 7.0, 7.0], "max_concurrency": 4}
    trace = load_trace(written(tmp_path, "b.json", json.dumps(document)))
    assert trace.arrival_us.tolist() == [0, 500_000]
    assert trace.prompt_tokens.tolist() == [30, 10]
    assert trace.ttft_us is not None
    assert trace.e2e_us is not None
    assert trace.ttft_us.tolist() == pytest.approx([300_000, 100_000])
    assert trace.e2e_us.tolist() == pytest.approx([800_000, 130_000])
    assert trace.report.unusable == {"an error (a failed request)": 1}
    assert any("workload.concurrency" in note for note in trace.report.notes)


def test_vllm_bench_arrivals_are_drawn_when_not_recorded(tmp_path: Path) -> None:
    count = 4000
    document = BENCH | {"request_rate": 8.0, "burstiness": 0.25, "input_lens": [9] * count, "output_lens": [9] * count}
    document |= {"ttfts": [], "itls": [], "errors": []}
    path = written(tmp_path, "b.json", json.dumps(document))
    trace = load_trace(path, seed=3)
    gaps = np.diff(trace.arrival_us) / 1e6
    assert gaps.mean() == pytest.approx(1 / 8, rel=0.1)
    assert gaps.std() / gaps.mean() == pytest.approx(2.0, rel=0.1)  # gamma of shape 1/4
    assert load_trace(path, seed=3).arrival_us.tolist() == trace.arrival_us.tolist()
    assert load_trace(path, seed=4).arrival_us.tolist() != trace.arrival_us.tolist()
    assert any("start_times" in note for note in trace.report.notes)
    one = build_workload(WorkloadConfig(trace=str(path), seed=3))
    assert one.arrival_us.tolist() == trace.arrival_us.tolist()
    infinite = written(tmp_path, "inf.json", json.dumps(document | {"request_rate": "inf"}))
    assert not load_trace(infinite).arrival_us.any()


def test_guidellm_of_two_versions(tmp_path: Path) -> None:
    old = {
        "prompt_tokens": 10,
        "output_tokens": 20,
        "start_time": 1000.0,
        "first_token_time": 1000.5,
        "last_token_time": 1002.0,
        "time_to_first_token_ms": 500.0,
    }
    timings = {"request_start": 1060.0, "first_token_iteration": 1060.25, "last_token_iteration": 1061.0}
    new = {
        "prompt_tokens": 11,
        "output_tokens": 21,
        "request_start_time": 1060.0,
        "request_latency": 1.5,
        "info": {"timings": timings},
    }
    document = {
        "metadata": {},
        "benchmarks": [
            {"requests": {"successful": [old, old | {"start_time": None}], "incomplete": [old], "errored": [{}]}},
            {"requests": {"successful": [new, new | {"output_tokens": None}], "incomplete": [], "errored": []}},
        ],
    }
    path = written(tmp_path, "g.json", json.dumps(document))
    trace = load_trace(path)
    assert trace.format == "guidellm JSON"
    assert trace.arrival_us.tolist() == [0, 60_000_000]
    assert trace.ttft_us is not None
    assert trace.e2e_us is not None
    assert trace.ttft_us.tolist() == pytest.approx([500_000, 250_000])
    assert trace.e2e_us.tolist() == pytest.approx([2_000_000, 1_000_000])
    assert trace.report.unusable == {
        "no start time": 1,
        "a status that is not successful": 2,
        "output_tokens that is not a whole number of at least 1": 1,
    }
    assert "2 benchmarks" in trace.report.notes[-1]
    second = load_trace(path, window=Window(30.0, None))
    assert second.arrival_us.tolist() == [30_000_000]
    assert second.prompt_tokens.tolist() == [11]


# --- descriptions --------------------------------------------------------------------------------

PERF = """\
# a comment
load:
  type: {kind}
  interval: 10   # seconds between stages
  stages:
  - rate: 2
    duration: 5
  - rate: 100.0
    duration: 20
data:
  type: random
  input_distribution:
    min: 100
    max: 300
    mean: 200
    std_dev: 30
  output_distribution:
    min: 5
    max: 50
    mean: 20
    std_dev: 100
server:
  type: vllm
  model_name: "meta-llama/Llama-3.1-8B: the model"
"""


def test_inference_perf_stages(tmp_path: Path) -> None:
    text = PERF
    constant = load_trace(written(tmp_path, "c.yaml", text.format(kind="constant")))
    assert constant.format == "inference-perf YAML"
    assert constant.arrival_us[:10].tolist() == [500_000 * k for k in range(10)]
    assert constant.arrival_us[10] == 15_000_000  # after the first stage's 5 s and the interval
    assert constant.num_rows == 10 + 2000
    assert constant.prompt_tokens[10:].mean() == pytest.approx(200, rel=0.02)
    assert set(np.unique(constant.output_tokens)[[0, -1]].tolist()) == {5, 50}
    path = written(tmp_path, "p.yaml", text.format(kind="poisson"))
    poisson = load_trace(path, seed=1)
    gaps = np.diff(poisson.arrival_us[poisson.arrival_us > 15_000_000]) / 1e6
    assert gaps.mean() == pytest.approx(0.01, rel=0.1)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, rel=0.1)
    assert load_trace(path, seed=2).arrival_us.tolist() != poisson.arrival_us.tolist()


def test_inference_perf_shared_prefix(tmp_path: Path) -> None:
    text = (
        "load:\n  stages:\n    - rate: 10\n      duration: 10\n"
        "data:\n  type: shared_prefix\n  shared_prefix:\n    num_groups: 4\n    num_prompts_per_group: 5\n"
        "    system_prompt_len: 100\n    question_len: 20\n    output_len: 30\n"
    )
    workload = build_workload(WorkloadConfig(trace=str(written(tmp_path, "s.yml", text))))
    assert np.bincount(workload.prefix_group).tolist() == [25] * 4
    assert set(workload.prompt_tokens.tolist()) == {120}
    assert set(workload.prefix_tokens.tolist()) == {100}


SERVEGEN = DATA / "servegen_m-large"


def test_servegen_draws_each_window_at_its_rate() -> None:
    trace = load_trace(SERVEGEN)
    assert "1 of 2 clients have no dataset" in trace.report.notes[0]
    for row in (line.split(",") for line in (SERVEGEN / "chunk-0-trace.csv").read_text().splitlines()):
        start_us, expected = float(row[0]) * 1e6, float(row[1]) * 600
        inside = (trace.arrival_us >= start_us) & (trace.arrival_us < start_us + 600e6)
        assert abs(np.count_nonzero(inside) - expected) <= 1  # the last may be rounded to the next window
    first = np.diff(trace.arrival_us[trace.arrival_us < 600e6])
    assert first.std() / first.mean() > 2  # Weibull of shape 0.375: far burstier than Poisson
    window = load_trace(SERVEGEN, window=Window(600.0, 1800.0))
    assert (
        window.arrival_us.tolist()
        == (trace.arrival_us[(trace.arrival_us >= 600e6) & (trace.arrival_us < 1800e6)] - 600_000_000).tolist()
    )
    assert load_trace(SERVEGEN, seed=1).arrival_us.tolist() != trace.arrival_us.tolist()
    assert load_trace(SERVEGEN / "chunk-0-trace.csv").arrival_us.tolist() == trace.arrival_us.tolist()


def test_servegen_lengths_follow_their_distribution(tmp_path: Path) -> None:
    written(tmp_path, "chunk-4-trace.csv", "0,50,1,Gamma,1,1\n600,50,1,,0,0\n")
    pdfs = {
        "0": {"input_tokens": "{10: 0.25, 20: 0.75}", "output_tokens": "{3: 1}"},
        "600": {"input_tokens": "{30: 1}", "output_tokens": "{0: 0.5, 4: 0.5}"},
    }
    written(tmp_path, "chunk-4-dataset.json", json.dumps(pdfs))
    trace = load_trace(tmp_path)
    early = trace.arrival_us < 600_000_000
    assert np.mean(trace.prompt_tokens[early] == 10) == pytest.approx(0.25, abs=0.01)
    assert set(trace.output_tokens[early].tolist()) == {3}
    assert set(trace.prompt_tokens[~early].tolist()) == {30}
    assert set(trace.output_tokens[~early].tolist()) == {4}


# --- faults --------------------------------------------------------------------------------

GOOD_PERF = PERF.format(kind="constant")
FAULTS = [
    ("b.json", json.dumps(BENCH | {"input_lens": None}), ["input_lens is missing", "--save-detailed"]),
    ("b.json", json.dumps(BENCH | {"ttfts": [1]}), ["ttfts has 1 items", "3"]),
    ("b.json", json.dumps(BENCH | {"output_lens": [1]}), ["output_lens has 1 items"]),
    ("b.json", json.dumps(BENCH | {"request_rate": "fast"}), ['request_rate = "fast"']),
    ("b.json", json.dumps(BENCH | {"burstiness": -1}), ["burstiness = -1"]),
    ("b.json", json.dumps(BENCH)[:-5], ["not valid JSON"]),
    ("b.json", json.dumps(BENCH) + json.dumps(BENCH), ["not valid JSON", "Extra data"]),
    ("g.json", '{"benchmarks": []}', ["benchmarks is missing or empty"]),
    ("g.json", '{"benchmarks": [{}]}', ["benchmarks[0].requests is missing"]),
    ("m.jsonl", '{"timestamp": 1, "input_length": 1, "output_length": 0}\n', ["none of 1 rows", "output_length of 0"]),
    ("p.yaml", GOOD_PERF.replace("constant", "trace_replay"), ['load.type = "trace_replay"']),
    ("p.yaml", GOOD_PERF.replace("rate: 2", "rate: fast"), ['load.stages[0].rate = "fast"']),
    ("p.yaml", GOOD_PERF.replace("min: 100", "min: 400"), ["min = 400"]),
    ("p.yaml", GOOD_PERF.replace("rate: 2", "rate: &x 2"), ["line 6", "not supported"]),
    ("p.yaml", GOOD_PERF.replace("  - rate: 2", "\t- rate: 2"), ["tab"]),
    ("p.yaml", GOOD_PERF.replace("  input_distribution", "  other"), ["input_distribution is missing"]),
    ("p.yaml", GOOD_PERF.replace("duration: 20", "duration: 1e9"), ["more than 10000000 requests"]),
    ("chunk-0-trace.csv", "0,1,1,Gamma,1,1\n", ["no dataset", "chunk-0-dataset.json"]),
]


@pytest.mark.parametrize(("name", "text", "named"), FAULTS, ids=[f"{n}-{w[0]}" for n, _, w in FAULTS])
def test_a_bad_file_is_one_sentence(tmp_path: Path, name: str, text: str, named: list[str]) -> None:
    path = written(tmp_path, name, text)
    bad_input(lambda: load_trace(path), name, *named)


SERVEGEN_FAULTS = [
    ("0,1,1,Pareto,1,1\n", "{}", ["Pareto"]),
    ("0,x,1,Gamma,1,1\n", "{}", ['"x" in column 2']),
    ("0,1,1,Gamma,0,1\n", "{}", ["shape 0"]),
    ("5,1,1,Gamma,1,1\n0,1,1,Gamma,1,1\n", "{}", ["ascending"]),
    ("0,1,1,Gamma,1,1\n", "{", ["not readable JSON"]),
    ("0,1,1,Gamma,1,1\n", '{"0": {"input_tokens": "import os"}}', ["window 0", "input_tokens"]),
    ("0,0,0,,0,0\n", '{"0": {"input_tokens": "{1: 1}", "output_tokens": "{1: 1}"}}', ["no client sends"]),
]


@pytest.mark.parametrize(("windows", "pdfs", "named"), SERVEGEN_FAULTS, ids=[w[0] for _, _, w in SERVEGEN_FAULTS])
def test_bad_servegen_data_is_one_sentence(tmp_path: Path, windows: str, pdfs: str, named: list[str]) -> None:
    good = {"0": {"input_tokens": "{1: 1}", "output_tokens": "{1: 1}"}}
    written(tmp_path, "chunk-0-trace.csv", windows)
    written(tmp_path, "chunk-0-dataset.json", json.dumps(good) if pdfs == "{}" else pdfs)
    bad_input(lambda: load_trace(tmp_path), *named)


def test_a_forced_format(tmp_path: Path) -> None:
    both = "TIMESTAMP,ContextTokens,GeneratedTokens,arrived_at,num_prefill_tokens,num_decode_tokens\n"
    path = written(tmp_path, "x.csv", both + "2024-01-01 00:00:00,1,2,7,3,4\n")
    assert load_trace(path).prompt_tokens.tolist() == [1]
    assert load_trace(path, "vidur").prompt_tokens.tolist() == [3]
    assert build_workload(WorkloadConfig(trace=str(path), format="vidur")).prompt_tokens.tolist() == [3]
    bad_input(lambda: load_trace(path, "burstgpt"), "x.csv", "column Timestamp is missing")
    bad_input(lambda: load_trace(path, "csv"), "x.csv", "'csv'", "burstgpt")
    bad_input(lambda: build_workload(WorkloadConfig(format="vidur")), "workload.format", "workload.trace")


def test_format_keys_are_those_of_the_configuration() -> None:
    from fastsim.config.keys import KEYS

    described = KEYS["workload.format"].describe()
    for known in FORMATS:
        assert f'"{known.key}"' in described
        assert (known.read is None) != (known.draw is None)
    assert described.count('"') == 2 * len(FORMATS)


BEGINNINGS = [
    "",
    '{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [',
    '{"input_toks": 1, "output_toks": 1, "arrival_time_ns": ',
    '{"input_toks": 1, "output_toks": 1, "queued_ts": 1, "first_token_ts": 1, "last_token_ts": ',
    '{"request_throughput": 1, "input_lens": [',
    '{"request_throughput": 1, "output_lens": [1], "input_lens": [1], "itls": [',
    '{"benchmarks": [',
    '{"benchmarks": [{"requests": {"successful": [{"start_time": ',
    "load:\n  stages:\n  - rate: 1\n    duration: 1\ndata:\n",
    "Timestamp,Request tokens,Response tokens\n",
    "request_id,slo_class,prefix_group,prefix_length,input_tokens,output_tokens,arrival_time_us,deadline_us\n",
    "arrived_at,num_prefill_tokens,num_decode_tokens\n",
    "arrival_s,prompt_tokens,output_tokens,prefix_path,prefix_tokens,ttft_s\n",
]


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.sampled_from(BEGINNINGS),
    st.one_of(st.binary(max_size=60), st.text(alphabet='0123456789.,-:{}[]" \n+eTnull/', max_size=60).map(str.encode)),
)
def test_no_file_ends_in_a_traceback(tmp_path: Path, beginning: str, body: bytes) -> None:
    path = tmp_path / "fuzz"
    path.write_bytes(beginning.encode() + body)
    load_trace.__globals__["_load"].cache_clear()
    one_line_or_none(load_trace, path)


# --- windows and samples --------------------------------------------------------------------------------


def test_a_window_starts_at_its_start() -> None:
    path = str(DATA / "azure2023_conv_first2000.csv")
    whole = build_workload(WorkloadConfig(trace=path))
    part = build_workload(WorkloadConfig(trace=path, window_start_s=100.0, window_end_s=200.0))
    inside = (whole.arrival_us >= 100_000_000) & (whole.arrival_us < 200_000_000)
    assert part.arrival_us.tolist() == (whole.arrival_us[inside] - 100_000_000).tolist()
    assert part.prompt_tokens.tolist() == whole.prompt_tokens[inside].tolist()
    assert part.report.rows_used == part.num_requests
    assert f"{2000 - part.num_requests} rows outside" in part.report.notes[0]
    bad_input(lambda: build_workload(WorkloadConfig(trace=path, window_start_s=1e6)), "no row lies in the window")
    wrong = WorkloadConfig(trace=path, window_start_s=5.0, window_end_s=5.0)
    bad_input(lambda: build_workload(wrong), "window_start_s = 5", "window_end_s = 5")


def test_samples_are_nested_and_of_their_size() -> None:
    path = str(DATA / "azure2023_conv_first2000.csv")
    small, large = (build_workload(WorkloadConfig(trace=path, sample_share=share, seed=5)) for share in (0.2, 0.5))
    assert small.num_requests == pytest.approx(400, abs=60)
    assert set(small.arrival_us.tolist()) < set(large.arrival_us.tolist())
    assert "were sampled" in small.report.notes[0]
    tiny = WorkloadConfig(trace=path, sample_share=1e-9)
    bad_input(lambda: build_workload(tiny), "workload.sample_share", "none of 2000 rows")


def test_scaling_keeps_burstiness() -> None:
    from fastsim.workload.describe import describe

    path = str(DATA / "azure2023_conv_first2000.csv")
    one, four = (describe(build_workload(WorkloadConfig(trace=path, rate_scale=scale))) for scale in (1.0, 4.0))
    assert four["rate_per_s"] == pytest.approx(4 * one["rate_per_s"], rel=1e-6)
    assert four["gap_cv"] == pytest.approx(one["gap_cv"], rel=1e-4)


@pytest.mark.slow
def test_a_million_rows_in_bounded_memory(tmp_path: Path) -> None:
    import resource
    import time

    rng = np.random.default_rng(0)
    rows = 1_000_000
    seconds = np.cumsum(rng.exponential(0.05, rows))
    stamps = np.datetime_as_string(np.datetime64("2024-05-12T00:00:00.000000") + (seconds * 1e6).astype("m8[us]"))
    prompt, output = rng.integers(1, 4000, rows), rng.integers(0, 900, rows)
    with (tmp_path / "big.csv").open("w") as file:
        file.write("TIMESTAMP,ContextTokens,GeneratedTokens\r\n")
        file.writelines(
            f"{stamp.replace('T', ' ')}+00:00,{p},{o}\r\n"
            for stamp, p, o in zip(stamps.tolist(), prompt.tolist(), output.tolist(), strict=True)
        )
    started = time.process_time()
    trace = load_trace(tmp_path / "big.csv")
    assert time.process_time() - started < 10
    assert trace.num_rows == int((output > 0).sum())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1.5e6
