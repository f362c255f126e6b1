"""Configurations as kernels read them: from a grid's columns, from some of its indices, or from configurations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.config import Config, resolved
from fastsim.engines.encode import Take
from fastsim.engines.vllm.codes import CONFIG_DTYPE
from fastsim.engines.vllm.records import config_records
from fastsim.families import Others, other_records
from fastsim.metrics.params import params_records


@dataclass(frozen=True)
class Records:
    """Configurations as kernels read them: `engine` (CONFIG_DTYPE) and `params` (PARAMS_DTYPE), shape (count,).

    `others` holds the records of those that are not vLLM's, whose `engine` then means nothing.
    """

    engine: npt.NDArray[np.void]
    params: npt.NDArray[np.void]
    others: Others | None = None

    def __len__(self) -> int:
        return len(self.engine)


def engine_records(grid: Any, start: int, stop: int) -> Records:
    """Records of the grid's configurations start .. stop - 1."""
    return records_at(grid, np.arange(start, stop))


def records_at(grid: Any, indices: npt.NDArray[np.int64]) -> Records:
    """Records of some of the grid's configurations, in the order of `indices` (int64, shape (count,))."""

    def take(key: str, encode: Callable[[Any], Any]) -> npt.NDArray[Any]:
        return np.asarray(grid.take(key, indices, encode))

    return _records(take, len(indices))


def records_of(configs: Sequence[Config]) -> Records:
    """Records of configurations, in their order."""
    filled = [resolved(config) for config in configs]

    def take(key: str, encode: Callable[[Any], Any]) -> npt.NDArray[Any]:
        return np.array([encode(config.value(key)) for config in filled])

    return _records(take, len(filled))


def record_of(config: Config) -> Records:
    """Records of one configuration."""
    return records_of([config])


def _records(take: Take, count: int) -> Records:
    params = params_records(take, count)
    others = other_records(take, params)
    if others is not None and others.family.all():
        return Records(np.zeros(count, CONFIG_DTYPE), params, others)
    return Records(config_records(take, count), params, others)
