"""Calibration: known coefficients are found again, a real run is repeated, held-out times stay unseen."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastsim.analysis.calibrate.calibrate import Calibration, MeasuredRun, calibrate, read_run
from fastsim.analysis.calibrate.report import chart, requests_table, toml_text, write_toml
from fastsim.config import Config, EngineConfig, LatencyConfig, load_config
from fastsim.presets import estimate, load_gpu, load_model
from fastsim.simulation import simulate
from fastsim.workload import Workload

from .sentences import bad_input

REAL = Path(__file__).parent / "data" / "vllm-0.19.0_RTX4090_Llama-3.1-8B"
TRUTH = {
    "b0_us": 9000.0,
    "b1_us_per_prefill_token": 40.0,
    "b2_us_per_decode_token": 30.0,
    "b3_us_per_context_token": 0.06,
}
CONFIG = Config(engine=EngineConfig(num_gpu_blocks=600), latency=LatencyConfig(**TRUTH))


def mixed_workload(count: int = 120) -> Workload:
    """Quiet times and bursts in turn: batches of all sizes."""
    rng = np.random.default_rng(5)
    gaps = np.where(np.arange(count) % 30 < 10, 1.2e6, 0.15e6) * rng.exponential(size=count)
    return Workload.from_arrays(
        np.cumsum(gaps).astype(np.int64), rng.integers(50, 1500, count), rng.integers(2, 400, count)
    )


def run_of(
    workload: Workload, *, frontend_us: float = 0.0, noise: float = 0.0, engine_clock: bool = True
) -> MeasuredRun:
    """A run that the simulator itself measured, with the true coefficients."""
    log = simulate(CONFIG, workload).requests
    factor = 1 + noise * np.random.default_rng(1).standard_normal(workload.num_requests)
    return MeasuredRun(
        source="made",
        workload=workload,
        ttft_us=(log.first_token_us - log.arrival_us) * factor + frontend_us,
        e2e_us=(log.last_token_us - log.arrival_us) * factor + frontend_us,
        config=Config(engine=CONFIG.engine),
        engine_clock=engine_clock,
    )


def plain_csv(run: MeasuredRun, path: Path) -> Path:
    rows = zip(
        (run.workload.arrival_us / 1e6).tolist(),
        run.workload.prompt_tokens.tolist(),
        run.workload.output_tokens.tolist(),
        (run.ttft_us / 1e6).tolist(),
        (run.e2e_us / 1e6).tolist(),
        strict=True,
    )
    lines = ["arrival_s,prompt_tokens,output_tokens,ttft_s,e2e_s", *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def errors(table: dict[str, dict[str, float]] | None, statistic: str = "mean_error_pct") -> list[float]:
    assert table is not None
    return [abs(row[statistic]) for row in table.values()]


# --- known truth --------------------------------------------------------------------------------


def test_true_coefficients_are_found_again() -> None:
    found = calibrate(run_of(mixed_workload()), bootstrap=0)
    assert max(errors(found.train)) < 1.0
    assert max(errors(found.train, "p99_error_pct")) < 2.0
    for name in ("b0_us", "b1_us_per_prefill_token"):
        assert found.coefficients[name] == pytest.approx(TRUTH[name], rel=0.05)
    assert found.prior.source.startswith("usual proportions of the measured time")
    assert found.test is None


def test_a_noisy_run_gives_intervals_around_the_truth() -> None:
    found = calibrate(run_of(mixed_workload(), noise=0.05), bootstrap=25, seed=2)
    for name in ("b0_us", "b1_us_per_prefill_token"):
        low, high = found.intervals[name]
        assert low < found.coefficients[name] < high
        assert 0.85 * low < TRUTH[name] < 1.15 * high
    own, half, double = found.predictions[:3]
    assert own["ttft_mean_ms_90"][0] <= own["ttft_mean_ms"] * 1.02
    assert half["num_gpu_blocks"] * 2 == own["num_gpu_blocks"] == double["num_gpu_blocks"] // 2
    assert half["ttft_mean_ms"] > own["ttft_mean_ms"] > double["ttft_mean_ms"]


def test_times_held_back_never_enter_the_fit() -> None:
    run = run_of(mixed_workload())
    later = run.workload.arrival_us > np.percentile(run.workload.arrival_us, 60)
    ruined = replace(
        run, ttft_us=np.where(later, run.ttft_us * 7 + 1e6, run.ttft_us), e2e_us=np.where(later, 9e9, run.e2e_us)
    )
    one, two = (calibrate(each, train_fraction=0.5, bootstrap=3) for each in (run, ruined))
    assert one.coefficients == two.coefficients
    assert one.intervals == two.intervals
    assert one.train == two.train
    assert max(errors(one.test)) < 2.0
    assert min(errors(two.test)) > 50.0
    assert one.num_train == 60


def test_the_first_requests_in_order_of_arrival_are_fitted() -> None:
    run = run_of(mixed_workload())
    order = np.random.default_rng(0).permutation(run.workload.num_requests)
    shuffled = Workload.from_arrays(
        run.workload.arrival_us[order], run.workload.prompt_tokens[order], run.workload.output_tokens[order]
    )
    mixed = replace(run, workload=shuffled, ttft_us=run.ttft_us[order], e2e_us=run.e2e_us[order])
    found = requests_table(calibrate(mixed, train_fraction=0.25, bootstrap=0))
    assert found.filter(found["fitted"])["arrival_s"].max() < found.filter(~found["fitted"])["arrival_s"].min()  # type: ignore[operator]
    assert found["fitted"].sum() == 30


def test_a_fixed_time_outside_of_the_engine_is_found() -> None:
    run = run_of(mixed_workload(), frontend_us=30_000.0, engine_clock=False)
    found = calibrate(run, bootstrap=0)
    assert found.coefficients["frontend_us"] == pytest.approx(30_000, rel=0.25)
    assert found.config.latency.frontend_us == found.coefficients["frontend_us"]
    assert max(errors(found.train)) < 1.5


def test_the_size_of_the_pool_is_found(tmp_path: Path) -> None:
    run = run_of(mixed_workload(200))
    found = calibrate(replace(run, config=Config()), bootstrap=0)
    assert found.coefficients["num_gpu_blocks"] == pytest.approx(600, rel=0.02)
    assert found.config.engine.num_gpu_blocks == found.coefficients["num_gpu_blocks"]
    assert max(errors(found.train)) < 3.0


def test_a_pool_that_was_never_filled_is_not_fitted(tmp_path: Path) -> None:
    """A run whose pool was twice as large as it needed: any larger one would have given the same times."""
    workload = mixed_workload(120)
    roomy = Config(engine=EngineConfig(num_gpu_blocks=50_000), latency=LatencyConfig(**TRUTH))
    result = simulate(roomy, workload)
    log, peak = result.requests, result.metrics["kv_peak_blocks"]
    run = MeasuredRun(
        source="made",
        workload=workload,
        ttft_us=(log.first_token_us - log.arrival_us).astype(float),
        e2e_us=(log.last_token_us - log.arrival_us).astype(float),
        config=Config(),
        engine_clock=True,
    )
    found = calibrate(run, bootstrap=10)
    assert "num_gpu_blocks" not in found.coefficients
    assert found.config.engine.num_gpu_blocks is None
    assert found.least_blocks is not None
    assert 0.8 * peak <= found.least_blocks <= 1.2 * peak
    assert f"at least {found.least_blocks:,} blocks" in found.warnings[0]
    assert [entry["name"] for entry in found.predictions] == [
        "the run itself",
        "0.8 times the rate",
        "1.2 times the rate",
    ]
    text = toml_text(found)
    assert "num_gpu_blocks =" not in text
    assert "at least" in text
    known = calibrate(replace(run, provenance={"model": "llama-3.1-8b", "gpu": "h100"}), bootstrap=0)
    assert known.config.engine.num_gpu_blocks is not None, "the data sheet's pool is taken where there is one"
    assert "as estimated from data sheets are taken" in known.warnings[0]


def test_other_pools_are_predicted_although_the_pool_is_fitted() -> None:
    run = run_of(mixed_workload(200))
    found = calibrate(replace(run, config=Config()), bootstrap=8)
    own, half, double = found.predictions[:3]
    assert half["num_gpu_blocks"] < own["num_gpu_blocks"] < double["num_gpu_blocks"]
    assert half["ttft_mean_ms"] > own["ttft_mean_ms"] > double["ttft_mean_ms"]


def test_the_real_run_lies_in_its_own_intervals(real: Calibration) -> None:
    for metric, times in real.measured.named():
        low, high = real.predictions[0][f"{metric}_mean_ms_90"]
        assert low <= float(np.nanmean(times)) / 1e3 <= high, metric


def test_what_a_run_cannot_tell_is_said() -> None:
    """One request at a time: its batch is always 1, so a token and a request cost the same."""
    count = 40
    lonely = Workload.from_arrays(np.arange(count) * 20_000_000, np.full(count, 300), np.full(count, 60))
    found = calibrate(run_of(lonely, noise=0.03), bootstrap=20)
    assert any("b2_us_per_decode_token cannot be told" in text for text in found.warnings)
    assert max(errors(found.train)) < 2.0


# --- the real run --------------------------------------------------------------------------------


def test_settings_of_the_real_run() -> None:
    run = read_run(REAL)
    engine = run.config.engine
    assert (engine.num_gpu_blocks, engine.block_size, engine.max_num_seqs) == (2588, 16, 256)
    assert (engine.max_num_batched_tokens, engine.max_model_len) == (2048, 32768)
    assert engine.scheduler_reserve_full_isl is True
    assert engine.enable_prefix_caching is True
    assert run.workload.num_requests == 300
    assert np.mean(run.ttft_us) == pytest.approx(65.457e6, rel=1e-4)
    assert np.mean(run.tpot_us) == pytest.approx(32_446.6, rel=1e-4)
    assert np.mean(run.e2e_us) == pytest.approx(86.578e6, rel=1e-4)
    assert any("0.19.0" in note for note in run.notes)
    assert any("asynchronously" in note for note in run.notes)
    other = read_run(REAL, ["engine.name=vllm-0.33.0-async"])
    assert "rules of vllm-0.33.0-async" in other.notes[0]
    assert not any("asynchronously" in note for note in other.notes)
    assert read_run(REAL / "requests.jsonl").config == run.config
    assert read_run(REAL, ["engine.num_gpu_blocks=3000"]).config.engine.num_gpu_blocks == 3000


@pytest.fixture(scope="module")
def real() -> Calibration:
    return calibrate(REAL, bootstrap=10)


def test_the_real_run_is_repeated(real: Calibration) -> None:
    assert max(errors(real.train)) < 2.0
    assert max(errors(real.train, "p99_error_pct")) < 5.0
    assert "table from data sheets of meta-llama/Llama-3.1-8B on NVIDIA GeForce RTX 4090" in real.prior.source
    assert any("asynchronously" in note for note in real.notes)
    assert any("four linear coefficients by" in note for note in real.notes)
    assert "table_scale" in real.coefficients
    assert real.config.latency.table_us is not None


def test_a_run_made_by_a_table_gives_its_factor_back() -> None:
    """The truth: 1.2 times the shipped table, a host that takes 2 ms, twice the time of a step with prefill."""
    given = {"model": "llama-3.1-8b", "gpu": "h100"}
    table = estimate(load_model("llama-3.1-8b"), load_gpu("h100")).latency()
    truth = {"table_scale": 1.2, "b0_us": 2000.0, "b5_us_per_prefill_step": 2 * table["b5_us_per_prefill_step"]}
    config = Config(engine=CONFIG.engine, latency=LatencyConfig(**{**table, **truth, "frontend_us": 0.0}))
    workload = mixed_workload()
    log = simulate(config, workload).requests
    times = log.first_token_us - log.arrival_us, log.last_token_us - log.arrival_us
    run = replace(run_of(workload), ttft_us=times[0].astype(float), e2e_us=times[1].astype(float), provenance=given)
    found = calibrate(run, bootstrap=0)
    assert found.prior.source == "the shipped table of llama-3.1-8b on h100"
    assert found.coefficients["table_scale"] == pytest.approx(1.2, rel=0.15)
    decode_us = table["table_us"][3]  # the host and the factor trade places, what a step takes is told
    fitted_us = found.coefficients["b0_us"] + found.coefficients["table_scale"] * decode_us
    assert fitted_us == pytest.approx(2000 + 1.2 * decode_us, rel=0.03)
    assert max(errors(found.train)) < 1.0
    linear = calibrate(run, bootstrap=0, form="linear")
    assert "b1_us_per_prefill_token" in linear.coefficients
    bad_input(lambda: calibrate(replace(run, provenance={}), form="table"), "no table of step times is known")


@pytest.mark.parametrize("preset", [True, False])
def test_the_second_half_of_the_real_run_is_predicted(preset: bool) -> None:
    run = read_run(REAL)
    found = calibrate(run if preset else replace(run, provenance={}), train_fraction=0.5, bootstrap=0)
    assert found.num_train == 150
    assert max(errors(found.test)) < 2.5


def test_the_spec_written_repeats_the_fit(real: Calibration, tmp_path: Path) -> None:
    write_toml(real, tmp_path / "latency.toml")
    config = load_config(tmp_path / "latency.toml")
    assert config.latency == real.config.latency
    assert config.engine.num_gpu_blocks == 2588
    log = simulate(config, real.run.workload).requests
    assert np.mean(log.first_token_us - log.arrival_us) == pytest.approx(np.mean(real.simulated.ttft_us), rel=1e-3)
    text = toml_text(real)
    assert "NVIDIA GeForce RTX 4090" in text
    assert "90 % interval" in text
    bad_input(lambda: write_toml(real, tmp_path / "no" / "latency.toml"), "cannot be written")


def test_the_chart_has_a_dot_a_request(real: Calibration) -> None:
    pytest.importorskip("altair")
    spec = json.loads(chart(real).to_json())
    assert len(spec["hconcat"]) == 3
    assert sorted(len(values) for values in spec["datasets"].values()) == [2, 2, 2, 300, 300, 300]


def test_what_the_command_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import typer

    from fastsim.cli.calibrate import command

    app = typer.Typer()
    app.command()(command)
    arguments = [str(REAL), "--train-fraction", "0.5", "--bootstrap", "4"]
    app(args=[*arguments, "--json", "--out", str(tmp_path / "l.toml")], standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    assert set(document["coefficients"]) == {"table_scale", "b0_us", "b5_us_per_prefill_step"}
    for part in ("train", "test"):
        assert set(document[part]) == {"ttft", "tpot", "e2e"}
        assert set(document[part]["e2e"]) == {"mean_error_pct", "p50_error_pct", "p90_error_pct", "p99_error_pct"}
    assert (tmp_path / "l.toml").exists()
    app(args=arguments, standalone_mode=False)
    out = capsys.readouterr().out
    for words in (
        "b0_us",
        "The 150 requests held back",
        "half the KV blocks",
        "Width of the intervals",
        "note: vLLM 0.19.0",
    ):
        assert words in out
    assert all(len(line) <= 80 for line in out.splitlines())


# --- other formats and faults --------------------------------------------------------------------------------


def test_a_plain_csv_is_a_run(tmp_path: Path) -> None:
    path = plain_csv(run_of(mixed_workload(60)), tmp_path / "run.csv")
    found = calibrate(path, ["engine.num_gpu_blocks=600"], bootstrap=0, fit_frontend=False)
    assert max(errors(found.train)) < 1.0


def test_long_requests_raise_the_model_length(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    rows = [f"{k},9000,20,1,2" for k in range(12)]
    path.write_text("arrival_s,prompt_tokens,output_tokens,ttft_s,e2e_s\n" + "\n".join(rows) + "\n")
    run = read_run(path)
    assert run.config.engine.max_model_len == 9020
    assert "engine.max_model_len is not given" in " ".join(run.notes)


FAULTS: list[tuple[dict[str, Any], list[str]]] = [
    ({"train_fraction": 0.0}, ["train_fraction = 0"]),
    ({"train_fraction": 1.5}, ["train_fraction = 1.5"]),
    ({"train_fraction": 0.01}, ["train_fraction = 0.01", "3 measured requests"]),
    ({"sets": ["engine.num_gpu_blocks=20"]}, ["engine.num_gpu_blocks = 20", "could not have served"]),
    ({"sets": ["engine.name=blis"]}, ["engine.name = 'blis'"]),
    ({"model": "gpt-9"}, ["gpt-9"]),
    ({"gpu": "h101"}, ["h101", "did you mean h100"]),
]


@pytest.mark.parametrize(("options", "named"), FAULTS)
def test_bad_options_are_one_sentence(options: dict[str, Any], named: list[str]) -> None:
    bad_input(lambda: calibrate(REAL, **options), *named)


def test_files_that_are_no_run_are_one_sentence(tmp_path: Path) -> None:
    azure = Path(__file__).parent / "data" / "azure2023_conv_first2000.csv"
    bad_input(lambda: calibrate(azure), "no times of first and last tokens")
    short = tmp_path / "short.csv"
    short.write_text("arrival_s,prompt_tokens,output_tokens,ttft_s,e2e_s\n0,5,5,1,2\n1,5,5,,\n")
    bad_input(lambda: calibrate(short), "1 requests have times", "at least 10")
    (tmp_path / "meta.json").write_text("{")
    bad_input(lambda: read_run(plain_csv(run_of(mixed_workload(60)), tmp_path / "r.csv")), "meta.json", "not readable")
    (tmp_path / "meta.json").write_text('{"kv_cache": {"num_gpu_blocks": "many"}}')
    bad_input(lambda: read_run(tmp_path / "r.csv"), "engine.num_gpu_blocks", '"many"')
