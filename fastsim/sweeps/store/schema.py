"""What a row of a sweep is: config_id, workload_id, every axis by its dotted name, then the columns of metrics.

The same indices always give the same bytes: the schema follows from the grid alone, and nothing of the machine or the
moment enters a part. What the columns mean stands in the file's metadata, under `fastsim`.
"""

import io
import json
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from fastsim.metrics import INT_COLUMNS, STATUSES, Column, columns_with, float_columns
from fastsim.metrics.columns import NULL
from fastsim.sweeps.grid import Axis, Grid

Int64Array = npt.NDArray[np.int64]
MAX_ENUM = 1000
"""Text axes up to this many values are enums: a category costs a part its name only once."""

ERROR = STATUSES.index("error")
REFUSED = STATUSES.index("refused")
STATUS = INT_COLUMNS.index("status")


def part_frame(
    grid: Grid,
    indices: Int64Array,
    workload_ids: Sequence[str | None],
    floats: npt.NDArray[np.float64],
    ints: Int64Array,
) -> pl.DataFrame:
    """The rows of some configurations.

    Parameters
    ----------
    grid
        The plan.
    indices
        Configurations, ascending; int64, shape (m,).
    workload_ids
        Of each; None where the workload could not be built.
    floats, ints
        Shapes (m, len(float_columns(grid.class_names))) and (m, len(INT_COLUMNS)), in the order of those names; NaN
        and -1 are null.
    """
    names = float_columns(grid.class_names)
    numbers = {name: np.ascontiguousarray(floats[:, k]) for k, name in enumerate(names)}
    numbers |= {name: np.ascontiguousarray(ints[:, k]) for k, name in enumerate(INT_COLUMNS)}
    head = pl.DataFrame(
        [
            pl.Series("config_id", indices, pl.Int64),
            pl.Series("workload_id", workload_ids, pl.String),
            *axis_columns(grid, indices),
        ]
    )
    # One query for all columns: each of its own would cost more than the rows of a small part
    return head.hstack(pl.DataFrame(numbers).select(map(_metric, columns_with(grid.class_names))))


def file_metadata(grid: Grid) -> dict[str, str]:
    """What a part says of itself under the key `fastsim`: JSON, the same for all parts of a sweep.

    `version`, `spec_hash`, `engines`, `policies` (a hash of each file), and `columns`: of each its unit and meaning,
    and which of its values are text.
    """
    columns = {
        column.name: {
            "unit": column.unit,
            "meaning": column.description or column.name.replace("_", " "),
            "better": column.better,
            **({"labels": list(column.labels)} if column.labels else {}),
            **({"prometheus": column.prometheus} if column.prometheus else {}),
        }
        for column in columns_with(grid.class_names)
    }
    said = {
        "version": version("fastsim-llm"),
        "spec_hash": grid.spec_hash,
        "engines": sorted(grid.possible("engine.name")),
        "axes": [axis.name for axis in grid.axes],
        **({"policies": grid.policy_digests} if grid.policies else {}),
        "null": "no value; of a percentile: infinite, where the share in its *_censored_share column reaches it",
        "columns": columns,
    }
    return {"fastsim": json.dumps(said)}


def _metric(column: Column) -> pl.Expr:
    """A column in its own type, from the kernel's numbers."""
    values = pl.col(column.name)
    if column.kind == "float":
        return values.fill_nan(None)
    if column.name not in INT_COLUMNS:  # of a class: the kernel's numbers are floats
        return values.fill_nan(None).cast(pl.Boolean if column.kind == "bool" else pl.Int64)
    values = pl.when(values != NULL).then(values).alias(column.name)
    if column.kind == "bool":
        return values.cast(pl.Boolean)
    if column.kind == "code":
        codes = range(len(column.labels))
        return values.replace_strict(codes, column.labels, return_dtype=pl.Enum(column.labels))
    return values


def axis_columns(grid: Grid, indices: Int64Array) -> list[pl.Series]:
    """One typed column an axis, in the order of the grid."""
    columns = []
    for n, digit in enumerate(grid._digits):
        positions = grid._columns.position(n, indices)
        for axis in digit.axes:
            if isinstance(axis.values, range):
                columns.append(pl.Series(axis.name, axis.values.start + axis.values.step * positions, pl.Int64))
            else:
                columns.append(_typed(axis).gather(positions))
    return columns


def _typed(axis: Axis) -> pl.Series:
    """The values of an axis as a series of the narrowest fitting type."""
    kinds = {type(value) for value in axis.values if value is not None}
    if kinds <= {str}:
        categories = list(dict.fromkeys(value for value in axis.values if value is not None))
        dtype: Any = pl.Enum(categories) if len(categories) <= MAX_ENUM else pl.String
    elif kinds <= {bool}:
        dtype = pl.Boolean
    elif kinds <= {int}:
        dtype = pl.Int64
    elif kinds <= {int, float}:
        dtype = pl.Float64
    else:
        return pl.Series(axis.name, [None if value is None else str(value) for value in axis.values], pl.String)
    values = [float(value) if dtype == pl.Float64 and value is not None else value for value in axis.values]
    return pl.Series(axis.name, values, dtype)


def empty_rows(count: int, class_names: tuple[str, ...] = ()) -> tuple[npt.NDArray[np.float64], Int64Array]:
    """Rows of configurations that failed: everything null but the status, which is `error`."""
    floats = np.full((count, len(float_columns(class_names))), np.nan)
    ints = np.full((count, len(INT_COLUMNS)), NULL, np.int64)
    ints[:, STATUS] = ERROR
    return floats, ints


def refused_rows(count: int, class_names: tuple[str, ...] = ()) -> tuple[npt.NDArray[np.float64], Int64Array]:
    """Rows of configurations with which vLLM would not start: everything null but the status, which is `refused`."""
    floats, ints = empty_rows(count, class_names)
    ints[:, STATUS] = REFUSED
    return floats, ints


def part_bytes(frame: pl.DataFrame, metadata: dict[str, str], group_rows: int | None = None) -> bytes:
    """Rows as Parquet: zstd, statistics, and what the file says of itself (`file_metadata`).

    `group_rows` is the size of a row group; None: all rows are one.
    """
    buffer = io.BytesIO()
    rows = group_rows or max(frame.height, 1)
    frame.write_parquet(buffer, compression="zstd", row_group_size=rows, statistics=True, metadata=metadata)
    return buffer.getvalue()
