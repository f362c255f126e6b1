"""How sure a calibration is of its coefficients, and of what it says of other pools and rates.

Three things move a fit: noise in the measured times; chance, because a little more time a step changes who is preempted
and queues behind whom, so that runs with almost the same coefficients differ; and, where the run does not tell,
whatever was believed before. Each is turned into a spread of the coefficients by the same slopes, taken over runs
scattered as widely as the answer: refits from the best point would see the noise only.

The spread is then widened by `WIDENING`, with which intervals cover the truth about nine times in ten on made runs
(four kinds of load, pools filled and not, noise of 0 to 3 %): the slopes see a rugged loss only on average, and a
search can end beside the best point. `tests/test_calibration_coverage.py` holds it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.analysis.calibrate.fit import Loss, Mask, Simulator, Times
from fastsim.analysis.calibrate.prior import BLOCKS, COEFFICIENTS, SCALE, Prior
from fastsim.analysis.calibrate.run import MeasuredRun

Floats = npt.NDArray[np.float64]

BLOCK_REQUESTS = 15
"""Residuals are resampled in runs of so many neighbours, because neighbours queue behind the same requests."""
SCATTERED = 80
"""Runs around the fit from which slopes and chance are taken, in each of `ROUNDS` rounds."""
ROUNDS = 3
WIDENING = 2.0
CANDIDATES = 3
"""So many are drawn for one that a prediction uses: the spread is a straight picture of a bent valley."""
NUDGE = 0.003
"""Two runs whose coefficients differ by so much (log) are one run with another luck."""
NUDGES = 6
UNTOLD = 0.5
"""A coefficient whose spread is still this share of the prior's was not learnt from the run."""
SMALL_TERM = 0.03
"""A term that makes less than this share of a step's time hides behind the others."""
TIED = 0.9
"""Two coefficients correlated beyond this trade places."""
POOLS_AND_RATES = (
    ("the run itself", 1.0, 1.0),
    ("half the KV blocks", 0.5, 1.0),
    ("double the KV blocks", 2.0, 1.0),
    ("0.8 times the rate", 1.0, 0.8),
    ("1.2 times the rate", 1.0, 1.2),
)


@dataclass(frozen=True)
class Uncertainty:
    """Intervals by parameter, those that the run tells, warnings, predictions with intervals, simulations taken."""

    intervals: dict[str, tuple[float, float]]
    told: tuple[str, ...]
    warnings: tuple[str, ...]
    predictions: list[dict[str, Any]]
    simulations: int


def uncertainty(
    run: MeasuredRun,
    simulate: Simulator,
    measured: Times,
    train: Mask,
    prior: Prior,
    misfit: float,
    logs: Floats,
    draws: int,
    seed: int,
    *,
    pools: bool = True,
) -> Uncertainty:
    """Intervals of coefficients and predictions.

    Parameters
    ----------
    misfit
        Loss of the fit, against which the prior is weighed.
    logs
        Log parameters of the fit.
    draws
        Coefficients drawn for the predictions; with 0 there are no intervals and no warnings.
    pools
        Whether other pools are predicted too: not where the run's own is not known.
    """
    rng = np.random.default_rng([seed, 1])
    if not draws:
        predictions, count = _predictions(run, prior, logs, np.empty((0, len(logs))), np.ones((0, 3)), pools=pools)
        return Uncertainty({}, (), (), predictions, count)
    misfit = max(misfit, _chance_misfit(simulate, train, prior, logs, rng))
    centre, covariance = _spread(run, simulate, measured, train, prior, misfit, logs, rng)
    sample = _drawn(Loss(simulate, measured, train, prior, misfit), prior, centre, covariance, draws, rng)
    deviation = np.sqrt(np.diag(covariance))
    low, high = np.minimum(centre - 1.645 * deviation, logs), np.maximum(centre + 1.645 * deviation, logs)
    intervals = {
        name: (float(np.exp(low[k])), float(np.exp(high[k]))) for k, name in enumerate(prior.names)
    }  # the fitted value is inside its own interval
    shares = _shares(run, simulate, prior, logs)
    told = tuple(
        name
        for k, name in enumerate(prior.names)
        if deviation[k] < UNTOLD * prior.spread[k] and shares.get(name, 1.0) >= SMALL_TERM
    )
    warnings = [*_untold(prior, told, shares), *_tied(run, simulate, prior, covariance, sample)]
    bias = _mean_noise(run, measured, simulate(np.exp(logs)), train, draws, rng)
    predictions, count = _predictions(run, prior, logs, sample, bias, pools=pools)
    return Uncertainty(intervals, told, tuple(warnings), predictions, count)


def _drawn(
    loss: Loss, prior: Prior, centre: Floats, covariance: Floats, draws: int, rng: np.random.Generator
) -> Floats:
    """Log parameters for predictions: of those drawn by the spread, the ones that repeat the run itself best."""
    sample = rng.multivariate_normal(centre, covariance, CANDIDATES * draws)
    sample = np.clip(sample, np.log(prior.centre) - 6 * prior.spread, np.log(prior.centre) + 6 * prior.spread)
    return np.asarray(sample[np.argsort([loss(each) for each in sample], kind="stable")[:draws]], np.float64)


def _chance_misfit(simulate: Simulator, train: Mask, prior: Prior, logs: Floats, rng: np.random.Generator) -> float:
    """The loss between runs whose coefficients are as good as equal: no fit can be trusted to be closer."""
    loss = Loss(simulate, simulate(np.exp(logs)), train, prior)
    return float(np.median([loss.data(logs + NUDGE * rng.standard_normal(len(logs))) for _ in range(NUDGES)]))


def _spread(
    run: MeasuredRun,
    simulate: Simulator,
    measured: Times,
    train: Mask,
    prior: Prior,
    misfit: float,
    logs: Floats,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Centre and covariance of the log parameters, widened."""
    size = len(logs)
    loss = Loss(simulate, measured, train, prior, misfit)
    weight = misfit / loss.independent * np.diag(prior.spread**-2.0)
    centre, scatter = logs.copy(), np.diag((0.05 * prior.spread) ** 2)
    covariance = scatter
    for _ in range(ROUNDS):
        steps = rng.multivariate_normal(np.zeros(size), scatter, SCATTERED)
        found = np.array([loss.residuals(centre + step) for step in steps])
        design = np.hstack([np.ones((SCATTERED, 1)), steps])
        fitted = np.linalg.lstsq(design, found, rcond=None)[0]
        slopes = fitted[1:].T
        chance = (found - design @ fitted) * np.sqrt(SCATTERED / (SCATTERED - size - 1))
        gain = np.linalg.solve(slopes.T @ slopes + weight, slopes.T)
        pull = np.linalg.solve(slopes.T @ slopes + weight, weight)
        noise = _noise(run, simulate, measured, train, prior, centre, rng) @ gain.T
        believed = (prior.spread * rng.standard_normal((SCATTERED, size))) @ pull.T
        covariance = sum((np.cov(each.T) for each in (chance @ gain.T, noise, believed)), np.zeros((size, size)))
        farthest = 3 * np.sqrt(np.diag(scatter))
        centre = centre - np.clip(gain @ fitted[0] + pull @ (centre - np.log(prior.centre)), -farthest, farthest)
        narrow = np.minimum(1.0, 0.5 * prior.spread / np.sqrt(np.diag(covariance)))
        scatter = covariance * np.outer(narrow, narrow)
    return centre, np.asarray(WIDENING**2 * covariance, np.float64)


def _noise(
    run: MeasuredRun,
    simulate: Simulator,
    measured: Times,
    train: Mask,
    prior: Prior,
    logs: Floats,
    rng: np.random.Generator,
) -> Floats:
    """What noise in the measured times does to the residuals, shape (SCATTERED, num_residuals), without its mean."""
    simulated = simulate(np.exp(logs))
    found = np.array(
        [
            Loss(simulate, _resampled(run, measured, simulated, train, rng), train, prior).residuals_of(simulated)
            for _ in range(SCATTERED)
        ]
    )
    return np.asarray(found - found.mean(axis=0), np.float64)


def _usable(run: MeasuredRun, measured: Times, train: Mask) -> npt.NDArray[np.int64]:
    """Training requests with both times, in order of arrival."""
    order = run.workload.arrival_order()
    usable = train[order] & np.isfinite(measured.ttft_us[order]) & np.isfinite(measured.e2e_us[order])
    return np.asarray(order[usable], np.int64)


def _blocks(count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Numbers below `count`, drawn in runs of neighbours."""
    block = min(BLOCK_REQUESTS, count)
    starts = rng.integers(0, count - block + 1, -(-count // block))
    return np.asarray((starts[:, None] + np.arange(block)).ravel()[:count], np.int64)


def _resampled(run: MeasuredRun, measured: Times, simulated: Times, train: Mask, rng: np.random.Generator) -> Times:
    """Simulated times plus residuals of training requests, drawn in blocks of neighbours, relative to their size."""
    usable = _usable(run, measured, train)
    drawn = usable[_blocks(len(usable), rng)]
    residual = measured.ttft_us - simulated.ttft_us
    decode = (measured.e2e_us - measured.ttft_us) / np.maximum(simulated.e2e_us - simulated.ttft_us, 1.0)
    ttft, e2e = measured.ttft_us.copy(), measured.e2e_us.copy()
    ttft[usable] = np.maximum(simulated.ttft_us[usable] + residual[drawn], 1.0)
    e2e[usable] = ttft[usable] + (simulated.e2e_us - simulated.ttft_us)[usable] * decode[drawn]
    return Times.of(ttft, e2e, run.workload)


def _mean_noise(
    run: MeasuredRun, measured: Times, simulated: Times, train: Mask, draws: int, rng: np.random.Generator
) -> Floats:
    """Factors between a measured mean and the simulated one, from blocks of residuals: shape (draws, 3 metrics)."""
    usable = _usable(run, measured, train)
    factors = np.ones((draws, 3))
    for k, ((_, true), (_, found)) in enumerate(zip(measured.named(), simulated.named(), strict=True)):
        known = usable[np.isfinite(true[usable]) & np.isfinite(found[usable])]
        if len(known):
            mean = float(found[known].mean())
            for draw in range(draws):
                drawn = known[_blocks(len(known), rng)]
                factors[draw, k] += float((true[drawn] - found[drawn]).mean()) / mean
    return factors


def _shares(run: MeasuredRun, simulate: Simulator, prior: Prior, logs: Floats) -> dict[str, float]:
    """Share of a decode step's time, at the run's mean batch, that each coefficient makes."""
    terms, rest_us = _step_terms(run, simulate, prior, logs[None, :])
    total = sum(float(us[0]) for us in terms.values()) + rest_us
    return {name: float(us[0]) / total for name, us in terms.items()}


def _step_terms(run: MeasuredRun, simulate: Simulator, prior: Prior, sample: Floats) -> tuple[dict[str, Floats], float]:
    """What a decode step's time is made of at the run's mean batch and context, us.

    Fitted terms, each of shape (len(sample),), and the sum of those that stand.
    """
    simulate(np.exp(sample[0]))
    batch = max(simulate.running_mean, 1.0)
    workload = run.workload
    context = batch * (workload.mean_prompt_tokens + workload.mean_output_tokens / 2)
    table = prior.fixed.get("latency.table_tokens"), prior.fixed.get("latency.table_us")
    sizes = {COEFFICIENTS[0]: 1.0, COEFFICIENTS[2]: batch, COEFFICIENTS[3]: context}
    if None not in table:
        sizes[SCALE] = float(np.interp(batch, *table))  # type: ignore[arg-type]
    terms = {
        name: np.exp(sample[:, prior.names.index(name)]) * size for name, size in sizes.items() if name in prior.names
    }
    return terms, sum(float(prior.fixed.get(f"latency.{name}", 0.0)) * size for name, size in sizes.items())


def _untold(prior: Prior, told: tuple[str, ...], shares: dict[str, float]) -> Iterator[str]:
    for name in prior.names:
        if name in told:
            continue
        small = f"it makes {shares[name]:.1%} of a step here; " if shares.get(name, 1.0) < SMALL_TERM else ""
        yield f"{name} cannot be told from this run: {small}it is little more than what was assumed ({prior.source})"


def _tied(run: MeasuredRun, simulate: Simulator, prior: Prior, covariance: Floats, sample: Floats) -> Iterator[str]:
    """Pairs that trade places, and what of them is told all the same."""
    deviation = np.sqrt(np.diag(covariance))
    together = covariance / np.outer(deviation, deviation)
    for one, name in enumerate(prior.names):
        for two in range(one):
            if abs(together[one, two]) <= TIED:
                continue
            other = prior.names[two]
            text = f"{other} and {name} cannot be told apart by this run (correlation {together[one, two]:.2f})"
            terms, rest_us = _step_terms(run, simulate, prior, sample)
            if together[one, two] < 0 and {name, other} <= set(terms):
                steps = (np.sum(list(terms.values()), axis=0) + rest_us) / 1e3
                low, high = np.percentile(steps, [5, 95])
                text += f"; their sum at this load can: a decode step takes {low:.4g} to {high:.4g} ms"
            yield text


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


def _predictions(
    run: MeasuredRun, prior: Prior, logs: Floats, sample: Floats, bias: Floats, *, pools: bool
) -> tuple[list[dict[str, Any]], int]:
    """Means of the run under other pools and rates: the fit's value, and the 90 % interval over the sample."""
    blocks = run.config.engine.num_gpu_blocks
    assert blocks is not None
    if BLOCKS in prior.names:
        blocks = round(float(np.exp(logs[prior.names.index(BLOCKS)])))
    out = []
    count = 0
    for name, pool, rate in POOLS_AND_RATES:
        if pool != 1.0 and not pools:
            continue
        arrival_us = np.floor(run.workload.arrival_us / rate).astype(np.int64)
        most = 8 * max(blocks, run.config.engine.num_gpu_blocks or 0)
        simulate = Simulator(run, prior.names, most, replace(run.workload, arrival_us=arrival_us))

        def means(each: Floats, simulate: Simulator = simulate, pool: float = pool) -> list[float]:
            own = float(np.exp(each[prior.names.index(BLOCKS)])) if BLOCKS in prior.names else float(blocks)
            times = simulate(np.exp(each), max(round(own * pool), 2))
            return [float(np.nanmean(values)) for _, values in times.named()]

        value = means(logs)
        spread = np.array([means(each) for each in sample]) * bias if len(sample) else np.empty((0, 3))
        wanted = max(round(blocks * pool), 2)
        entry: dict[str, Any] = {"name": name, "num_gpu_blocks": wanted if pools else None, "rate_scale": rate}
        for k, (metric, unit) in enumerate((("ttft", 1e3), ("tpot", 1e3), ("e2e", 1e3))):
            entry[f"{metric}_mean_ms"] = value[k] / unit if np.isfinite(value[k]) else None
            if len(spread) and np.isfinite(spread[:, k]).all():
                low, high = np.percentile(spread[:, k], [5, 95])
                entry[f"{metric}_mean_ms_90"] = [min(low, value[k]) / unit, max(high, value[k]) / unit]
        out.append(entry)
        count += simulate.count
    return out, count
