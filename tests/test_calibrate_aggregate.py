"""Calibration from means and percentiles: what the simulator made is found again, as far as such figures tell."""

import json
from pathlib import Path
from typing import Any

import pytest

from fastsim.analysis.calibrate.aggregate import AggregateCalibration, calibrate_levels
from fastsim.analysis.calibrate.aggregate_run import read_levels
from fastsim.analysis.measured.read import is_summary
from fastsim.config import ArrivalConfig, Config, EngineConfig, LatencyConfig, LengthConfig, WorkloadConfig, load_config
from fastsim.simulation import simulate
from fastsim.workload import build_workload

from .sentences import bad_input

TRUTH = {
    "b0_us": 9000.0,
    "b1_us_per_prefill_token": 40.0,
    "b2_us_per_decode_token": 30.0,
    "b3_us_per_context_token": 0.06,
    "frontend_us": 12_000.0,
}
PROMPT = {"dist": "lognormal", "mean": 600.0, "stdev": 400.0, "max": 3000}
OUTPUT = {"dist": "lognormal", "mean": 120.0, "stdev": 60.0, "max": 600}
SETS = [
    "engine.num_gpu_blocks=1200",
    *(f"workload.prompt.{name}={value}" for name, value in PROMPT.items()),
    *(f"workload.output.{name}={value}" for name, value in OUTPUT.items()),
]


def result(rate: float, count: int = 150, **changes: Any) -> dict[str, Any]:
    """What `vllm bench serve --save-result` would store of a run that the simulator itself measured."""
    workload = build_workload(
        WorkloadConfig(
            num_requests=count,
            seed=int(100 * rate),
            arrival=ArrivalConfig(kind="poisson", rate_per_s=rate),
            prompt=LengthConfig.model_validate(PROMPT),
            output=LengthConfig.model_validate(OUTPUT),
        )
    )
    row = simulate(Config(engine=EngineConfig(num_gpu_blocks=1200), latency=LatencyConfig(**TRUTH)), workload).metrics
    found: dict[str, Any] = {
        "model_id": "made",
        "request_rate": rate,
        "burstiness": 1.0,
        "max_concurrency": None,
        "num_prompts": count,
        "completed": row["completed"],
        "total_input_tokens": int(workload.prompt_tokens.sum()),
        "total_output_tokens": int(workload.output_tokens.sum()),
        "request_throughput": row["request_throughput_req_per_s"],
    }
    for theirs, ours in (("ttft", "ttft"), ("tpot", "tpot"), ("e2el", "e2e")):
        found[f"mean_{theirs}_ms"] = row[f"{ours}_served_mean_ms"]
        found |= {f"median_{theirs}_ms": row[f"{ours}_p50_ms"], f"p99_{theirs}_ms": row[f"{ours}_p99_ms"]}
    found |= {"mean_itl_ms": row["itl_mean_ms"], "median_itl_ms": row["itl_p50_ms"], "p99_itl_ms": row["itl_p99_ms"]}
    return found | changes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results")
    for rate in (2.0, 6.0, 12.0):
        (path / f"rate-{rate:04.1f}.json").write_text(json.dumps(result(rate)))
    return path


@pytest.fixture(scope="module")
def found(folder: Path) -> AggregateCalibration:
    return calibrate_levels([folder], SETS, bootstrap=4)


def test_the_truth_is_found_again_roughly(found: AggregateCalibration) -> None:
    assert found.coefficients["b0_us"] == pytest.approx(TRUTH["b0_us"], rel=0.08)
    assert found.coefficients["b1_us_per_prefill_token"] == pytest.approx(TRUTH["b1_us_per_prefill_token"], rel=0.35)
    for _, errors in found.errors:
        assert abs(errors["tpot_served_mean_ms"]) < 5
        assert abs(errors["ttft_p50_ms"]) < 20
    assert abs(found.train()["tpot"]["mean_error_pct"]) < 3
    assert [level.load for level, _ in found.errors] == ["2/s", "6/s", "12/s"]


def test_it_says_how_weak_that_is(found: AggregateCalibration) -> None:
    assert "much weaker than per-request times" in found.warnings[0]
    assert "39 means and percentiles of 3 results" in found.warnings[0]
    low, high = found.intervals["b2_us_per_decode_token"]
    assert high / low > 3, "batch and context grow together: these figures do not tell the two apart"
    low, high = found.intervals["b0_us"]
    assert high / low < 1.5


def test_lengths_that_are_recorded_are_taken(folder: Path, tmp_path: Path) -> None:
    detailed = json.loads((folder / "rate-02.0.json").read_text())
    lists = {"input_lens": list(range(1, 151)), "output_lens": [5] * 150}
    (tmp_path / "one.json").write_text(json.dumps(detailed | lists))
    level = read_levels([tmp_path / "one.json"]).levels[0]
    assert level.workload(0).prompt_tokens.tolist() == lists["input_lens"]
    assert level.workload(0).workload_id != level.workload(1).workload_id
    plain = read_levels([folder]).levels[0]
    assert len(set(plain.workload(0).prompt_tokens.tolist())) == 1
    assert any("prompt lengths are not recorded" in note for note in read_levels([folder]).notes)


def test_how_requests_were_sent(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [
        {"request_rate": "inf"},
        {"request_rate": "inf", "max_concurrency": 8},
        {"burstiness": 0.25},
        {"max_concurrency": 8, "num_prompts": 155},
    ]
    base = result(3.0)
    for number, change in enumerate(changes):
        (tmp_path / f"{number}.json").write_text(json.dumps(base | change))
    levels = read_levels([tmp_path])
    once, clients, bursty, limited = (level.recipe for level in levels.levels)
    assert once.arrival.kind == "all_at_once"
    assert clients.concurrency == 8
    assert (bursty.arrival.kind, bursty.arrival.cv) == ("gamma", 2.0)
    assert limited.num_requests == 150
    assert [level.load for level in levels.levels] == ["all at once", "8 clients", "3/s", "3/s"]
    assert any("5 of 155 requests failed" in note for note in levels.notes)
    assert any("max_concurrency is left out" in note for note in levels.notes)


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fastsim.cli import main

    sets = [part for each in SETS for part in ("--set", each)]
    out = tmp_path / "fit.toml"
    files = [str(folder / f"rate-{rate}.json") for rate in ("06.0", "12.0")]
    with pytest.raises(SystemExit) as ended:
        main(["calibrate", *files, *sets, "--bootstrap", "0", "--out", str(out)])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(len(line) <= 80 for line in text.splitlines() if "Written to" not in line), text
    for words in ("2 results without per-request times", "b0_us", "12/s", "much weaker"):
        assert words in " ".join(text.split())
    assert load_config(out).latency.b0_us == pytest.approx(9000, rel=0.08)
    with pytest.raises(SystemExit) as ended:
        main(["calibrate", str(folder), *sets, "--train-fraction", "0.5"])
    assert ended.value.code == 2
    assert "a result without per-request times" in capsys.readouterr().err


def test_what_is_an_aggregate(folder: Path, tmp_path: Path) -> None:
    real = Path(__file__).parent / "data" / "vllm-0.19.0_RTX4090_Llama-3.1-8B"
    assert is_summary([folder])
    assert is_summary([folder / "rate-02.0.json"])
    assert not is_summary([real])
    assert not is_summary([real / "requests.jsonl"])
    detailed = result(2.0) | {"ttfts": [0.1]}
    (tmp_path / "detailed.json").write_text(json.dumps(detailed))
    assert not is_summary([tmp_path / "detailed.json"])


FAULTS: list[tuple[dict[str, Any], list[str]]] = [
    ({"completed": 0}, ["completed = 0"]),
    ({"request_rate": -1.0}, ["request_rate = -1"]),
    ({"request_rate": "fast"}, ['request_rate = "fast"']),
    ({"total_input_tokens": None}, ["does not say how long prompts were"]),
    ({"mean_ttft_ms": None}, []),
]


@pytest.mark.parametrize(("changes", "named"), FAULTS)
def test_results_that_cannot_be_used_are_one_sentence(
    changes: dict[str, Any], named: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(result(2.0, 20) | changes))
    if named:
        bad_input(lambda: read_levels([path]), "bad.json", *named)
    else:
        assert "ttft_served_mean_ms" not in read_levels([path]).levels[0].figures


def test_other_faults_are_one_sentence(folder: Path, tmp_path: Path) -> None:
    bad_input(lambda: calibrate_levels([folder]), "engine.num_gpu_blocks is missing")
    bad_input(lambda: read_levels([tmp_path]), "without *.json")
    (tmp_path / "a.json").write_text("{}")
    bad_input(lambda: read_levels([tmp_path / "a.json"]), "not a result that is known")
    (tmp_path / "a.json").write_text(json.dumps(result(2.0, 20)))
    (tmp_path / "b.json").write_text(json.dumps(result(3.0, 20, model_id="other")))
    bad_input(lambda: read_levels([tmp_path]), "results of made, other")
