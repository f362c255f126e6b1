"""manifest.json: what a sweep's folder holds, and which sweep it is."""

import json
import os
import platform
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fastsim.errors import InputError
from fastsim.sweeps.grid import Grid, Selection
from fastsim.sweeps.store.files import checksum, sealed, unsealed, write_whole
from fastsim.sweeps.store.sources import changed_sources, source_hashes

FORMAT = "fastsim-sweep/4"
OLD_VERDICTS = ("fastsim-sweep/1", "fastsim-sweep/2", "fastsim-sweep/3")
"""Formats whose verdicts follow other rules: what could not be judged counted as ok, tokens as time."""
READABLE = (*OLD_VERDICTS, FORMAT)
"""Formats that this version reads. Only the newest is written."""


def rewritten(written: str) -> str:
    """The format of a folder that is made of one of format `written`: its verdicts stay what they are."""
    return OLD_VERDICTS[-1] if written in OLD_VERDICTS else FORMAT


@dataclass(frozen=True)
class PartRecord:
    """A part that is on disk: `start` to `stop` is the range of indices it covers, `rows` how many it holds.

    In a compacted folder a file may hold the parts from `part` to `last`, both included. `errors` counts its rows of
    status `error` (None in folders of the formats 1 and 2); `first_errors` says of some configurations why.
    """

    part: int
    start: int
    stop: int
    rows: int
    bytes: int
    blake2b: str
    last: int | None = None
    errors: int | None = None
    first_errors: tuple[tuple[int, str], ...] = ()

    @property
    def covers(self) -> range:
        """Indices of the parts in the file."""
        return range(self.part, (self.part if self.last is None else self.last) + 1)

    def table(self) -> dict[str, Any]:
        """As JSON writes it."""
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}


_RECORD = TypeAdapter(PartRecord)


@dataclass
class Manifest:
    """The contents of manifest.json.

    `state` is `running`, `interrupted`, `failed` or `complete`. `shard` is `[i, n]`. `rows` counts the configurations
    that the folder holds when complete. `configs_per_workload` is 0 in folders of the first format. `digits` are how
    many positions each digit of the grid has, and `spec_check` is the checksum of spec.toml; both are empty in folders
    of older versions. `policies` are digests of the policy files, whose copies stand in the folder of that name.
    """

    spec_hash: str
    selection: str
    rows_per_part: int
    shard: list[int]
    grid_size: int
    rows: int
    axes: dict[str, int]
    sources: dict[str, str]
    configs_per_workload: int = 0
    digits: list[int] = field(default_factory=list)
    spec_check: str = ""
    policies: dict[str, str] = field(default_factory=dict)
    format: str = FORMAT
    state: str = "running"
    versions: dict[str, str] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    totals: dict[str, Any] = field(default_factory=dict)
    errors: list[dict[str, Any]] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, grid: Grid, selection: Selection) -> "Manifest":
        """The manifest of a sweep that starts."""
        return cls(
            spec_hash=grid.spec_hash,
            selection=selection.name,
            rows_per_part=selection.plan.rows,
            shard=list(selection.only),
            grid_size=grid.size,
            rows=selection.rows,
            axes={axis.name: len(axis.values) for axis in grid.axes},
            sources=dict(source_hashes()),
            configs_per_workload=grid.configs_per_workload,
            digits=grid.digit_sizes,
            policies=grid.policy_digests,
            versions=_versions(),
            host=_host(),
        )

    def part_records(self) -> list[PartRecord]:
        """The parts on disk when the manifest was written."""
        return [_RECORD.validate_python(part) for part in self.parts]

    @property
    def identity(self) -> dict[str, Any]:
        """What must agree for rows to be mixed: the journal begins with it, in case the manifest is lost."""
        names = ("format", "spec_hash", "selection", "rows_per_part", "shard")
        sources = checksum(json.dumps(self.sources, sort_keys=True).encode())
        return {name: getattr(self, name) for name in names} | {"sources": sources}

    def is_begun_by(self, line: Mapping[str, Any]) -> bool:
        """Whether a journal with this first line is of this sweep, whatever the format of its folder."""
        return line.get("format") in READABLE and {**line, "format": self.format} == self.identity

    def write(self, folder: Path, records: Iterable[PartRecord]) -> None:
        """Write manifest.json with these parts."""
        records = sorted(records, key=lambda record: record.part)
        self.parts = [record.table() for record in records]
        if all(record.errors is not None for record in records):
            reasons = sorted(pair for record in records for pair in record.first_errors)
            self.errors = [{"config_id": index, "error": sentence} for index, sentence in reasons]
            self.totals["errors"] = sum(record.errors or 0 for record in records)
        table = {"format": self.format, "state": self.state} | asdict(self)
        write_whole(folder / "manifest.json", json.dumps(sealed(table), indent=1).encode() + b"\n")


_SHAPE = TypeAdapter(Manifest)


def read_record(table: Mapping[str, Any]) -> PartRecord | None:
    """A line of the journal as a part's record; None when it is something else."""
    try:
        return _RECORD.validate_python(table)
    except ValidationError:
        return None


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder; None when there is none or it is damaged.

    Raises
    ------
    InputError
        When its format is one that this version does not read.
    """
    try:
        table = json.loads((folder / "manifest.json").read_bytes())
        written = table["format"]
        if written not in READABLE:
            raise InputError(
                f"{folder}/manifest.json: format = {written!r}, but one of {', '.join(READABLE)} was expected: "
                "another version of fastsim wrote it"
            )
        whole = unsealed(table, needs_check=written == FORMAT)
        manifest = None if whole is None else _SHAPE.validate_python(whole)
        if manifest is not None and None in map(read_record, manifest.parts):
            return None
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, RecursionError):
        return None  # ValueError: not JSON, or not of this shape
    except OSError as error:
        raise InputError(f"{folder}/manifest.json: cannot be read ({error.strerror})") from None
    return manifest


def differences(old: Manifest, new: Manifest, old_spec: str, new_spec: str) -> list[str]:
    """Why rows of two sweeps must not be mixed, in words; empty when they may be."""
    found = []
    if old.spec_hash != new.spec_hash:
        changes = changed_settings(old_spec, new_spec)
        found.append("the spec changed: " + ("; ".join(changes) or other_contents(old.policies, new.policies)))
    for name, words in (("selection", "selected"), ("rows_per_part", "rows per part"), ("shard", "shard")):
        before, now = getattr(old, name), getattr(new, name)
        if before != now and old.spec_hash == new.spec_hash:
            found.append(f"{words} was {before}, is {now}")
    if changed := changed_sources(old.sources, new.sources):
        names = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        found.append(f"sources that decide numbers changed: {names}")
    return found


def other_contents(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """What made two specs others that say the same: a policy, by name, or a trace."""
    changed = [name for name in new if old.get(name) != new[name]]
    return f"the policy {changed[0]} has other contents" if changed else "a trace has other contents"


def changed_settings(old_spec: str, new_spec: str) -> list[str]:
    """Keys whose values differ between two specs written by `Grid.to_toml`: at most three, then how many more."""
    old, new = _flat(old_spec), _flat(new_spec)
    names = [name for name in {**old, **new} if old.get(name) != new.get(name) and not name.startswith("answer.")]
    shown = [f"{name} was {_short(old.get(name))}, is {_short(new.get(name))}" for name in names[:3]]
    return [*shown, f"and {len(names) - 3} more"] if len(names) > 3 else shown


def _flat(text: str) -> dict[str, Any]:
    def walk(prefix: str, value: Any, into: dict[str, Any]) -> None:
        if isinstance(value, Mapping):
            for name, inner in value.items():
                walk(f"{prefix}.{name}" if prefix else name, inner, into)
        else:
            into[prefix] = value

    flat: dict[str, Any] = {}
    try:
        walk("", tomllib.loads(text), flat)
    except tomllib.TOMLDecodeError:
        return {}
    return flat


def _short(value: Any) -> str:
    text = "not given" if value is None else json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("fastsim-llm", "numba", "numpy", "polars"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed as a package"
    return found


def _host() -> dict[str, Any]:
    return {"node": os.uname().nodename, "machine": platform.machine(), "system": sys.platform, "cores": os.cpu_count()}
