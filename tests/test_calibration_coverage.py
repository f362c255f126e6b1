"""Intervals of a calibration cover the truth: runs that the simulator made with known coefficients, fitted again."""

import os
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fastsim.analysis.calibrate.calibrate import MeasuredRun, calibrate
from fastsim.analysis.calibrate.prior import COEFFICIENTS
from fastsim.analysis.calibrate.uncertainty import POOLS_AND_RATES
from fastsim.config import ArrivalConfig, Config, EngineConfig, LatencyConfig, LengthConfig, WorkloadConfig
from fastsim.simulation import simulate
from fastsim.workload import build_workload

RUNS = int(os.environ.get("FASTSIM_CASES", "40"))
KINDS = ("poisson", "bursts", "overload", "at once")


@dataclass(frozen=True)
class Made:
    """A run with known coefficients and pool."""

    run: MeasuredRun
    truth: dict[str, float]
    blocks: int


def made(seed: int) -> Made:
    """One of four kinds of load, with a pool that it fills or not, and noise of 0, 1 or 3 %."""
    rng = np.random.default_rng([seed, 77])
    kind, filled, noise = KINDS[seed % 4], bool(seed // 4 % 2), (0.01, 0.0, 0.03)[seed // 8 % 3]
    b0 = float(np.exp(rng.uniform(np.log(4e3), np.log(25e3))))
    spread = np.exp(rng.standard_normal(3) * (0.5, 1.0, 0.5))
    truth = dict(zip(COEFFICIENTS, [b0, *(b0 * np.array([1 / 200, 1e-3, 1e-5]) * spread).tolist()], strict=True))
    count = {"poisson": 300, "bursts": 300, "overload": 400, "at once": 200}[kind]
    workload = build_workload(
        WorkloadConfig(
            num_requests=count,
            seed=seed,
            arrival=ArrivalConfig(
                kind={"bursts": "gamma", "at once": "all_at_once"}.get(kind, "poisson"),  # type: ignore[arg-type]
                rate_per_s=1e6 / (b0 * 15) * {"bursts": 1.5, "overload": 3.0}.get(kind, 1.0),
                cv=3.0,
            ),
            prompt=LengthConfig(dist="lognormal", mean=600.0, stdev=500.0, max=4000),
            output=LengthConfig(dist="lognormal", mean=150.0, stdev=100.0, max=1000),
        )
    )
    slots = 64 if kind in ("overload", "at once") else 256
    latency = LatencyConfig(**truth)

    def served(blocks: int) -> tuple[Config, "MeasuredRun"]:
        config = Config(engine=EngineConfig(num_gpu_blocks=blocks, max_num_seqs=slots), latency=latency)
        log = simulate(config, workload).requests
        factor = 1 + noise * rng.standard_normal(count)
        first, last = (each - log.arrival_us for each in (log.first_token_us, log.last_token_us))
        return config, MeasuredRun("made", workload, first * factor, last * factor, Config(engine=config.engine), True)

    peak = int(simulate(served(100_000)[0], workload).metrics["kv_peak_blocks"])
    blocks = max(peak * 6 // 10, 400) if filled else 2 * peak
    return Made(served(blocks)[1], truth, blocks)


def covered(case: Made, *, fit_blocks: bool, seed: int) -> tuple[list[bool], list[bool]]:
    """Whether each coefficient that is said to be told, and each predicted mean, is in its interval."""
    run = case.run
    if fit_blocks:
        run = replace(run, config=Config(engine=run.config.engine.model_copy(update={"num_gpu_blocks": None})))
    found = calibrate(run, bootstrap=60, seed=seed)
    truth = case.truth | {"num_gpu_blocks": float(case.blocks)}
    told = [found.intervals[name][0] <= truth[name] <= found.intervals[name][1] for name in found.told]
    factors = {name: (pool, rate) for name, pool, rate in POOLS_AND_RATES}
    predicted = []
    for entry in found.predictions:
        pool, rate = factors[str(entry["name"])]
        workload = replace(run.workload, arrival_us=np.floor(run.workload.arrival_us / rate).astype(np.int64))
        engine = case.run.config.engine.model_copy(update={"num_gpu_blocks": max(round(case.blocks * pool), 2)})
        log = simulate(Config(engine=engine, latency=LatencyConfig(**case.truth)), workload).requests
        if (log.finish_us < 0).any():
            continue
        ttft, e2e = (each - log.arrival_us for each in (log.first_token_us, log.last_token_us))
        gaps = np.maximum(run.workload.output_tokens - 1.0, 1.0)
        tpot = np.where(run.workload.output_tokens > 1, (e2e - ttft) / gaps, np.nan)
        for metric, values in (("ttft", ttft), ("tpot", tpot), ("e2e", e2e)):
            if (interval := entry.get(f"{metric}_mean_ms_90")) is not None:
                predicted.append(bool(interval[0] <= np.nanmean(values) / 1e3 <= interval[1]))
    return told, predicted


def share(seeds: range, *, fit_blocks: bool) -> tuple[float, float, int, int]:
    """Shares covered of coefficients and of predictions, and how many of each."""
    cases = [covered(made(seed), fit_blocks=fit_blocks, seed=seed) for seed in seeds]
    told = [each for one, _ in cases for each in one]
    predicted = [each for _, two in cases for each in two]
    return float(np.mean(told)), float(np.mean(predicted)), len(told), len(predicted)


@pytest.mark.parametrize("fit_blocks", [False, True])
@pytest.mark.slow
def test_intervals_cover(fit_blocks: bool) -> None:
    coefficients, predictions, told, predicted = share(range(RUNS), fit_blocks=fit_blocks)
    print(f"\nblocks {fit_blocks}: {coefficients:.1%} of {told} coefficients, {predictions:.1%} of {predicted} means")
    assert 0.85 <= coefficients <= 0.97
    assert 0.85 <= predictions <= 0.98
    assert told >= 1.5 * RUNS, "a run tells the fixed time and the prefill at the least"


def test_a_few_runs_are_covered() -> None:
    """The same on a few: no sharp statement, but intervals that are a tenth as wide would fail."""
    coefficients, predictions, told, _ = share(range(4, 8), fit_blocks=False)
    assert told >= 6
    assert coefficients >= 0.7
    assert predictions >= 0.7
