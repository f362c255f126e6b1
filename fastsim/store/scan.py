"""Reading a sweep's rows."""

from pathlib import Path

import polars as pl

from fastsim.errors import InputError
from fastsim.store.manifest import read_manifest


def scan(out: str | Path) -> pl.LazyFrame:
    """The rows of a sweep's folder, in the order of config_id, read only as far as a query needs.

    Parameters
    ----------
    out
        The folder, or where it was copied to: `s3://bucket/sweep`, `gs://...`, `az://...`. Then polars finds the
        credentials as its documentation says, and whether the copy is complete is not checked.

    Raises
    ------
    InputError
        When the folder holds no rows.
    """
    if "://" in str(out):
        return pl.scan_parquet(f"{str(out).rstrip('/')}/parts/*.parquet")
    folder = Path(out)
    read_manifest(folder)  # refuses a format of another version
    if not any((folder / "parts").glob("*.parquet")):
        raise InputError(f"{folder}: holds no rows (no parts/*.parquet), but a sweep's folder was expected")
    return pl.scan_parquet(folder / "parts" / "*.parquet")
