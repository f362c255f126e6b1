"""Simulating results of several request rates, and how badly their means and percentiles are repeated."""

import math

import numpy as np
import numpy.typing as npt

from fastsim.analysis.calibrate.aggregate_run import Levels, LoadLevel
from fastsim.analysis.calibrate.prior import BLOCKS, FRONTEND, Prior
from fastsim.analysis.measured.result import THROUGHPUT
from fastsim.config import Config
from fastsim.metrics import FLOAT_COLUMNS
from fastsim.records import record_of
from fastsim.simulation import Session

Floats = npt.NDArray[np.float64]

SEEDS = 3
"""Draws of each recipe that a fit simulates; their mean is compared."""
INDEPENDENT = 3
"""So many figures of one result tell as much as one that is independent of the others."""
FIRST_MISFIT = 0.02
NOT_FINITE = 3.0
"""Log residual of a figure that is not there in the simulation: a request never got that far."""
WEIGHTS = {"mean": 1.0, "p50": 0.7, "p90": 0.5, "p95": 0.5, "p99": 0.4}
"""Tails of a few hundred requests are noisy."""


class Figures:
    """Simulates all results: the logarithm of each figure that was measured, averaged over seeds."""

    def __init__(self, levels: Levels, config: Config, prior: Prior, seed: int, seeds: int = SEEDS) -> None:
        self.levels = levels
        self._prior = prior
        self.count = 0
        self._records = [record_of(level.config) for level in levels.levels]
        self._most_blocks = 4 * int(config.engine.num_gpu_blocks or 0)
        self._seeds = seeds
        self._sessions = [[self._session(level, seed + k) for k in range(seeds)] for level in levels.levels]

    def _session(self, level: LoadLevel, seed: int) -> Session:
        largest = record_of(level.config)
        if BLOCKS in self._prior.names:
            largest.engine["num_gpu_blocks"] = self._most_blocks
        return Session(level.workload(seed), largest)

    def redrawn(self, parameters: Floats, seed: int) -> list[Floats]:
        """The figures of one new draw of every result: what measuring again would give."""
        return [
            self._mean([self._session(level, seed)], index, parameters)
            for index, level in enumerate(self.levels.levels)
        ]

    @staticmethod
    def columns(level: LoadLevel) -> list[str]:
        """Names of a result's figures."""
        return list(level.figures)

    def __call__(self, parameters: Floats) -> list[Floats]:
        """Log figures of each result."""
        return [self._mean(sessions, index, parameters) for index, sessions in enumerate(self._sessions)]

    def _mean(self, sessions: list[Session], index: int, parameters: Floats) -> Floats:
        level, records = self.levels.levels[index], self._records[index]
        engine, params = records.engine, records.params
        for name, value in zip(self._prior.names, parameters.tolist(), strict=True):
            if name == FRONTEND:
                params["frontend_us"] = round(value)
            elif name == BLOCKS:
                engine["num_gpu_blocks"] = min(max(round(value), 2), self._most_blocks)
            else:
                engine[name] = max(value, 1.0) if name == "b0_us" else value
        places = [FLOAT_COLUMNS.index(name) for name in self.columns(level)]
        with np.errstate(divide="ignore", invalid="ignore"):
            rows = [np.log(session.run(records).floats[0, places]) for session in sessions]
        self.count += len(sessions)
        return np.asarray(np.mean(rows, axis=0), np.float64)


class AggregateLoss:
    """Squares of weighted log residuals of all figures, plus the prior's pull."""

    def __init__(self, simulate: Figures, measured: list[Floats], prior: Prior, misfit: float = FIRST_MISFIT) -> None:
        self._simulate = simulate
        self._measured = measured
        self._prior = prior
        self.misfit = misfit
        names = [simulate.columns(level) for level in simulate.levels.levels]
        weights = [np.array([_weight(name) for name in each]) for each in names]
        self._weights = [each / np.sqrt(sum(float((w**2).sum()) for w in weights)) for each in weights]
        self._independent = max(sum(len(each) for each in measured) / INDEPENDENT, 1.0)

    def __call__(self, logs: Floats) -> float:
        """The loss at these log parameters."""
        return float((self.all_residuals(logs) ** 2).sum())

    def data(self, logs: Floats) -> float:
        """The part of the figures."""
        return float((self._residuals(logs) ** 2).sum())

    def all_residuals(self, logs: Floats) -> Floats:
        """Everything whose squares sum up to the loss."""
        distance = (logs - np.log(self._prior.centre)) / self._prior.spread
        return np.concatenate([self._residuals(logs), math.sqrt(self.misfit / self._independent) * distance])

    def _residuals(self, logs: Floats) -> Floats:
        found = self._simulate(np.exp(logs))
        parts = [
            weight * np.nan_to_num(np.clip(mine - true, -NOT_FINITE, NOT_FINITE), nan=NOT_FINITE)
            for mine, true, weight in zip(found, self._measured, self._weights, strict=True)
        ]
        return np.concatenate(parts)


def named(column: str) -> tuple[str, str]:
    """Metric and statistic of a column."""
    metric, _, rest = column.partition("_")
    return metric, rest.removeprefix("served_").removesuffix("_ms")


def _weight(column: str) -> float:
    return 1.0 if column == THROUGHPUT else WEIGHTS[named(column)[1]]
