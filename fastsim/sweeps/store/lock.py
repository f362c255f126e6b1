"""One sweep at a time on a folder: a lock that the kernel releases when its owner ends, however it ends."""

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from fastsim.errors import InputError


class FolderLock:
    """An exclusive lock on a folder, held from `__enter__` to `__exit__`.

    Raises
    ------
    InputError
        On entering, when another process holds it, or when the file system has no locks.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._handle: int | None = None

    def __enter__(self) -> "FolderLock":
        handle = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _owner(handle)
            os.close(handle)
            raise InputError(
                f"{self.folder}: another sweep ({owner or 'of unknown process'}) is writing to this folder; "
                "wait for it, stop it, or choose another --out"
            ) from None
        except OSError as error:  # some cluster file systems are mounted without locks (Lustre needs -o flock)
            os.close(handle)
            raise InputError(
                f"{self.folder}: this file system has no locks ({error.strerror}), "
                "but one that has was expected: a sweep must be alone in its folder"
            ) from None
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {os.uname().nodename}\n".encode())
        self._handle = handle
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._handle is not None:
            os.close(self._handle)  # closing releases it
            self._handle = None


def _owner(handle: int) -> str:
    """What the owner of a lock wrote into it; whoever has just taken it may need a moment."""
    for _ in range(20):
        if owner := os.pread(handle, 100, 0).decode(errors="replace").strip():
            return owner
        time.sleep(0.01)
    return ""


def lock_owner(folder: Path) -> str | None:
    """Who holds a folder's lock, if anybody does."""
    try:
        with (folder / ".lock").open("rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return (folder / ".lock").read_text(errors="replace").strip() or "of unknown process"
    except OSError:  # no lock file, or a file system without locks
        return None
    return None
