"""Reading a sweep's rows."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from fastsim.sweeps.store.contents import read_contents

if TYPE_CHECKING:
    import polars as pl


QUANTILES = ("p50", "p90", "p95", "p99")


def scan(out: str | Path, *, infinite: bool = False) -> "pl.LazyFrame":
    """The rows of a sweep's folder, in the order of config_id, read only as far as a query needs.

    Every file is compared with its checksum first; what is missing is told by a warning.

    Parameters
    ----------
    out
        The folder, or where it was copied to: `s3://bucket/sweep`, `gs://...`, `az://...`. Then polars finds the
        credentials as its documentation says, and whether the copy is complete and unchanged is not checked.
    infinite
        Give +infinity for a percentile that falls among requests that never got there, where the files have null. Then
        a mean or a maximum cannot pass it over, and null means that there is no value.

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
        rows = pl.scan_parquet(f"{str(out).rstrip('/')}/parts/*.parquet")
        return infinite_where_censored(rows) if infinite else rows
    contents = read_contents(Path(out))
    rows = contents.scan()
    if notes := contents.notes():
        warnings.warn("; ".join(notes), stacklevel=2)
    return infinite_where_censored(rows) if infinite else rows


def infinite_where_censored(rows: "pl.LazyFrame") -> "pl.LazyFrame":
    """The rows with +infinity in place of null in percentiles of which a share of the requests is censored."""
    import polars as pl

    from fastsim.metrics.names import split_class

    names = set(rows.collect_schema().names())
    filled = []
    for name in names:
        base, of = split_class(name)
        latency = next((base[: -len(f"_{q}_ms")] for q in QUANTILES if base.endswith(f"_{q}_ms")), "")
        censored = f"{latency}_censored_share" + (f"[{of}]" if of else "")
        if censored in names:
            never = pl.col(name).is_null() & (pl.col(censored) > 0)
            filled.append(pl.when(never).then(float("inf")).otherwise(pl.col(name)).alias(name))
    return rows.with_columns(filled)
