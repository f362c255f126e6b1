"""Reading a sweep's rows."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from fastsim.sweeps.store.contents import read_contents

if TYPE_CHECKING:
    import polars as pl


def scan(out: str | Path) -> "pl.LazyFrame":
    """The rows of a sweep's folder, in the order of config_id, read only as far as a query needs.

    Every file is compared with its checksum first; what is missing is told by a warning.

    Parameters
    ----------
    out
        The folder, or where it was copied to: `s3://bucket/sweep`, `gs://...`, `az://...`. Then polars finds the
        credentials as its documentation says, and whether the copy is complete and unchanged is not checked.

    Raises
    ------
    InputError
        When the folder holds no rows.
    WorkError
        When a file is not as it was stored.

    Warns
    -----
    UserWarning
        When rows are missing, or when nothing says whether they are.
    """
    import polars as pl

    if "://" in str(out):
        return pl.scan_parquet(f"{str(out).rstrip('/')}/parts/*.parquet")
    contents = read_contents(Path(out))
    rows = contents.scan()
    if notes := contents.notes():
        warnings.warn("; ".join(notes), stacklevel=2)
    return rows
