"""A calibration on other hardware: term by term where the truth is known, with a range that holds it."""

import json
from pathlib import Path

import numpy as np
import pytest

from fastsim.analysis.calibrate.calibrate import Calibration, MeasuredRun, calibrate
from fastsim.analysis.calibrate.prior import COEFFICIENTS
from fastsim.analysis.calibrate.report import write_toml
from fastsim.analysis.calibrate.transfer import Transfer, transfer
from fastsim.cli import main
from fastsim.cli.transfer import transfer_text
from fastsim.config import Config, load_config, with_values
from fastsim.simulation import simulate
from fastsim.workload import Workload

from .sentences import bad_input

OWN = ["hardware.model=llama-3.1-8b", "hardware.gpu=rtx-4090", "engine.num_gpu_blocks=600"]
NEXT = ["hardware.model=llama-3.1-8b", "hardware.gpu=rtx-pro-6000"]
RATIO = 1.25
"""Kernels of this server take so much longer than presets say, on either GPU."""


def slower(config: Config, *, table: bool) -> Config:
    """Step times that much longer."""
    names = ("table_scale",) if table else COEFFICIENTS
    return with_values(config, {f"latency.{name}": getattr(config.latency, name) * RATIO for name in names})


def truth(sets: list[str], *, table: bool) -> Config:
    """What a made server of that hardware does."""
    more = ["engine.max_num_seqs=256", "engine.max_num_batched_tokens=2048", "latency.frontend_us=0"]
    return slower(load_config(None, [*sets, *more, *([] if table else ["latency.source=linear"])]), table=table)


def requests() -> Workload:
    rng = np.random.default_rng(3)
    gaps = np.where(np.arange(100) % 25 < 8, 1.0e6, 0.12e6) * rng.exponential(size=100)
    return Workload.from_arrays(
        np.cumsum(gaps).astype(np.int64), rng.integers(50, 1500, 100), rng.integers(2, 300, 100)
    )


def fitted(*, table: bool) -> Calibration:
    config = truth(OWN, table=table)
    log = simulate(config, requests()).requests
    run = MeasuredRun(
        source="made",
        workload=requests(),
        ttft_us=(log.first_token_us - log.arrival_us).astype(float),
        e2e_us=(log.last_token_us - log.arrival_us).astype(float),
        config=Config(engine=config.engine),
        engine_clock=True,
    )
    form = "table" if table else "linear"
    return calibrate(run, bootstrap=0, form=form, model="llama-3.1-8b", gpu="rtx-4090")  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=[False, True], ids=["linear", "table"])
def made(request: pytest.FixtureRequest) -> tuple[Calibration, Transfer, bool]:
    calibration = fitted(table=request.param)
    return calibration, transfer(calibration, "llama-3.1-8b@rtx-pro-6000", "llama-3.1-8b", "rtx-4090"), request.param


def test_each_term_is_carried_by_its_ratio(made: tuple[Calibration, Transfer, bool]) -> None:
    calibration, carried, table = made
    there = truth(NEXT, table=table)
    told = ("table_scale",) if table else ("b0_us", "b1_us_per_prefill_token")
    for name in told:
        assert carried.coefficients[name] == pytest.approx(getattr(there.latency, name), rel=0.05)
        assert carried.ratios[name] == pytest.approx(RATIO, rel=0.05)
        low, high = carried.ranges[name]
        assert low * (1 - 1e-5) <= getattr(there.latency, name) / RATIO <= high * (1 + 1e-5)
        assert low <= carried.coefficients[name] <= high
    if table:
        assert carried.config.latency.table_us == there.latency.table_us
        assert carried.coefficients["b0_us"] == pytest.approx(calibration.coefficients["b0_us"], rel=1e-5)
    assert carried.config.engine.num_gpu_blocks == there.engine.num_gpu_blocks


def test_the_range_holds_what_happens_there(made: tuple[Calibration, Transfer, bool]) -> None:
    calibration, carried, table = made
    row = simulate(truth(NEXT, table=table), calibration.run.workload).metrics
    for name in ("ttft", "tpot", "e2e"):
        true = row[f"{name}_served_mean_ms"]
        found, low, high = (
            getattr(each, f"{name}_ms") for each in (carried.ways["carried"], carried.low, carried.high)
        )
        assert found == pytest.approx(true, rel=0.15)
        assert low < true < high
        assert low < getattr(carried.ways["data sheet"], f"{name}_ms") < high


def test_it_is_told_and_written(made: tuple[Calibration, Transfer, bool], tmp_path: Path) -> None:
    calibration, carried, _ = made
    text = transfer_text(carried)
    assert "Carried to llama-3.1-8b on rtx-pro-6000" in text
    assert "fit / data sheet" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    json.dumps(carried.to_json())
    path = tmp_path / "there.toml"
    write_toml(calibration, path, carried)
    written = load_config(path)
    for key in ("engine.num_gpu_blocks", "latency.b0_us", "latency.table_us", "latency.table_scale"):
        expected = carried.config.value(key)
        assert written.value(key) == (None if expected is None else pytest.approx(expected, rel=1e-5))
    assert "# range " in path.read_text()


def test_a_queue_is_said_to_be_one(made: tuple[Calibration, Transfer, bool]) -> None:
    _, carried, _ = made
    steep = carried.__class__(**{**vars(carried), "steepness": 7.2})
    assert any("the small difference of two large numbers" in note for note in steep.notes)
    flat = carried.__class__(**{**vars(carried), "steepness": 1.0})
    assert len(flat.notes) == 1


def test_what_cannot_be_carried_is_one_sentence(
    made: tuple[Calibration, Transfer, bool], capsys: pytest.CaptureFixture[str]
) -> None:
    calibration, _, _ = made
    bad_input(lambda: transfer(calibration, "h100", "llama-3.1-8b", "rtx-4090"), "--for h100", "MODEL@GPU was expected")
    bad_input(lambda: transfer(calibration, "llama-3.1-8b@h100"), "--model and --gpu were expected with --for")
    bad_input(
        lambda: transfer(calibration, "llama-3.1-70b@rtx-4090", "llama-3.1-8b", "rtx-4090"), "no room for KV blocks"
    )
    summary = Path(__file__).parent / "data" / "measured"
    result = next(path for path in sorted(summary.rglob("*.json*")) if "sglang" in path.name)
    with pytest.raises(SystemExit) as ended:
        main(["calibrate", str(result), "--for", "llama-3.1-8b@h100"])
    assert ended.value.code == 2
    assert "only a run with per-request times" in capsys.readouterr().err
