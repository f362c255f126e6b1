"""From a configuration to the record that metrics read: once for `fastsim run`, by columns for a sweep."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.engines.encode import Take, integer_or
from fastsim.engines.step_fields import STEP_TIME, fill_table
from fastsim.metrics.columns import PARAMS_DTYPE, SLO_NAMES

OVERLOAD_SHARE = 0.05
"""A backlog that takes in less than this share of the arrivals is noise or an end effect, not overload."""

NO_LIMIT = 2**62


def params_records(take: Take, count: int) -> npt.NDArray[np.void]:
    """PARAMS_DTYPE records of `count` configurations.

    Parameters
    ----------
    take
        For a grid: `lambda key, encode: grid.take(key, indices, encode)`. For one configuration:
        `lambda key, encode: np.array([encode(config.value(key))])`.
    """
    params = np.zeros(count, PARAMS_DTYPE)
    params["warmup_us"] = take("metrics.warmup_s", _microseconds)
    params["frontend_us"] = take("latency.frontend_us", round)
    params["block_size"] = take("engine.block_size", int)
    params["max_model_len"] = take("engine.max_model_len", int)
    active = take("engine.max_num_active_seqs", integer_or(NO_LIMIT))
    params["max_num_seqs"] = np.where(active < NO_LIMIT, active, take("engine.max_num_seqs", int))
    scheduled = take("engine.max_num_scheduled_tokens", integer_or(NO_LIMIT))
    params["token_budget"] = np.minimum(scheduled, take("engine.max_num_batched_tokens", int))
    params["starvation_window_us"] = take("engine.starvation_window_s", _microseconds)
    params["starvation_overtakes"] = take("engine.starvation_overtakes", int)
    params["swap_us_per_block"] = take("engine.swap_us_per_block", float)
    params["thrash_threshold"] = take("engine.thrash_threshold", float)
    params["overload_threshold"] = OVERLOAD_SHARE
    params["replicas"] = take("fleet.replicas", int)
    params["closed_loop"] = take("workload.concurrency", _is_given)
    for name in SLO_NAMES:
        params[f"slo_{name}_us"] = take(f"slo.{name}_ms", _milliseconds_or_infinity)
    for name in STEP_TIME:
        params[name] = take(f"latency.{name}", float)
    params["window_tokens"] = take("latency.window_tokens", integer_or(0))
    fill_table(params, take)
    return params


class ClassBounds(NamedTuple):
    """What each class of requests must meet, of some configurations.

    `slo_us` is float64 of shape (configurations, classes, 3): TTFT, TPOT, E2E; NaN says that the class has no bound of
    its own, so that the configuration's `slo` stands.
    """

    slo_us: npt.NDArray[np.float64]

    def at(self, places: npt.NDArray[np.intp] | npt.NDArray[np.bool_] | slice) -> "ClassBounds":
        """Those of some of the configurations."""
        return ClassBounds(self.slo_us[places])


def class_slos(take: Take, names: Sequence[str]) -> Mapping[str, npt.NDArray[np.float64]]:
    """Bounds in microseconds of each class of that name, shape (count, 3); NaN: none of its own."""
    return {
        name: np.stack(
            [take(f"workload.classes.{name}.slo.{each}_ms", _microseconds_or_nan) for each in SLO_NAMES], axis=1
        )
        for name in names
    }


def _microseconds_or_nan(value: float | None) -> float:
    return math.nan if value is None else value * 1000.0


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


def _is_given(value: int | None) -> int:
    return int(value is not None)


def _milliseconds_or_infinity(value: float | None) -> float:
    return math.inf if value is None else value * 1000.0
