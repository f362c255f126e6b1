"""Configurations of a sweep's folder, built anew: only where they are what the sweep ran."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from fastsim.sweeps.grid import Grid
    from fastsim.sweeps.store.contents import Contents


def check_rebuilt(folder: Path, config_id: int) -> None:
    """Refuse a configuration of a folder when spec, trace or workload are no longer those of its row.

    Raises
    ------
    InputError
        With what changed.
    WorkError
        When files of the folder are damaged.
    """
    from fastsim.errors import InputError, WorkError
    from fastsim.sweeps.grid import Grid
    from fastsim.sweeps.store.contents import read_contents
    from fastsim.sweeps.store.sources import changed_sources

    found = read_contents(folder)
    if found.damaged:
        raise WorkError(found.damage())
    if found.spec_changed:
        raise InputError(f"{folder}/spec.toml: was changed since the sweep wrote it, so its rows are of another spec")
    for note in found.notes():
        typer.echo(f"note: {note}", err=True)
    grid = Grid.from_toml(folder / "spec.toml")
    if found.manifest is not None and (changed := changed_sources(found.manifest.sources)):
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        typer.echo(f"note: another fastsim computed these rows: {changed[0]}{more} differ", err=True)
    elif found.manifest is not None and found.manifest.spec_hash != grid.spec_hash:
        old, new = found.manifest.policies, grid.policy_digests
        changed_policies = [name for name in new if old.get(name) != new[name]]
        what = f"policies/{changed_policies[0]}" if changed_policies else _traces(grid, config_id)
        raise InputError(f"{folder}: {what} has other contents than when the sweep ran")
    _check_workload(found, grid, config_id)


def _check_workload(found: "Contents", grid: "Grid", config_id: int) -> None:
    import polars as pl

    from fastsim.errors import InputError
    from fastsim.workload import build_workload

    if not found.paths():
        return
    rows = found.scan().filter(pl.col("config_id") == config_id).select("workload_id").collect()
    known = rows["workload_id"].to_list()[:1]
    if not known or known[0] is None:  # not computed yet, or it could not be built
        return
    now = build_workload(grid.config(config_id).workload).workload_id
    if now != known[0]:
        raise InputError(
            f"{found.folder}: config-id {config_id}: the row's workload_id is {known[0]}, but {now} is built here: "
            f"{_traces(grid, config_id)} has other contents than when the sweep ran"
        )


def _traces(grid: "Grid", config_id: int) -> str:
    """The trace of a configuration; what else may decide its requests, if it has none."""
    config = grid.config(config_id).workload
    return f"the trace {config.trace}" if config.trace is not None else "a trace, NumPy or the processor"
