"""A row that a kernel filled beside the one of plain Python (`tests.reference.metrics`)."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.engines.outputs import RequestLog, Status, Stop
from fastsim.metrics.columns import COLUMNS
from tests.reference.metrics import ROUNDED, row

OCTAVES = 33
BIN_VALUES = [
    *(float(gap) for gap in range(256)),
    *((place << octave) + ((1 << octave) - 1) / 2 for octave in range(1, OCTAVES) for place in range(128, 256)),
]
"""The value that stands for each bin of a histogram of gaps: the middle of the gaps in it."""
SHARED = tuple(column.name for column in COLUMNS if not column.description.endswith("null under other engines"))
"""The columns that all engines fill."""


def requests_of(log: RequestLog, prompt: npt.NDArray[Any], output: npt.NDArray[Any]) -> list[dict[str, Any]]:
    """The log by request, with the true lengths and words for statuses."""
    columns = {name: values.tolist() for name, values in log._asdict().items()}
    columns |= {"prompt": prompt.tolist(), "output": output.tolist()}
    columns["status"] = [Status(status).name.lower() for status in columns["status"]]
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def totals_of(record: npt.NDArray[np.void]) -> dict[str, Any]:
    """Totals of one run by name, with a word for why it stopped."""
    totals: dict[str, Any] = {name: int(record[name][0]) for name in record.dtype.names or ()}
    return totals | {"stop": Stop(totals["stop"]).name.lower()}


def params_of(record: np.void) -> dict[str, Any]:
    """What metrics know of a configuration, its table of step times as a list of knots."""
    params = {name: record[name].item() for name in record.dtype.names or () if not name.startswith("table_")}
    knots = int(record["table_knots"])
    tokens, times_us = record["table_tokens"][:knots].tolist(), record["table_us"][:knots].tolist()
    return params | {"table": list(zip(tokens, times_us, strict=True))}


def gaps_of(histogram: npt.NDArray[np.int64]) -> Counter[float]:
    """How many gaps each value stands for."""
    filled = np.flatnonzero(histogram).tolist()
    return Counter({BIN_VALUES[place]: int(histogram[place]) for place in filled})


def differences(
    got: Mapping[str, Any], expected: Mapping[str, Any], columns: Iterable[str] = SHARED, end_s: float = 0.0
) -> list[str]:
    """Columns in which a kernel's row is not what it should be: the same bits, but for `ROUNDED` ones."""
    found = []
    for name in columns:
        a, b = expected[name], got[name]
        same = type(a) is type(b) and a == b
        if name in ROUNDED and isinstance(a, float) and isinstance(b, float):
            same = math.isclose(a, b, **tolerance(name, end_s))
        if not same:
            found.append(f"{name}: expected {a!r}, got {b!r}")
    return found


def tolerance(name: str, end_s: float) -> dict[str, float]:
    """Doubles carry 16 digits. Differences of times, or of sums that cancel, carry those of what they are made of."""
    if name == "starved_gap_s":
        return {"rel_tol": 1e-12, "abs_tol": 1e-14 * end_s}
    if name == "backlog_slope_req_per_s":
        return {"rel_tol": 1e-6, "abs_tol": 1e-9}
    return {"rel_tol": 1e-12}


def expected_row(
    log: RequestLog,
    prompt: npt.NDArray[Any],
    output: npt.NDArray[Any],
    totals: npt.NDArray[np.void],
    histogram: npt.NDArray[np.int64],
    params: np.void,
) -> dict[str, Any]:
    """The row of a run, in plain Python."""
    return row(requests_of(log, prompt, output), totals_of(totals), gaps_of(histogram), params_of(params))
