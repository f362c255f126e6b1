"""The only ways a kernel is compiled, and how it receives arrays.

`entry` marks a function that Python calls: it is compiled once per signature and cached on disk. `helper` marks a
function that only kernels call: it becomes part of the entry that uses it.

`borrow` makes arrays cheap to hand on (see `_borrowed`): an entry borrows its arrays once, at its head.

Numba's own cache notices a change of the file that holds the entry, but not of a helper in another file, and then
returns stale machine code. The cache folder is therefore named by a hash of every source of the package, the Numba
version and the CPU: another source tree means another folder.
"""

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba import njit


@cache
def source_hash() -> str:
    """Hex digest over every Python source of the package: what decides numbers is among them."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Where compiled kernels are kept: below FASTSIM_CACHE_DIR, the user's cache folder, or a temporary folder."""
    chosen = os.environ.get("FASTSIM_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    candidates = [Path(chosen)] if chosen else []
    if home := os.environ.get("HOME"):
        candidates.append(Path(home) / ".cache")
    user = os.getuid() if hasattr(os, "getuid") else "user"
    candidates.append(Path(tempfile.gettempdir()) / f"fastsim-{user}")
    cpu = os.environ.get("NUMBA_CPU_NAME", "host")
    name = f"{source_hash()[:16]}-numba{numba.__version__}-py{sys.version_info[0]}{sys.version_info[1]}-{cpu}"
    if os.environ.get("NUMBA_BOUNDSCHECK"):
        name += "-bounds"
    for candidate in candidates:
        folder = candidate / "fastsim" / "kernels" / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    return Path(tempfile.mkdtemp(prefix="fastsim-kernels-"))


numba.config.CACHE_DIR = str(cache_folder())

entry: Callable[..., Any] = njit(cache=True, nogil=True)
# Python never calls a helper, so no wrappers for it: they were most of the compile time
helper: Callable[..., Any] = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _unchanged(arrays: Any) -> Any:
    return arrays


if numba.config.DISABLE_JIT:
    borrow: Callable[..., Any] = _unchanged
else:
    from fastsim._borrowed import borrow
