"""What is in a sweep's folder: every file against its checksum, and how much of the sweep it is.

Whoever reads rows comes through here: rows whose bytes changed are refused, and what is missing is said.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fastsim.engines import caveats, engines
from fastsim.errors import InputError, WorkError
from fastsim.sweeps.store.files import checksum
from fastsim.sweeps.store.folder import is_intact, known_parts, part_path
from fastsim.sweeps.store.lock import lock_owner
from fastsim.sweeps.store.manifest import OLD_VERDICTS, Manifest, PartRecord, read_manifest

if TYPE_CHECKING:
    import polars as pl

READERS = 8
"""Threads that read and hash files: hashing lets go of the interpreter."""
LISTED = 3
"""Files that a sentence names, before it says how many more."""


@dataclass(frozen=True)
class Contents:
    """A sweep's folder as it was found.

    Attributes
    ----------
    folder
        The folder.
    manifest
        What it says of itself; None when that is missing or damaged.
    intact, missing, damaged
        The files it knows of: those with the bytes that were stored, those that are gone, and those that changed.
    strangers
        Files among the parts that it does not know.
    owner
        Who is at work on it; None when nobody is.
    spec_changed
        Whether spec.toml is not what the sweep wrote.
    """

    folder: Path
    manifest: Manifest | None
    intact: tuple[PartRecord, ...]
    missing: tuple[PartRecord, ...]
    damaged: tuple[PartRecord, ...]
    strangers: tuple[Path, ...]
    owner: str | None
    spec_changed: bool

    @property
    def rows(self) -> int:
        """Rows in intact files."""
        return sum(record.rows for record in self.intact)

    @property
    def is_listed(self) -> bool:
        """Whether the folder knows its files at all: a copy of the parts alone does not."""
        return self.manifest is not None or bool(self.intact or self.missing or self.damaged)

    @property
    def is_complete(self) -> bool:
        """Whether every row is there that was selected."""
        return self.manifest is not None and self.rows == self.manifest.rows

    def paths(self) -> list[Path]:
        """The files to read, in the order of the rows."""
        if not self.is_listed:
            return list(self.strangers)
        return [part_path(self.folder, record.part) for record in self.intact]

    def damage(self) -> str:
        """Which files changed, as a sentence; empty when none did."""
        if not self.damaged:
            return ""
        are = "is damaged: its bytes are" if len(self.damaged) == 1 else "are damaged: their bytes are"
        again = "it" if len(self.damaged) == 1 else "them"
        return (
            f"{_listed(self.folder, self.damaged)} {are} not those that were stored; "
            f"the same `fastsim sweep` command computes {again} again"
        )

    def notes(self) -> list[str]:
        """What a reader should know of these rows: what is missing, unknown or unchecked; one sentence each."""
        return list(self._notes())

    def _notes(self) -> Iterator[str]:
        yield from self._caveats()
        if not self.is_listed:
            yield f"{self.folder}: no manifest.json: whether these rows are unchanged and all there cannot be told"
            return
        if self.manifest is None:
            yield f"{self.folder}/manifest.json: is missing or damaged: whether all rows are there cannot be told"
        elif self.manifest.format in OLD_VERDICTS:
            yield (
                f"{self.folder}: its verdicts are of the old kind (format {self.manifest.format}): "
                "an overload that could not be judged counted as ok"
            )
        if self.missing:
            rows = sum(record.rows for record in self.missing)
            are = "is" if len(self.missing) == 1 else "are"
            yield f"{_listed(self.folder, self.missing)} {are} missing ({rows:,} row{'s' * (rows != 1)})"
        if self.manifest is not None and not self.is_complete:
            how = "running" if self.owner else "incomplete"
            goes_on = "" if self.owner else "; the same `fastsim sweep` command goes on from here"
            yield f"{self.folder}: {how}: {self.rows:,} of {self.manifest.rows:,} rows are there{goes_on}"
        if self.strangers and not self.owner:  # of a sweep at work they may be about to be listed
            more = f" and {len(self.strangers) - 1} more" if len(self.strangers) > 1 else ""
            yield f"{self.strangers[0]}{more}: not a part of this sweep, and left out"
        if self.spec_changed:
            yield f"{self.folder}/spec.toml: was changed since the sweep wrote it"

    def _caveats(self) -> list[str]:
        """What must be known of the engines that ran, as far as spec.toml says which."""
        try:
            text = (self.folder / "spec.toml").read_text(errors="replace")
        except OSError:
            return []
        return caveats(name for engine in engines() for name in engine.names if f'"{name}"' in text)

    def extent(self) -> str:
        """What part of its grid the folder holds, in words: `the first 100 of 2,000 configurations`; empty for all."""
        return "" if self.manifest is None else extent(self.manifest)

    def scan(self) -> "pl.LazyFrame":
        """The rows, read only as far as a query needs.

        Raises
        ------
        InputError
            When there are none.
        WorkError
            When files are damaged.
        """
        import polars as pl

        if self.damaged:
            raise WorkError(self.damage())
        if not (paths := self.paths()):
            raise InputError(f"{self.folder}: holds no rows (no parts/*.parquet), but a sweep's folder was expected")
        return pl.scan_parquet(paths, glob=False)


def read_contents(folder: Path) -> Contents:
    """Look a folder through: every file it knows of is read and compared with its checksum.

    Raises
    ------
    InputError
        When it is no folder, or another version of fastsim wrote it in a format that this one does not read.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: not a folder, but a sweep's folder was expected")
    manifest = read_manifest(folder)
    records = sorted(known_parts(folder).values(), key=lambda record: record.part)
    with ThreadPoolExecutor(READERS) as readers:
        good = list(readers.map(lambda record: is_intact(folder, record), records))
    there = [part_path(folder, record.part).exists() for record in records]
    known = {part_path(folder, record.part) for record in records}
    found = list(zip(records, good, there, strict=True))
    return Contents(
        folder,
        manifest,
        intact=tuple(record for record, intact, _ in found if intact),
        missing=tuple(record for record, intact, exists in found if not (intact or exists)),
        damaged=tuple(record for record, intact, exists in found if exists and not intact),
        strangers=tuple(path for path in sorted((folder / "parts").glob("*.parquet")) if path not in known),
        owner=lock_owner(folder),
        spec_changed=_spec_changed(folder, manifest),
    )


def _spec_changed(folder: Path, manifest: Manifest | None) -> bool:
    if manifest is None or not manifest.spec_check:
        return False
    try:
        return checksum((folder / "spec.toml").read_bytes()) != manifest.spec_check
    except OSError:
        return True


def _listed(folder: Path, records: tuple[PartRecord, ...]) -> str:
    names = ", ".join(str(part_path(folder, record.part)) for record in records[:LISTED])
    return f"{names} and {len(records) - LISTED} more" if len(records) > LISTED else names


def extent(manifest: Manifest) -> str:
    """What part of its grid a folder holds, in words; empty for all of it."""
    kind, _, number = manifest.selection.partition(" ")
    words = ""
    if kind == "sample":
        words = f"a sample of {int(number):,} of "
    elif kind == "limit":
        words = f"the first {int(number):,} of "
    if manifest.shard != [1, 1]:
        words = f"shard {manifest.shard[0]}/{manifest.shard[1]} ({manifest.rows:,}) of {words}"
    return f"{words}{manifest.grid_size:,} configurations" if words else ""
