"""What a run is judged by: one table of columns (`COLUMNS`), one kernel that fills them (`summary.summarise`).

This module is light: reading the table imports no compiler. The kernel lives in `fastsim.metrics.summary`.
"""

from fastsim.metrics.columns import (
    CLASS_COLUMNS,
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
    new_rows,
)
from fastsim.metrics.names import by_name, columns_with, float_columns, named_values

__all__ = [
    "CLASS_COLUMNS",
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
    "columns_with",
    "float_columns",
    "named_values",
    "new_rows",
]
