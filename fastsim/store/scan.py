"""Reading a sweep's rows."""

from pathlib import Path

import polars as pl

from fastsim.errors import InputError
from fastsim.store.manifest import read_manifest


def scan(out: str | Path) -> pl.LazyFrame:
    """The rows of a sweep's folder, in the order of config_id, read only as far as a query needs.

    Raises
    ------
    InputError
        When the folder holds no rows.
    """
    folder = Path(out)
    read_manifest(folder)  # refuses a format of another version
    if not any((folder / "parts").glob("*.parquet")):
        raise InputError(f"{folder}: holds no rows (no parts/*.parquet), but a sweep's folder was expected")
    return pl.scan_parquet(folder / "parts" / "*.parquet")
