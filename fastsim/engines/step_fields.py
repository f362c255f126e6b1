"""A table of step times by tokens, inside a record: weights, experts and kernels do not grow evenly with a batch.

Piecewise linear through its knots. Before the first knot the first value holds, beyond the last one the last slope
goes on; no tokens take no time.
"""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.engines.encode import Take

MOST_KNOTS = 32

STEP_TIME = (
    "b0_us",
    "b1_us_per_prefill_token",
    "b2_us_per_decode_token",
    "b3_us_per_context_token",
    "b4_us_per_prefill_pair",
    "b5_us_per_prefill_step",
    "b6_us_per_window_token",
)
"""The coefficients beside the table: keys below `latency.`, and fields of records."""

TABLE_FIELDS: list[Any] = [
    ("table_knots", np.int64),  # 0: no table
    ("max_cudagraph_capture_size", np.int64),  # decode-only steps up to it are padded to a captured size
    ("table_tokens", np.int64, (MOST_KNOTS,)),
    ("table_us", np.float64, (MOST_KNOTS,)),
    ("table_us_per_token", np.float64, (MOST_KNOTS,)),  # from each knot to the next
]
"""Fields of a record that has a table."""


def fill_table(records: npt.NDArray[np.void], take: Take) -> None:
    """Fill the fields of the table, `latency.table_scale` multiplied in, from the configurations' keys."""
    tokens, us = take("latency.table_tokens", _tokens), take("latency.table_us", _us)
    records["table_knots"] = take("latency.table_tokens", table_length)
    records["max_cudagraph_capture_size"] = take("latency.max_cudagraph_capture_size", _or_0)
    records["table_tokens"] = tokens
    records["table_us"] = us * take("latency.table_scale", float)[:, None]
    width = np.diff(tokens, axis=1, append=tokens[:, -1:])
    height = np.diff(records["table_us"], axis=1, append=records["table_us"][:, -1:])
    records["table_us_per_token"] = np.divide(height, width, out=np.zeros_like(height), where=width > 0)
    several = records["table_knots"] > 1
    rows, last = np.flatnonzero(several), records["table_knots"][several] - 1
    records["table_us_per_token"][rows, last] = records["table_us_per_token"][rows, last - 1]


def table_length(values: tuple[float, ...] | None) -> int:
    """Encodes how many knots a table has."""
    return len(values or ())


def _or_0(value: int | None) -> int:
    return value or 0


@cache
def _tokens(values: tuple[int, ...] | None) -> npt.NDArray[np.int64]:
    return _padded(values, np.int64)


@cache
def _us(values: tuple[float, ...] | None) -> npt.NDArray[np.float64]:
    return _padded(values, np.float64)


def _padded(values: tuple[Any, ...] | None, dtype: Any) -> npt.NDArray[Any]:
    """The values, the last one repeated up to MOST_KNOTS."""
    if not values:
        return np.zeros(MOST_KNOTS, dtype)
    return np.array([*values, *[values[-1]] * (MOST_KNOTS - len(values))], dtype)
