"""What the cells of a phase map are told apart by: the verdict, or whether a metric keeps within a limit."""

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fastsim.errors import InputError
from fastsim.metrics import VERDICTS, columns_with
from fastsim.metrics.columns import DID_NOT_RUN
from fastsim.metrics.names import column_or_error

_CONDITION = re.compile(r"\s*([\w.]+(?:\[\w+\])?)\s*(<=|>=|<|>)\s*(\S+)\s*")
_OPERATORS: dict[str, Callable[[pl.Expr, float], pl.Expr]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
FAILED = "failed"
"""The class of a run that gave no verdict: status `error`."""


@dataclass(frozen=True)
class Classes:
    """Classes of runs, the worst first and the good one last.

    `names` are shown; `column` is the result column they come from; `code` gives each row's place in `names`.
    """

    names: tuple[str, ...]
    column: str
    code: Callable[[pl.DataFrame], npt.NDArray[np.int64]]


def read_classes(metric: str | None, class_names: Sequence[str] = ()) -> Classes:
    """The verdict (None or `verdict`), or the two sides of a condition such as `ttft_p99_ms <= 2000`.

    `class_names` are those of the classes of requests, whose columns can be named (`ttft_p99_ms[chat]`).
    Null never meets a condition: a percentile among requests that never got there is infinite.

    Raises
    ------
    InputError
        When it is neither, or the metric is not a number.
    """
    if metric is None or metric.strip() == "verdict":
        names = (FAILED, *VERDICTS)
        codes = {name: place for place, name in enumerate(names)}

        def of_verdict(rows: pl.DataFrame) -> npt.NDArray[np.int64]:
            failed = pl.col("status").cast(pl.String).is_in(DID_NOT_RUN)
            verdict = pl.col("verdict").cast(pl.String).replace_strict(codes, default=0, return_dtype=pl.Int64)
            return rows.select(pl.when(failed).then(0).otherwise(verdict).alias("code"))["code"].to_numpy()

        return Classes(names, "verdict", of_verdict)
    match = _CONDITION.fullmatch(metric)
    if match is None:
        raise InputError(f"--metric {metric!r}, but verdict, or METRIC <= LIMIT (or <, >=, >) was expected")
    name, sign, text = match.groups()
    known = [column.name for column in columns_with(tuple(class_names))]
    if column_or_error(name, known).kind not in ("float", "int"):
        raise InputError(f"--metric {metric!r}: {name} is not a number, but a metric with one was expected")
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if math.isnan(limit):
        raise InputError(f"--metric {metric!r}: {text} is not a number, but a limit was expected")

    def of_condition(rows: pl.DataFrame) -> npt.NDArray[np.int64]:
        holds = _OPERATORS[sign](pl.col(name).cast(pl.Float64), limit).fill_null(value=False)
        return rows.select(holds.cast(pl.Int64).alias("code"))["code"].to_numpy()

    return Classes((f"not {name} {sign} {limit:g}", f"{name} {sign} {limit:g}"), name, of_condition)
