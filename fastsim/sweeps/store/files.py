"""Files that appear whole or not at all, and survive a power failure once they have appeared."""

import ctypes
import json
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any


def write_whole(path: Path, data: bytes) -> None:
    """Write a file under a temporary name, force it to disk, rename it, and force the folder's entry to disk.

    Raises
    ------
    OSError
        When the disk is full or the folder cannot be written; no temporary file is left behind.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def link_or_copy(source: Path, target: Path) -> None:
    """The same file under another name; a copy where the file system knows no hard links."""
    try:
        os.link(source, target)
    except OSError:
        write_whole(target, source.read_bytes())


def exchange(one: Path, other: Path) -> None:
    """Let two folders beside each other change places: in one step where Linux and the file system can.

    Elsewhere in three, `other` being called as `one` with `.old` meanwhile: killed in between, there is no `other`.
    """
    if _exchange_at_once(one, other):
        return
    third = one.with_name(one.name + ".old")
    other.rename(third)
    one.rename(other)
    third.rename(one)


def _exchange_at_once(one: Path, other: Path) -> bool:
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return rename is not None and rename(here, os.fsencode(one), here, os.fsencode(other), swap) == 0


def sync_folder(folder: Path) -> None:
    """Force the entries of a folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checksum(data: bytes) -> str:
    """BLAKE2b of a file's bytes, 32 hex digits."""
    return blake2b(data, digest_size=16).hexdigest()


def sealed(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table of JSON values with its own checksum as `check`: one changed byte shows."""
    return {**table, "check": checksum(json.dumps(table, sort_keys=True).encode())}


def unsealed(table: Mapping[str, Any], *, needs_check: bool = False) -> dict[str, Any] | None:
    """The table without its checksum; None when it was changed. Older versions wrote none, unless it needs one."""
    inner = {name: value for name, value in table.items() if name != "check"}
    return inner if table == sealed(inner) or not (needs_check or "check" in table) else None


def final_name(name: str) -> str:
    """The name that a temporary file is to have; any other name as it is."""
    temporary = re.fullmatch(r"\.(.+)\.\d+\.tmp", name)
    return temporary[1] if temporary else name


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of writers that were killed. Only the holder of the folder's lock may do so."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)
