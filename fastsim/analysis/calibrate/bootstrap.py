"""How sure a calibration is: refits to resampled residuals, and what each says of other pools and rates."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.analysis.calibrate.fit import Loss, Mask, Simulator, Times, minimise
from fastsim.analysis.calibrate.prior import BLOCKS, Prior
from fastsim.analysis.calibrate.run import MeasuredRun

Floats = npt.NDArray[np.float64]

BLOCK_REQUESTS = 15
"""Residuals are resampled in runs of so many neighbours, because neighbours queue behind the same requests."""
EVALUATIONS = 100
UNTOLD = 0.7
"""A coefficient whose spread is still this share of the prior's was not learnt from the run."""
TIED = 0.9
"""Two coefficients correlated beyond this trade places."""
WHAT_IF = (
    ("the run itself", 1.0, 1.0),
    ("half the KV blocks", 0.5, 1.0),
    ("double the KV blocks", 2.0, 1.0),
    ("0.8 times the rate", 1.0, 0.8),
    ("1.2 times the rate", 1.0, 1.2),
)


@dataclass(frozen=True)
class Uncertainty:
    """Intervals by parameter, warnings, predictions with intervals, and the simulations it took."""

    intervals: dict[str, tuple[float, float]]
    warnings: tuple[str, ...]
    predictions: list[dict[str, Any]]
    simulations: int


def uncertainty(
    run: MeasuredRun,
    simulate: Simulator,
    measured: Times,
    simulated: Times,
    train: Mask,
    prior: Prior,
    misfit: float,
    logs: Floats,
    replicates: int,
    seed: int,
) -> Uncertainty:
    """Refit to simulated times plus resampled residuals, the prior's centre drawn anew each time.

    Parameters
    ----------
    misfit
        Loss of the fit, against which the prior is weighed.
    logs
        Log parameters of the fit, with which `simulated` was made.
    replicates
        Number of refits; with 0 there are no intervals and no warnings.
    """
    rng = np.random.default_rng([seed, 1])
    fits = []
    for _ in range(replicates):
        pseudo = _resampled(run, measured, simulated, train, rng)
        believed = replace(prior, centre=prior.centre * np.exp(prior.spread * rng.standard_normal(len(logs))))
        fits.append(minimise(Loss(simulate, pseudo, train, believed, misfit), logs, EVALUATIONS, step=0.15)[0])
    sample = np.array(fits).reshape(replicates, len(logs))
    predictions, count = _predictions(run, prior, logs, sample)
    if not replicates:
        return Uncertainty({}, (), predictions, count)
    low, high = np.exp(np.percentile(sample, [5, 95], axis=0))
    intervals = {name: (float(low[k]), float(high[k])) for k, name in enumerate(prior.names)}
    return Uncertainty(intervals, tuple(untold(prior, sample)), predictions, count)


def _resampled(run: MeasuredRun, measured: Times, simulated: Times, train: Mask, rng: np.random.Generator) -> Times:
    """Simulated times plus residuals of training requests, drawn in blocks of neighbours, relative to their size."""
    order = run.workload.arrival_order()
    usable = order[train[order] & np.isfinite(measured.ttft_us[order]) & np.isfinite(measured.e2e_us[order])]
    count = len(usable)
    block = min(BLOCK_REQUESTS, count)
    starts = rng.integers(0, count - block + 1, -(-count // block))
    drawn = usable[(starts[:, None] + np.arange(block)).ravel()[:count]]
    residual = measured.ttft_us - simulated.ttft_us
    decode = (measured.e2e_us - measured.ttft_us) / np.maximum(simulated.e2e_us - simulated.ttft_us, 1.0)
    ttft, e2e = measured.ttft_us.copy(), measured.e2e_us.copy()
    ttft[usable] = np.maximum(simulated.ttft_us[usable] + residual[drawn], 1.0)
    e2e[usable] = ttft[usable] + (simulated.e2e_us - simulated.ttft_us)[usable] * decode[drawn]
    return Times.of(ttft, e2e, run.workload)


def untold(prior: Prior, sample: Floats) -> Iterator[str]:
    """What a sample of refits (log parameters, one a row) cannot tell, in sentences."""
    spread = sample.std(axis=0)
    for name, found, believed in zip(prior.names, spread.tolist(), prior.spread.tolist(), strict=True):
        if found > UNTOLD * believed:
            yield f"{name} cannot be told from this run: it is little more than what was assumed ({prior.source})"
    with np.errstate(invalid="ignore", divide="ignore"):
        together: Floats = np.atleast_2d(np.corrcoef(sample.T)) if len(sample) > 2 else np.eye(len(prior.names))
    for one, name in enumerate(prior.names):
        for two in range(one):
            if abs(together[one, two]) > TIED:
                yield (
                    f"{prior.names[two]} and {name} trade places (correlation {together[one, two]:.2f}): "
                    "only their sum is told"
                )


def _predictions(run: MeasuredRun, prior: Prior, logs: Floats, sample: Floats) -> tuple[list[dict[str, Any]], int]:
    """Means of the run under other pools and rates, with the fit's value and the 90 % interval of the refits."""
    blocks = run.config.engine.num_gpu_blocks
    assert blocks is not None
    if BLOCKS in prior.names:
        blocks = round(float(np.exp(logs[prior.names.index(BLOCKS)])))
    out = []
    count = 0
    for name, pool, rate in WHAT_IF:
        arrival_us = np.floor(run.workload.arrival_us / rate).astype(np.int64)
        workload = replace(run.workload, arrival_us=arrival_us)
        most = 4 * max(blocks, run.config.engine.num_gpu_blocks or 0)
        simulate = Simulator(run, prior.names, most, workload)
        wanted = max(round(blocks * pool), 2)

        def means(each: Floats, simulate: Simulator = simulate, wanted: int = wanted) -> list[float]:
            times = simulate(np.exp(each), wanted)
            return [float(np.nanmean(values)) for _, values in times.named()]

        value = means(logs)
        spread = np.array([means(each) for each in sample])
        entry: dict[str, Any] = {"name": name, "num_gpu_blocks": wanted, "rate_scale": rate}
        for k, (metric, unit) in enumerate((("ttft", 1e3), ("tpot", 1e3), ("e2e", 1e3))):
            entry[f"{metric}_mean_ms"] = value[k] / unit if np.isfinite(value[k]) else None
            if len(spread) and np.isfinite(spread[:, k]).all():
                entry[f"{metric}_mean_ms_90"] = (np.percentile(spread[:, k], [5, 95]) / unit).tolist()
        out.append(entry)
        count += simulate.count
    return out, count
