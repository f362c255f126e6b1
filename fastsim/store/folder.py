"""A sweep's folder: manifest.json, spec.toml, parts/part-XXXXXX.parquet, and parts.jsonl, the journal.

Every finished part is noted in the journal with its checksum at once, in the manifest at the end of the sweep. A part
counts as done only if one of the two knows it and the file has that checksum; everything else is computed again.
"""

import json
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from fastsim.errors import InputError
from fastsim.grid import Grid, Part, Selection
from fastsim.store.files import checksum, remove_leftovers, sealed, unsealed, write_whole
from fastsim.store.lock import FolderLock
from fastsim.store.manifest import Manifest, PartRecord, differences, read_manifest, read_record

OWN_NAMES = {"manifest.json", "parts.jsonl", "spec.toml", "parts", ".lock"}
"""What a sweep's folder holds."""


def part_path(folder: Path, part: int) -> Path:
    """Where a part is stored."""
    return folder / "parts" / f"part-{part:06d}.parquet"


def write_part(folder: Path, part: Part, data: bytes) -> PartRecord:
    """Store a part; it appears whole or not at all."""
    write_whole(part_path(folder, part.index), data)
    return PartRecord(part.index, part.start, part.stop, part.rows, len(data), checksum(data))


def known_parts(folder: Path) -> dict[int, PartRecord]:
    """Parts that the manifest or the journal knows; whether their files are intact is another question."""
    manifest = read_manifest(folder)
    known = {record.part: record for record in manifest.part_records()} if manifest is not None else {}
    for line in _journal_lines(folder):
        if (record := read_record(line)) is not None:
            known[record.part] = record
    return known


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
        self.path = path
        self.selection = selection
        self.fresh = fresh
        self.manifest = Manifest.of(grid, selection)
        self.records: dict[int, PartRecord] = {}
        self.damaged = 0
        self._spec = grid.to_toml()
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
        for folder in (self.path, self.path / "parts"):
            remove_leftovers(folder)
        if self.fresh:
            self._clear()
        else:
            self._refuse_other_sweeps()
        known = known_parts(self.path)
        wanted = {part.index: part for part in self.selection.parts()}
        for path in sorted((self.path / "parts").glob("*.parquet")):
            if path.name not in {part_path(self.path, index).name for index in wanted}:
                raise InputError(f"{path}: does not belong to this sweep; move it away, or start anew with --fresh")
        self.records = {index: record for index, record in known.items() if self._is_intact(wanted.get(index), record)}
        self.damaged = len(known) - len(self.records)
        write_whole(self.path / "spec.toml", self._spec.encode())
        self.write_manifest("running")
        lines = [self.manifest.identity, *map(asdict, self.records.values())]
        write_whole(self.path / "parts.jsonl", b"".join(map(_journal_line, lines)))
        self._journal = self._stack.enter_context((self.path / "parts.jsonl").open("ab"))

    def _refuse_foreign_folder(self) -> None:
        """Nothing is put into a folder that holds other things."""
        if not self.path.is_dir():
            return
        names = {entry.name for entry in self.path.iterdir()}
        if names - OWN_NAMES and "manifest.json" not in names:
            raise InputError(
                f"--out {self.path}: it is not a sweep's folder; choose another one, or put the rows there with --fresh"
            )

    def _refuse_other_sweeps(self) -> None:
        old = read_manifest(self.path)
        if old is None:
            in_use = (self.path / "manifest.json").exists() or any((self.path / "parts").glob("*.parquet"))
            if in_use and self.manifest.identity not in _journal_lines(self.path)[:1]:
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

    def _is_intact(self, part: Part | None, record: PartRecord) -> bool:
        """Whether the file of a part is there, unchanged, and what this sweep needs."""
        if part is None or (part.start, part.stop, part.rows) != (record.start, record.stop, record.rows):
            return False
        try:
            data = part_path(self.path, record.part).read_bytes()
        except OSError:
            return False
        return len(data) == record.bytes and checksum(data) == record.blake2b

    @property
    def done_rows(self) -> int:
        """Rows on disk."""
        return sum(record.rows for record in self.records.values())

    def missing_parts(self) -> Iterable[Part]:
        """Parts still to compute, in order."""
        return (part for part in self.selection.parts() if part.index not in self.records)

    def add(self, record: PartRecord) -> None:
        """Note a part that a worker has stored."""
        self._journal.write(_journal_line(asdict(record)))
        self._journal.flush()
        self.records[record.part] = record

    def write_manifest(self, state: str) -> None:
        """Write manifest.json as things stand."""
        self.manifest.state = state
        self.manifest.totals |= {
            "rows_done": self.done_rows,
            "parts_done": len(self.records),
            "bytes": sum(record.bytes for record in self.records.values()),
        }
        self.manifest.write(self.path, self.records.values())
