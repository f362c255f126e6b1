"""Simulating a measured run with given coefficients, and the coefficients that repeat it best."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fastsim.analysis.calibrate.prior import BLOCKS, FRONTEND, SCALE, Prior
from fastsim.analysis.calibrate.run import MeasuredRun
from fastsim.errors import need
from fastsim.metrics import FLOAT_COLUMNS, INT_COLUMNS
from fastsim.records import record_of
from fastsim.simulation import Session
from fastsim.workload import Workload

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

ROBUST = 0.1
"""Residuals beyond this share of the mean count linearly: which request is preempted is chaotic, its cost is not."""
WINDOW_REQUESTS = 30
"""Means over so many consecutive requests count as well: they do not depend on who was preempted."""
SHORT_OUTPUT = 32
"""The time per token of shorter outputs counts less: it depends on which prefill a few tokens happen to wait for."""
CORRELATED_REQUESTS = 20
"""So many neighbours tell as much as one independent request, because they queue behind the same others."""
FIRST_MISFIT = 0.01
"""Loss that the first search expects; then the prior is weighed against the misfit found."""
SAMPLES = 256
STARTS = 4
DESCENT_STEPS = 12
DIFFERENCE = 0.003
"""Relative to the logarithms, which are near 5 to 10: steps of a few percent."""
EVALUATIONS = 150
REFINEMENTS = 150
SCALED = ("table_us", "table_us_per_token")
"""Fields of a record that a factor of the table scales."""
FARTHEST = 1e6
"""A residual of a request that never finishes, in means."""


@dataclass(frozen=True)
class Times:
    """Times of all requests in microseconds, float64 of shape (num_requests,); NaN where there is none."""

    ttft_us: Floats
    tpot_us: Floats
    e2e_us: Floats

    @classmethod
    def of(cls, ttft_us: Floats, e2e_us: Floats, workload: Workload) -> "Times":
        """Times with the time per output token, NaN for outputs of one token."""
        gaps = workload.output_tokens - 1.0
        with np.errstate(invalid="ignore"):  # a request that never finishes
            decode_us = np.where(np.isinf(e2e_us), np.inf, e2e_us - ttft_us)
        tpot_us = np.where(gaps >= 1, decode_us / np.maximum(gaps, 1.0), np.nan)
        return cls(ttft_us, tpot_us, e2e_us)

    def named(self) -> tuple[tuple[str, Floats], ...]:
        """Name and array of each."""
        return (("ttft", self.ttft_us), ("tpot", self.tpot_us), ("e2e", self.e2e_us))


class Simulator:
    """Simulates a run again and again in the same memory; the last one's mean batch and peak of blocks are kept.

    Parameters
    ----------
    run
        The measured run.
    names
        What the parameter vectors hold: coefficients, then `frontend_us` and `num_gpu_blocks` where fitted.
    most_blocks
        Greatest `num_gpu_blocks` that will be asked for.
    workload
        Other requests than the run's.
    """

    def __init__(
        self, run: MeasuredRun, names: tuple[str, ...], most_blocks: int | None = None, workload: Workload | None = None
    ) -> None:
        self.workload = run.workload if workload is None else workload
        self.names = names
        self.count = 0
        self.running_mean = 0.0
        self.kv_peak_blocks = 0
        self._records = record_of(run.config)
        self._table = {name: self._records.params[name].copy() for name in SCALED}
        largest = record_of(run.config)
        if most_blocks is not None:
            largest.engine["num_gpu_blocks"] = most_blocks
        self._most_blocks = int(largest.engine["num_gpu_blocks"][0])
        self._session = Session(self.workload, largest)

    def __call__(self, parameters: Floats, num_gpu_blocks: int | None = None) -> Times:
        """Times with these parameters; requests that never finish take infinitely long."""
        engine = self._records.engine
        frontend_us = 0.0
        for name, value in zip(self.names, parameters.tolist(), strict=True):
            if name == FRONTEND:
                frontend_us = value
            elif name == BLOCKS:
                num_gpu_blocks = round(value) if num_gpu_blocks is None else num_gpu_blocks
            elif name == SCALE:
                for field, unscaled in self._table.items():
                    self._records.params[field] = unscaled * value
            else:
                engine[name] = max(value, 1.0) if name == "b0_us" else value
        if num_gpu_blocks is not None:
            engine["num_gpu_blocks"] = min(max(num_gpu_blocks, 2), self._most_blocks)
        self.count += 1
        rows = self._session.run(self._records)
        self.running_mean = float(rows.floats[0, FLOAT_COLUMNS.index("running_mean")])
        self.kv_peak_blocks = int(rows.ints[0, INT_COLUMNS.index("kv_peak_blocks")])
        log = self._session.log
        never = log.finish_us < 0
        ttft = np.where(never, np.inf, log.first_token_us - log.arrival_us + frontend_us)
        e2e = np.where(never, np.inf, log.last_token_us - log.arrival_us + frontend_us)
        return Times.of(ttft, e2e, self.workload)


class Loss:
    """How badly simulated times repeat the measured ones of the training requests, plus the prior's pull.

    Times of other requests never enter. The pull acts on logarithms, as do the parameters.
    """

    def __init__(
        self, simulate: Simulator, measured: Times, train: Mask, prior: Prior, misfit: float = FIRST_MISFIT
    ) -> None:
        self._simulate = simulate
        self._prior = prior
        self.measured = measured
        self.independent = max(int(np.count_nonzero(train)), 1) / CORRELATED_REQUESTS
        self.misfit = misfit
        self._parts = {}
        gaps = simulate.workload.output_tokens - 1.0
        for name, values in measured.named():
            index = np.flatnonzero(train & np.isfinite(values))
            if len(index):
                windows = np.array_split(np.arange(len(index)), max(len(index) // WINDOW_REQUESTS, 2))
                starts = np.array([each[0] for each in windows if len(each)])
                weight = np.minimum(gaps[index] / SHORT_OUTPUT, 1.0) if name == "tpot" else np.ones(len(index))
                self._parts[name] = (index, values[index], float(values[index].mean()), weight, starts)

    def __call__(self, logs: Floats) -> float:
        """The loss at these log parameters."""
        return self.data(logs) + float((self.pull(logs) ** 2).sum())

    def data(self, logs: Floats) -> float:
        """The part of the measured times: squares of robust residuals, window means and bias of each metric."""
        return float((self.residuals(logs) ** 2).sum())

    def all_residuals(self, logs: Floats) -> Floats:
        """Everything whose squares sum up to the loss."""
        return np.concatenate([self.residuals(logs), self.pull(logs)])

    def residuals(self, logs: Floats) -> Floats:
        """What `data` sums the squares of, shape (num_residuals,)."""
        return self.residuals_of(self._simulate(np.exp(logs)))

    def residuals_of(self, times: Times) -> Floats:
        """The residuals of simulated times."""
        found = []
        for name, simulated in times.named():
            if name not in self._parts:
                continue
            index, measured, mean, weight, starts = self._parts[name]
            residual = weight * np.clip((simulated[index] - measured) / mean, -FARTHEST, FARTHEST)
            robust = np.sign(residual) * ROBUST * np.sqrt(2 * (np.sqrt(1 + (residual / ROBUST) ** 2) - 1))
            windows = np.add.reduceat(residual, starts) / np.diff(np.append(starts, len(index)))
            found += [robust / np.sqrt(len(index)), windows / np.sqrt(len(windows)), residual.mean(keepdims=True)]
        return np.concatenate(found)

    def pull(self, logs: Floats) -> Floats:
        """The prior's part: each parameter as the residual of one independent request, in units of the misfit."""
        distance = (logs - np.log(self._prior.centre)) / self._prior.spread
        return np.asarray(math.sqrt(self.misfit / self.independent) * distance, np.float64)


class AnyLoss(Protocol):
    """What is minimised: a loss that knows its residuals, and how badly the best fit misses."""

    misfit: float

    def __call__(self, logs: Floats) -> float: ...  # noqa: D102
    def data(self, logs: Floats) -> float: ...  # noqa: D102
    def all_residuals(self, logs: Floats) -> Floats: ...  # noqa: D102


def descend(loss: AnyLoss, start: Floats, evaluations: int) -> Floats:
    """Gauss-Newton steps with wide differences, which see past the steps of the loss: fast, not exact."""
    need("calibration", "scipy")
    from scipy.optimize import least_squares

    low, high = start - 4.0, start + 4.0
    found = least_squares(loss.all_residuals, start, bounds=(low, high), diff_step=DIFFERENCE, max_nfev=evaluations)
    return np.asarray(found.x, np.float64)


def minimise(
    loss: Callable[[Floats], float], start: Floats, evaluations: int, step: float = 0.2
) -> tuple[Floats, float]:
    """Nelder-Mead from a start: the loss has steps where the order of requests changes, so it has no useful slope."""
    need("calibration", "scipy")
    from scipy.optimize import minimize

    simplex = start + np.vstack([np.zeros(len(start)), step * np.eye(len(start))])
    options = {"maxfev": evaluations, "xatol": 1e-3, "fatol": 1e-8, "initial_simplex": simplex}
    found = minimize(loss, start, method="Nelder-Mead", options=options)
    return np.asarray(found.x, np.float64), float(found.fun)


def best_of_several(
    loss: AnyLoss, prior: Prior, seed: int, *, samples: int = SAMPLES, starts: int = STARTS, kept: int = 2
) -> tuple[Floats, float]:
    """Log parameters of the least loss: many samples around the prior, the best few refined, the best again."""
    centre, spread = np.log(prior.centre), np.minimum(3 * prior.spread, 2.0)
    rng = np.random.default_rng(seed)
    strata = rng.permuted(np.tile(np.arange(samples), (len(centre), 1)), axis=1).T  # a Latin hypercube
    unit = (strata + rng.random(strata.shape)) / samples
    points = np.vstack([centre, centre + spread * (2 * unit - 1)])
    order = np.argsort([loss(each) for each in points], kind="stable")[:starts]
    logs = [descend(loss, start, DESCENT_STEPS) for start in points[np.unique(np.append(order, 0))]]
    found = sorted((minimise(loss, each, EVALUATIONS, step=0.1) for each in logs), key=lambda each: each[1])[:kept]
    for step in (0.1, 0.05):
        loss.misfit = max(loss.data(found[0][0]), 1e-9)
        again = [descend(loss, each, DESCENT_STEPS) for each, _ in found]
        found += [minimise(loss, each, REFINEMENTS, step) for each in again]
        found = sorted(((each, loss(each)) for each, _ in found), key=lambda each: each[1])[:kept]
    return found[0]
