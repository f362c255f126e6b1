"""Calibration from means and percentiles alone: results of several request rates, without per-request times.

Each result's requests are drawn anew from its recipe (rate, burstiness, number, lengths), simulated with several
seeds, and the coefficients are those whose means and percentiles repeat the measured ones best. That is much weaker
than per-request times: a result is some ten figures that move together, the requests behind them are not the ones
simulated, and what the recipe does not say (the spread of lengths) is put into the coefficients.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.analysis.calibrate.aggregate_fit import AggregateLoss, Figures, named
from fastsim.analysis.calibrate.aggregate_run import Levels, LoadLevel, read_levels
from fastsim.analysis.calibrate.fit import best_of_several, descend, minimise
from fastsim.analysis.calibrate.prior import (
    BLOCKS,
    COEFFICIENTS,
    FRONTEND,
    PROPORTIONS_SPREAD,
    ROOFLINE_SPREAD,
    Prior,
    preset_of,
    proportions,
)
from fastsim.analysis.calibrate.uncertainty import untold
from fastsim.analysis.measured.result import THROUGHPUT
from fastsim.config import Config, check_rules
from fastsim.config.derived import with_values
from fastsim.errors import InputError

Floats = npt.NDArray[np.float64]

FRONTEND_US = 5000.0
SAMPLES = 64
STARTS = 2
REFIT_STEPS = 10
REFITS = 60
"""Steps, then evaluations, of a refit."""


@dataclass(frozen=True)
class AggregateCalibration:
    """What was found; as `Calibration`, with one table of errors a result.

    Attributes
    ----------
    coefficients, intervals
        Fitted values, and 90 % intervals from refits to figures drawn anew.
    errors
        By result: load, and the error of each figure in percent.
    """

    coefficients: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    errors: list[tuple[LoadLevel, dict[str, float]]]
    config: Config
    levels: Levels
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    prior: Prior
    simulations: int
    seconds: float

    def train(self) -> dict[str, dict[str, float]]:
        """Errors by metric and statistic in percent, means over the results."""
        table: dict[str, dict[str, list[float]]] = {}
        for _, errors in self.errors:
            for column, error in errors.items():
                metric, statistic = named(column)
                if metric in ("ttft", "tpot", "itl", "e2e"):
                    table.setdefault(metric, {}).setdefault(f"{statistic}_error_pct", []).append(error)
        return {
            metric: {name: round(float(np.mean(each)), 4) for name, each in row.items()}
            for metric, row in table.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "runs": [level.source for level in self.levels.levels],
            "num_requests": sum(level.workload(0).num_requests for level in self.levels.levels),
            "coefficients": self.coefficients,
            "intervals_90": {name: list(pair) for name, pair in self.intervals.items()},
            "train": self.train(),
            "levels": [
                {"run": level.source, "load": level.load, "errors_pct": errors} for level, errors in self.errors
            ],
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "prior": self.prior.source,
            "simulations": self.simulations,
            "seconds": round(self.seconds, 3),
        }


def calibrate_levels(
    levels: Levels | Sequence[str | Path],
    sets: Sequence[str] = (),
    *,
    model: str | None = None,
    gpu: str | None = None,
    fit_blocks: bool = False,
    bootstrap: int = 12,
    seed: int = 0,
) -> AggregateCalibration:
    """Fit the latency coefficients to results of several request rates.

    Parameters
    ----------
    levels
        Results, or the files or folder of them (`read_levels`).
    sets
        `key=value` settings of the engine, and of lengths that the results do not record.
    model, gpu
        Presets whose roofline the coefficients are pulled to, and whose pool is taken if none is given.
    fit_blocks
        Fit `num_gpu_blocks` too.
    bootstrap
        Number of refits for the intervals; 0: none.
    seed
        Of the simulated requests, the samples and the bootstrap.

    Raises
    ------
    InputError
        When results cannot be used, or the pool is neither given nor estimated.
    """
    if not isinstance(levels, Levels):
        levels = read_levels(levels, sets)
    started = perf_counter()
    preset, why = preset_of(levels.provenance, levels.config, model, gpu)
    config = levels.config
    notes = [*levels.notes, f"weakly pulled to {why}"]
    if config.engine.num_gpu_blocks is None and preset is not None:
        pool = {"engine.num_gpu_blocks": preset.num_gpu_blocks}
        config = with_values(config, pool)
        levels = replace(levels, levels=tuple(_with_pool(level, pool) for level in levels.levels))
        notes.append(f"engine.num_gpu_blocks is not given: {preset.num_gpu_blocks:,} as estimated from data sheets")
    for level in levels.levels:
        check_rules(level.config, level.source)
    centre = [getattr(preset, name) for name in COEFFICIENTS] if preset is not None else _proportions(levels)
    names, spread = [*COEFFICIENTS, FRONTEND], [*(ROOFLINE_SPREAD if preset else PROPORTIONS_SPREAD), 1.5]
    centre.append(FRONTEND_US)
    if fit_blocks:
        names, spread = [*names, BLOCKS], [*spread, 0.3]
        centre.append(float(config.engine.num_gpu_blocks or 0))
    prior = Prior(tuple(names), np.array(centre), np.array(spread), why)
    simulate = Figures(levels, config, prior, seed)
    measured = [np.log([level.figures[name] for name in simulate.columns(level)]) for level in levels.levels]
    loss = AggregateLoss(simulate, measured, prior)
    logs, _ = best_of_several(loss, prior, seed, samples=SAMPLES, starts=STARTS, kept=1)
    found = simulate(np.exp(logs))
    intervals, doubts = _bootstrap(simulate, measured, found, prior, loss.misfit, logs, bootstrap, seed)
    values = np.exp(logs).tolist()
    coefficients = {name: float(f"{value:.6g}") for name, value in zip(prior.names, values, strict=True)}
    errors = [
        (level, dict(zip(simulate.columns(level), (100 * np.expm1(mine - true)).round(4).tolist(), strict=True)))
        for level, mine, true in zip(levels.levels, found, measured, strict=True)
    ]
    figures = sum(len(each) for each in measured)
    weak = (
        f"fitted to {figures} means and percentiles of {len(levels.levels)} results, not to requests: much weaker than "
        "per-request times (vllm bench serve --save-detailed, or engine times), which tell each request's queueing"
    )
    if len(levels.levels) == 1:
        weak += "; one rate alone hardly tells the coefficients apart, several rates would"
    keys = {("engine." if name == BLOCKS else "latency.") + name: value for name, value in coefficients.items()}
    keys = {key: round(value) if key.startswith("engine.") else value for key, value in keys.items()}
    return AggregateCalibration(
        coefficients=coefficients,
        intervals=intervals,
        errors=errors,
        config=with_values(config, keys),
        levels=levels,
        warnings=(weak, *doubts),
        notes=tuple(notes),
        prior=prior,
        simulations=simulate.count,
        seconds=perf_counter() - started,
    )


def _bootstrap(
    simulate: Figures,
    measured: list[Floats],
    found: list[Floats],
    prior: Prior,
    misfit: float,
    logs: Floats,
    replicates: int,
    seed: int,
) -> tuple[dict[str, tuple[float, float]], list[str]]:
    """90 % intervals: refits to new draws of all results plus resampled residuals, the prior's centre drawn anew."""
    if not replicates:
        return {}, []
    rng = np.random.default_rng([seed, 2])
    residuals = np.concatenate([true - mine for true, mine in zip(measured, found, strict=True)])
    residuals = residuals[np.isfinite(residuals)]
    sample = []
    for k in range(replicates):
        drawn = simulate.redrawn(np.exp(logs), seed + 1000 + k)
        pseudo = [each + rng.choice(residuals, len(each)) for each in drawn]
        pseudo = [np.where(np.isfinite(each), each, true) for each, true in zip(pseudo, measured, strict=True)]
        shift = prior.spread * rng.standard_normal(len(logs))
        loss = AggregateLoss(simulate, pseudo, replace(prior, centre=prior.centre * np.exp(shift)), misfit)
        # Start as far from the fit as the new belief is from the old: along a valley a refit stays where it starts
        sample.append(minimise(loss, descend(loss, logs + shift, REFIT_STEPS), REFITS, step=0.1)[0])
    low, high = np.exp(np.percentile(np.array(sample), [5, 95], axis=0))
    intervals = {name: (float(low[k]), float(high[k])) for k, name in enumerate(prior.names)}
    return intervals, list(untold(prior, np.array(sample)))


def _with_pool(level: LoadLevel, pool: dict[str, int]) -> LoadLevel:
    """The level with the pool, unless its file states one."""
    if level.config.engine.num_gpu_blocks is not None:
        return level
    return replace(level, config=with_values(level.config, pool))


def _proportions(levels: Levels) -> list[float]:
    """Coefficients from the result with the least time per output token, its batch by Little's law."""
    candidates = []
    for level in levels.levels:
        tpot_ms = level.figures.get("tpot_p50_ms") or level.figures.get("tpot_served_mean_ms")
        tpot_ms = tpot_ms or level.figures.get("itl_mean_ms") or level.figures.get("itl_p50_ms")
        if tpot_ms:
            workload = level.workload(0)
            rate = level.figures.get(THROUGHPUT, level.recipe.arrival.rate_per_s)
            batch = max(rate * tpot_ms / 1e3 * workload.mean_output_tokens, 1.0)
            context = workload.mean_prompt_tokens + workload.mean_output_tokens / 2
            candidates.append((tpot_ms * 1e3, batch, context))
    if not candidates:
        raise InputError(
            f"{levels.levels[0].source}: has neither a TPOT nor an ITL, but one was expected, or --model and --gpu"
        )
    return proportions(*min(candidates))
