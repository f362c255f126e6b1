"""Where compiled kernels are kept, and how they are read back.

Numba's own cache notices a change of the file that holds the entry, but not of a helper in another file, and then
returns stale machine code. The cache folder is therefore named by a hash of every source that kernels are made of, the
Numba version and the CPU: another source tree means another folder.
"""

# Numba's internals are hardly typed
# mypy: disable-error-code="attr-defined,misc,name-defined,no-any-return,no-untyped-call,override,untyped-decorator"
# mypy: no-warn-unused-ignores

import hashlib
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache
from numba.core.runtime.nrt import rtsys

COMPILED = ("_jit", "metrics", "engines")
"""Sources that kernels are made of, below the package: another command line need not compile them again."""


@cache
def source_hash() -> str:
    """Hex digest over every source that is compiled."""
    digest = hashlib.sha256()
    root = Path(__file__).parent.parent
    files = [
        path for name in COMPILED for path in ((root / name).rglob("*.py") if (root / name).is_dir() else [root / name])
    ]
    for path in sorted(files):
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


class QuickCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of machine code, read without importing what only compiling needs.

    Those are 200 modules, a third of Numba and most of SciPy: 0.4 s of CPU of every process's start. Machine code
    needs the runtime alone. A miss compiles, and imports them then.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)
