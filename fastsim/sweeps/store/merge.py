"""Shards of one sweep become the folder that one sweep would have made, after every reason not to was looked for.

That the rows belong together is not taken on trust: the shards must agree on the spec, on what was selected, on how it
was cut and on the sources that decide numbers; every part must be there once, unchanged; every row must be of the
configuration that its place says; and workloads must have the same contents on every machine that took part.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastsim.errors import FastsimError, InputError, WorkError
from fastsim.sweeps.grid import POLICIES, Grid, Selection
from fastsim.sweeps.grid.selection import PartPlan, chosen
from fastsim.sweeps.store.files import write_whole
from fastsim.sweeps.store.folder import SweepFolder, is_intact, known_parts, part_path
from fastsim.sweeps.store.manifest import Manifest, PartRecord, differences, read_manifest, rewritten
from fastsim.sweeps.store.sources import changed_sources
from fastsim.workload import WorkloadPlan

REBUILT_WORKLOADS = 8
"""Of each shard, to compare their contents with what this machine makes of the spec."""


@dataclass
class Merged:
    """What was merged. `notes` say what could not be checked."""

    folder: Path
    shards: int
    parts: int
    rows: int
    notes: list[str] = field(default_factory=list)


@dataclass
class _Shard:
    path: Path
    manifest: Manifest
    spec: str
    selection: Selection
    workload_ids: dict[int, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.path} (shard {self.manifest.shard[0]}/{self.manifest.shard[1]})"


def merge(folders: Sequence[str | Path], out: str | Path) -> Merged:
    """Put the shards of a sweep together in a new folder: the same part files that an unsharded sweep would write.

    Killed at any moment, the same call goes on; so would `fastsim sweep` on the new folder.

    Raises
    ------
    InputError
        When the shards do not make one complete sweep, naming what is missing or differs; or when `out` holds
        something else.
    WorkError
        When the rows cannot be stored. What was done is kept.
    """
    shards = [_read(Path(folder)) for folder in folders]
    _check_agreement(shards)
    records = [record for shard in shards for record in _checked_parts(shard)]
    _check_shared_workloads(shards)
    merged = Merged(Path(out), len(shards), len(records), sum(record.rows for record in records))
    merged.notes += _compare_with_here(shards)
    try:
        _write(shards, merged.folder)
    except OSError as error:
        raise WorkError(f"{out}: cannot be written ({error.strerror or error}); the same command goes on") from None
    return merged


def _read(path: Path) -> _Shard:
    manifest = read_manifest(path)
    if manifest is None:
        raise InputError(f"{path}: no readable manifest.json, but a shard's folder was expected")
    try:
        spec = (path / "spec.toml").read_text()
    except OSError as error:
        raise InputError(f"{path}/spec.toml: cannot be read ({error.strerror})") from None
    length = manifest.configs_per_workload or Grid.from_toml(path / "spec.toml").configs_per_workload
    if manifest.selection.startswith("sample") and not manifest.digits:
        raise InputError(
            f"{path}: an older version of fastsim chose this sample in its own way, and can merge it: "
            f"{manifest.versions.get('fastsim-llm', 'see manifest.json')}"
        )
    ranges = chosen(manifest.selection, manifest.digits or [manifest.grid_size], manifest.spec_hash)
    plan = PartPlan(manifest.grid_size, length, manifest.rows_per_part)
    return _Shard(path, manifest, spec, Selection(manifest.selection, ranges, plan).shard(*manifest.shard))


def _check_agreement(shards: Sequence[_Shard]) -> None:
    """One sweep, each shard once."""
    first = shards[0]
    for shard in shards[1:]:
        if shard.manifest.shard[1] != first.manifest.shard[1]:
            raise InputError(f"{first.name} and {shard.name} are of different numbers of shards")
        same_place = replace(shard.manifest, shard=first.manifest.shard)
        if found := differences(first.manifest, same_place, first.spec, shard.spec):
            raise InputError(f"{first.path} and {shard.path} are not of one sweep ({'; '.join(found)})")
    of = first.manifest.shard[1]
    places = {shard.manifest.shard[0]: shard for shard in reversed(shards)}
    for shard in shards:
        if places[shard.manifest.shard[0]] is not shard:
            raise InputError(f"{places[shard.manifest.shard[0]].name} and {shard.name} are the same shard")
    if missing := [f"{n}/{of}" for n in range(1, of + 1) if n not in places]:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise InputError(f"shard {', '.join(missing[:3])}{more} is missing, but all {of} were expected")


def _checked_parts(shard: _Shard) -> Iterator[PartRecord]:
    """Every part of a shard, unchanged since it was computed, with the configurations that belong there."""
    known = known_parts(shard.path)
    resume = f"`fastsim sweep` with --shard {shard.manifest.shard[0]}/{shard.manifest.shard[1]} on it completes it"
    for part in shard.selection.parts():
        record = known.get(part.index)
        if record is None:
            raise InputError(f"{shard.name}: part {part.index} is missing; {resume}")
        if not is_intact(shard.path, record):
            raise InputError(f"{part_path(shard.path, part.index)}: is damaged; {resume}")
        config_ids, workload_ids = _identities(part_path(shard.path, part.index))
        if not np.array_equal(config_ids, part.indices()):
            raise InputError(f"{part_path(shard.path, part.index)}: holds other configurations than this part's")
        _note_workloads(shard, config_ids, workload_ids)
        yield record


def _identities(path: Path) -> tuple[Any, list[str | None]]:
    import polars as pl

    table = pl.read_parquet(path, columns=["config_id", "workload_id"])
    return table["config_id"].to_numpy(), table["workload_id"].to_list()


def _note_workloads(shard: _Shard, config_ids: Any, workload_ids: Sequence[str | None]) -> None:
    """Remember the contents of each workload; one that has two contents ends the merge."""
    places = config_ids // shard.selection.plan.configs_per_workload
    for place, name in zip(places.tolist(), workload_ids, strict=True):
        if name is not None and shard.workload_ids.setdefault(place, name) != name:
            raise InputError(f"{shard.name}: workload {place} has different contents in different rows")


def _check_shared_workloads(shards: Sequence[_Shard]) -> None:
    seen: dict[int, tuple[str, _Shard]] = {}
    for shard in shards:
        for place, name in shard.workload_ids.items():
            other, owner = seen.setdefault(place, (name, shard))
            if other != name:
                raise InputError(
                    f"workload {place} has other contents in {owner.name} than in {shard.name}"
                    f"{_other_versions(owner, shard)}"
                )


def _compare_with_here(shards: Sequence[_Shard]) -> list[str]:
    """Build some workloads of each shard here: shards that share none are compared through this machine."""
    if changed_sources(shards[0].manifest.sources):
        return ["workloads were not built anew for comparison: another fastsim is installed here"]
    try:
        grid = Grid.from_toml(shards[0].path / "spec.toml")
        plan = WorkloadPlan()
        same = {shard.name: _builds_the_same(shard, grid, plan) for shard in shards}
    except FastsimError as error:
        return [f"workloads were not built anew for comparison: {error}"]
    if all(same.values()):
        return []
    if any(same.values()):
        good = next(shard for shard in shards if same[shard.name])
        bad = next(shard for shard in shards if not same[shard.name])
        raise InputError(
            f"workloads of {bad.name} have other contents than this machine makes of the same spec, "
            f"those of {good.name} have not{_other_versions(good, bad)}"
        )
    return ["the shards agree, but this machine makes other workloads of the same spec: another numpy or processor?"]


def _builds_the_same(shard: _Shard, grid: Grid, plan: WorkloadPlan) -> bool:
    places = sorted(shard.workload_ids)
    some = places[:: max(1, len(places) // REBUILT_WORKLOADS)][:REBUILT_WORKLOADS]
    return all(plan.build(grid.workload_config(n)).workload_id == shard.workload_ids[n] for n in some)


def _other_versions(one: _Shard, other: _Shard) -> str:
    a, b = one.manifest.versions, other.manifest.versions
    found = [f"{name} {a.get(name)} and {b.get(name)}" for name in ("numpy", "python") if a.get(name) != b.get(name)]
    return f" ({', '.join(found)})" if found else ""


def _write(shards: Sequence[_Shard], out: Path) -> None:
    """Copy every part, noted as a sweep notes it."""
    whole = replace(shards[0].selection, only=(1, 1))
    manifest = _whole_manifest(shards, whole)
    copies = {name: shards[0].path / POLICIES / name for name in manifest.policies}
    policies = {name: copy.read_bytes() for name, copy in copies.items() if copy.is_file()}
    with SweepFolder.of_manifest(out, manifest, whole, shards[0].spec, policies) as folder:
        missing = {part.index for part in folder.missing_parts()}
        for shard in shards:
            for record in known_parts(shard.path).values():
                if record.part in missing:
                    data = part_path(shard.path, record.part).read_bytes()
                    write_whole(part_path(out, record.part), data)
                    folder.add(record, shard.manifest.errors)
        folder.write_manifest("complete")


def _whole_manifest(shards: Sequence[_Shard], whole: Selection) -> Manifest:
    first = shards[0].manifest
    totals = {
        "seconds": round(sum(float(shard.manifest.totals.get("seconds", 0.0)) for shard in shards), 3),
        "shards": [{"host": shard.manifest.host, "versions": shard.manifest.versions} for shard in shards],
    }
    return replace(
        first,
        format=rewritten(first.format),
        shard=[1, 1],
        rows=whole.rows,
        configs_per_workload=whole.plan.configs_per_workload,
        totals=totals,
        errors=[],
        parts=[],
    )
