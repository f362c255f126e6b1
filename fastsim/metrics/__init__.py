"""What a run is judged by: one table of columns (`COLUMNS`), one kernel that fills them (`summary.summarise`).

This module is light: reading the table imports no compiler. The kernel lives in `fastsim.metrics.summary`.
"""

from fastsim.metrics.columns import (
    COLUMNS,
    FLOAT_COLUMNS,
    FLOAT_ROW_DTYPE,
    INT_COLUMNS,
    INT_ROW_DTYPE,
    PARAMS_DTYPE,
    STATUSES,
    STOPS,
    VERDICTS,
    Column,
    by_name,
    named_values,
    new_rows,
)

__all__ = [
    "COLUMNS",
    "FLOAT_COLUMNS",
    "FLOAT_ROW_DTYPE",
    "INT_COLUMNS",
    "INT_ROW_DTYPE",
    "PARAMS_DTYPE",
    "STATUSES",
    "STOPS",
    "VERDICTS",
    "Column",
    "by_name",
    "named_values",
    "new_rows",
]
