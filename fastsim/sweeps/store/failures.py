"""Configurations that failed: how many a file holds, and the first sentences why."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from fastsim.sweeps.store.manifest import PartRecord

MAX_LISTED = 100
"""Sentences that a folder keeps; how many configurations failed is always known exactly."""


def noted(record: PartRecord, errors: Mapping[int, str]) -> PartRecord:
    """The record of a part, of whose configurations these failed, for these reasons."""
    return replace(record, errors=len(errors), first_errors=tuple(islice(sorted(errors.items()), MAX_LISTED)))


def counted(record: PartRecord, path: Path, listed: Sequence[Mapping[str, Any]]) -> PartRecord:
    """A record that says how many configurations failed.

    Records of formats before `fastsim-sweep/3` do not: then the file is counted, and what the manifest lists of
    configurations in it is taken over.
    """
    if record.errors is not None:
        return record
    import polars as pl

    statuses = pl.read_parquet(path, columns=["status"])["status"].cast(pl.String)
    errors = int((statuses == "error").sum())
    known = {int(entry["config_id"]): str(entry["error"]) for entry in listed} if errors else {}
    inside = {index: sentence for index, sentence in known.items() if record.start <= index < record.stop}
    return replace(noted(record, inside), errors=errors)


def together(records: Iterable[PartRecord]) -> tuple[int | None, tuple[tuple[int, str], ...]]:
    """`errors` and `first_errors` of a file that takes the place of these."""
    records = list(records)
    counts = [record.errors for record in records]
    total = None if None in counts else sum(count or 0 for count in counts)
    return total, tuple(pair for record in records for pair in record.first_errors)
