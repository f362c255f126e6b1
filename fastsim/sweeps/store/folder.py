"""A sweep's folder: manifest.json, spec.toml, parts/part-XXXXXX.parquet, and parts.jsonl, the journal.

Every finished part is noted in the journal with its checksum at once, in the manifest at the end of the sweep. A part
counts as done only if one of the two knows it and the file has that checksum; everything else is computed again.
"""

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from fastsim.errors import InputError
from fastsim.sweeps.grid import POLICIES, Grid, Part, Selection
from fastsim.sweeps.store.failures import MAX_LISTED, counted, noted
from fastsim.sweeps.store.files import checksum, final_name, remove_leftovers, sealed, unsealed, write_whole
from fastsim.sweeps.store.lock import FolderLock
from fastsim.sweeps.store.manifest import Manifest, PartRecord, differences, read_manifest, read_record

SPARE = ".compact"
"""Folder in which compaction makes files, or leaves the old ones for the moment it takes to remove them."""
OWN_NAMES = {"manifest.json", "parts.jsonl", "spec.toml", "parts", POLICIES, ".lock", SPARE, f"{SPARE}.old"}
"""What a sweep's folder holds."""


def part_path(folder: Path, part: int) -> Path:
    """Where a part is stored."""
    return folder / "parts" / f"part-{part:06d}.parquet"


def write_part(folder: Path, part: Part, data: bytes, errors: Mapping[int, str] | None = None) -> PartRecord:
    """Store a part; it appears whole or not at all. `errors` says of its configurations that failed why, if known."""
    write_whole(part_path(folder, part.index), data)
    record = PartRecord(part.index, part.start, part.stop, part.rows, len(data), checksum(data))
    return record if errors is None else noted(record, errors)


def known_parts(folder: Path) -> dict[int, PartRecord]:
    """What the manifest or the journal knows to be in each file, by its first part.

    Around a compaction a file may be known twice, as one part and as several: its size decides. Whether files are
    intact is another question.
    """
    manifest = read_manifest(folder)
    claims: dict[int, list[PartRecord]] = {}
    for record in manifest.part_records() if manifest is not None else []:
        claims.setdefault(record.part, []).append(record)
    for line in _journal_lines(folder):
        if (known := read_record(line)) is not None:
            claims.setdefault(known.part, []).append(known)
    records = [_fitting(folder, part, several) for part, several in sorted(claims.items())]
    kept: dict[int, PartRecord] = {}
    covered = -1
    for record in records:
        if record.part > covered:  # else it was merged into the file before
            kept[record.part] = record
            if len(record.covers) > 1:
                covered = record.covers[-1]
    return kept


def _fitting(folder: Path, part: int, claims: list[PartRecord]) -> PartRecord:
    """The last claim of the size that a file has; when none fits, the last one of all."""
    if len(claims) > 1:
        with suppress(OSError):
            size = part_path(folder, part).stat().st_size
            claims = [record for record in claims if record.bytes == size] or claims
    return claims[-1]


def is_intact(folder: Path, record: PartRecord) -> bool:
    """Whether a file is there, unchanged."""
    try:
        data = part_path(folder, record.part).read_bytes()
    except OSError:
        return False
    return len(data) == record.bytes and checksum(data) == record.blake2b


def recover(folder: Path) -> None:
    """Tidy up after a compaction that was killed. Only the holder of the folder's lock may do so."""
    parts, old = folder / "parts", folder / f"{SPARE}.old"
    if old.is_dir():
        with suppress(OSError):  # not empty: the new files are in place
            parts.rmdir()
        if not parts.exists():
            old.rename(parts)
    for leftover in (old, folder / SPARE):
        shutil.rmtree(leftover, ignore_errors=True)


def append_to_journal(folder: Path, records: Iterable[PartRecord]) -> None:
    """Note files before they appear, and force that to disk."""
    with (folder / "parts.jsonl").open("ab") as journal:
        journal.write(b"\n" + b"".join(_journal_line(record.table()) for record in records))
        journal.flush()
        os.fsync(journal.fileno())


def rewrite_journal(folder: Path, manifest: Manifest, records: Iterable[PartRecord]) -> None:
    """A journal of these files and no others."""
    lines = [manifest.identity, *(record.table() for record in records)]
    write_whole(folder / "parts.jsonl", b"".join(map(_journal_line, lines)))


def _journal_lines(folder: Path) -> list[dict[str, Any]]:
    """The journal's lines; one that a crash cut short, or that was changed, is left out."""
    try:
        text = (folder / "parts.jsonl").read_bytes()
    except FileNotFoundError:
        return []
    lines = []
    for line in text.split(b"\n"):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and (whole := unsealed(entry)) is not None:
            lines.append(whole)
    return lines


def _journal_line(table: dict[str, Any]) -> bytes:
    return json.dumps(sealed(table)).encode() + b"\n"


class SweepFolder:
    """The folder of a sweep, locked from `__enter__` to `__exit__`.

    Parameters
    ----------
    path
        The folder; made if it does not exist.
    grid, selection
        The sweep.
    fresh
        Throw away what an earlier sweep left here.

    Raises
    ------
    InputError
        On entering: when the folder cannot be written, is in use, or holds something else.
    """

    def __init__(self, path: Path, grid: Grid, selection: Selection, *, fresh: bool = False) -> None:
        self._describe(path, Manifest.of(grid, selection), selection, grid.to_toml(), fresh)
        self._policies.update(grid.policies)

    @classmethod
    def of_manifest(
        cls, path: Path, manifest: Manifest, selection: Selection, spec: str, policies: Mapping[str, bytes]
    ) -> "SweepFolder":
        """The folder of a sweep whose grid cannot be built here, for want of its traces."""
        folder = cls.__new__(cls)
        folder._describe(path, manifest, selection, spec, False)
        folder._policies.update(policies)
        return folder

    def _describe(self, path: Path, manifest: Manifest, selection: Selection, spec: str, fresh: bool) -> None:
        self.path = path
        self.selection = selection
        self.fresh = fresh
        self.manifest = manifest
        self.records: dict[int, PartRecord] = {}
        self.damaged = 0
        self._covered: set[int] = set()
        self._listed = 0
        self._spec = spec
        self._policies: dict[str, bytes] = {}
        self.manifest.spec_check = checksum(spec.encode())
        self._stack = ExitStack()

    def __enter__(self) -> "SweepFolder":
        try:
            if not self.fresh:
                self._refuse_foreign_folder()
            (self.path / "parts").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--out {self.path}: cannot be written ({error.strerror})") from None
        with self._stack:
            try:
                self._stack.enter_context(FolderLock(self.path))
                self._open()
            except OSError as error:
                raise InputError(f"--out {self.path}: cannot be written ({error.strerror})") from None
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        remove_leftovers(self.path / "parts")  # of workers that were stopped
        self._stack.close()

    def _open(self) -> None:
        recover(self.path)
        (self.path / "parts").mkdir(exist_ok=True)
        for folder in (self.path, self.path / "parts"):
            remove_leftovers(folder)
        if self.fresh:
            self._clear()
        else:
            self._refuse_other_sweeps()
        for path in sorted((self.path / "parts").glob("*.parquet")):
            if not self._is_wanted(path):
                raise InputError(f"{path}: does not belong to this sweep; move it away, or start anew with --fresh")
        known = known_parts(self.path)
        old = read_manifest(self.path)
        for record in known.values():
            if self._belongs(record) and is_intact(self.path, record):
                self._keep(record, [] if old is None else old.errors)
        self.damaged = len(known) - len(self.records)
        write_whole(self.path / "spec.toml", self._spec.encode())
        for name, content in self._policies.items():
            copy = self.path / POLICIES / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            write_whole(copy, content)
        self.write_manifest("running")
        rewrite_journal(self.path, self.manifest, self.records.values())
        self._journal = self._stack.enter_context((self.path / "parts.jsonl").open("ab"))

    def _is_wanted(self, path: Path) -> bool:
        """Whether a file has the name of one of this sweep's parts."""
        number = path.stem.removeprefix("part-")
        if not (number.isascii() and number.isdigit() and path.name == part_path(self.path, int(number)).name):
            return False
        return self.selection.part(int(number)) is not None

    def _belongs(self, record: PartRecord) -> bool:
        """Whether a file holds what this sweep would put there."""
        parts = [part for index in record.covers if (part := self.selection.part(index)) is not None]
        wanted = (parts[0].start, parts[-1].stop, sum(part.rows for part in parts)) if parts else None
        return wanted == (record.start, record.stop, record.rows)

    def _keep(self, record: PartRecord, listed: Sequence[Mapping[str, Any]]) -> PartRecord:
        """Note a file; of sentences why configurations failed only so many, whatever their number."""
        record = counted(record, part_path(self.path, record.part), listed)
        record = replace(record, first_errors=record.first_errors[: MAX_LISTED - self._listed])
        self._listed += len(record.first_errors)
        self.records[record.part] = record
        self._covered.update(record.covers)
        return record

    def _refuse_foreign_folder(self) -> None:
        """Nothing is put into a folder that holds other things."""
        if not self.path.is_dir():
            return
        names = {final_name(entry.name) for entry in self.path.iterdir()}  # of one that has just begun, or was killed
        if names - OWN_NAMES and not (self.path / "manifest.json").exists():
            raise InputError(
                f"--out {self.path}: it is not a sweep's folder; choose another one, or put the rows there with --fresh"
            )

    def _refuse_other_sweeps(self) -> None:
        old = read_manifest(self.path)
        if old is None:
            in_use = (self.path / "manifest.json").exists() or any((self.path / "parts").glob("*.parquet"))
            if in_use and not any(map(self.manifest.is_begun_by, _journal_lines(self.path)[:1])):
                raise InputError(
                    f"--out {self.path}: its manifest.json is damaged or missing; "
                    "choose another folder, or start anew with --fresh"
                )
        else:
            spec = self.path / "spec.toml"
            before = spec.read_text(errors="replace") if spec.is_file() else ""
            if found := differences(old, self.manifest, before, self._spec):
                raise InputError(
                    f"--out {self.path}: holds another sweep ({'; '.join(found)}); "
                    "choose another folder, or start anew with --fresh"
                )

    def _clear(self) -> None:
        for path in (self.path / "parts").glob("part-*.parquet"):
            path.unlink()
        for name in ("manifest.json", "parts.jsonl", "spec.toml"):
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / POLICIES, ignore_errors=True)

    def reasons(self) -> Iterable[tuple[int, str]]:
        """Configurations that failed and why, at most `MAX_LISTED`."""
        return (pair for record in self.records.values() for pair in record.first_errors)

    @property
    def failed(self) -> int:
        """Rows on disk of configurations that failed."""
        return sum(record.errors or 0 for record in self.records.values())

    @property
    def done_rows(self) -> int:
        """Rows on disk."""
        return sum(record.rows for record in self.records.values())

    def missing_parts(self) -> Iterable[Part]:
        """Parts still to compute, in order."""
        return (part for part in self.selection.parts() if part.index not in self._covered)

    def add(self, record: PartRecord, listed: Sequence[Mapping[str, Any]] = ()) -> None:
        """Note a part that is stored; a manifest may list why configurations failed, if the record does not say."""
        self._journal.write(_journal_line(self._keep(record, listed).table()))
        self._journal.flush()

    def write_manifest(self, state: str) -> None:
        """Write manifest.json as things stand."""
        self.manifest.state = state
        self.manifest.totals |= {
            "rows_done": self.done_rows,
            "parts_done": len(self.records),
            "bytes": sum(record.bytes for record in self.records.values()),
        }
        self.manifest.write(self.path, self.records.values())
