"""Many small part files become few of some megabytes, at no moment losing or doubling a row.

The merged files are made in a folder of their own beside `parts`; the journal learns of them; then the two folders
change places in one step of the file system. Who reads `parts/*.parquet` finds either all old files or all new ones.
Where the file system cannot exchange two folders, `parts` is missing for the moment between two renamings: a reader
then finds no file, never wrong rows. Killed at any moment, the folder is as before or as after, and the next command
on it tidies up.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fastsim.errors import InputError, WorkError
from fastsim.sweeps.store.failures import together
from fastsim.sweeps.store.files import checksum, exchange, link_or_copy, sync_folder, write_whole
from fastsim.sweeps.store.folder import (
    SPARE,
    append_to_journal,
    is_intact,
    known_parts,
    part_path,
    recover,
    rewrite_journal,
)
from fastsim.sweeps.store.lock import FolderLock
from fastsim.sweeps.store.manifest import Manifest, PartRecord, read_manifest, rewritten

TARGET_BYTES = 32 * 2**20
LEAST_BYTES = 16 * 2**20
"""Of parts that may shrink to a tenth together: most of a small file is what is the same in all of them."""
ROW_GROUP_ROWS = 16_384


@dataclass(frozen=True)
class Compaction:
    """What was done: files and bytes before and after, and rows."""

    files_before: int
    files: int
    bytes_before: int
    bytes: int
    rows: int


def compact(folder: str | Path) -> Compaction:
    """Merge the parts of a complete sweep into files of 1 to 64 MB; one file when it is smaller than that.

    The rows and their order stay as they are; so does what a sweep, a status or a scan makes of the folder. A folder
    that is compact already is left alone.

    Raises
    ------
    InputError
        When the folder is no complete sweep, is a shard (merge the shards first), or is in use.
    WorkError
        When the disk is full; the folder is as before.
    """
    path = Path(folder)
    if read_manifest(path) is None:
        raise InputError(f"{path}: no readable manifest.json, but a sweep's folder was expected")
    with FolderLock(path):
        try:
            recover(path)
            return _compact(path, _complete(path))
        except OSError as error:
            shutil.rmtree(path / SPARE, ignore_errors=True)
            raise WorkError(f"{path}: cannot be written ({error.strerror or error}); it is as before") from None


def _complete(path: Path) -> Manifest:
    """The manifest, its parts checked against their files."""
    manifest = read_manifest(path)
    if manifest is None:
        raise InputError(f"{path}: no readable manifest.json, but a sweep's folder was expected")
    if manifest.shard != [1, 1]:
        shard = "/".join(map(str, manifest.shard))
        raise InputError(f"{path}: holds shard {shard}; `fastsim merge` the shards first, then compact the whole")
    records = sorted(known_parts(path).values(), key=lambda record: record.part)
    for record in records:
        if not is_intact(path, record):
            raise InputError(
                f"{part_path(path, record.part)}: is damaged; `fastsim sweep` on this folder computes it again"
            )
    rows = sum(record.rows for record in records)
    if rows != manifest.rows:
        raise InputError(
            f"{path}: holds {rows} of {manifest.rows} rows, but a complete sweep was expected; "
            "`fastsim sweep` on this folder completes it"
        )
    manifest.parts = [record.table() for record in records]
    manifest.format = rewritten(manifest.format)
    return manifest


def _compact(path: Path, manifest: Manifest) -> Compaction:
    records = manifest.part_records()
    groups = list(grouped(records))
    before = sum(record.bytes for record in records)
    if all(len(group) == 1 for group in groups):
        return Compaction(len(records), len(records), before, before, manifest.rows)
    spare = path / SPARE
    spare.mkdir()
    merged = [_merge(path, spare, group) for group in groups]
    if sum(record.rows for record in merged) != manifest.rows:
        raise AssertionError(f"{path}: the new files do not hold {manifest.rows} rows; the old ones are as before")
    sync_folder(spare)
    append_to_journal(path, [record for record in merged if len(record.covers) > 1])
    exchange(spare, path / "parts")
    sync_folder(path)
    manifest.totals |= {"parts_done": len(merged), "bytes": sum(record.bytes for record in merged)}
    manifest.write(path, merged)
    rewrite_journal(path, manifest, merged)
    shutil.rmtree(spare)
    return Compaction(len(records), len(merged), before, manifest.totals["bytes"], manifest.rows)


def grouped(records: Sequence[PartRecord]) -> Iterator[list[PartRecord]]:
    """Neighbours that become one file: up to `TARGET_BYTES`; a small rest joins the last."""
    groups: list[list[PartRecord]] = []
    size = TARGET_BYTES
    for record in records:
        if size + record.bytes > TARGET_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(record)
        size += record.bytes
    if len(groups) > 1 and size < LEAST_BYTES:
        rest = groups.pop()
        groups[-1] += rest
    yield from groups


def _merge(path: Path, spare: Path, group: Sequence[PartRecord]) -> PartRecord:
    """One file from the parts of a group, in the spare folder."""
    import polars as pl

    from fastsim.sweeps.store.schema import part_bytes

    first, last = group[0], group[-1]
    target = spare / part_path(path, first.part).name
    if len(group) == 1:
        link_or_copy(part_path(path, first.part), target)
        return first
    frame = pl.concat([pl.read_parquet(part_path(path, record.part)) for record in group])
    said = {"fastsim": pl.read_parquet_metadata(part_path(path, first.part)).get("fastsim", "{}")}
    data = part_bytes(frame, said, ROW_GROUP_ROWS)
    write_whole(target, data)
    errors, first_errors = together(group)
    return replace(
        first,
        errors=errors,
        first_errors=first_errors,
        last=last.covers[-1],
        stop=last.stop,
        rows=frame.height,
        bytes=len(data),
        blake2b=checksum(data),
    )
