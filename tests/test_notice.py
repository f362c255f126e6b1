"""Whoever waits for a compilation is told why, once; what comes out of the cache is not announced."""

import subprocess
import sys
from pathlib import Path

from fastsim._notice import COMPILING

CODE = """
import sys
sys.path.insert(0, sys.argv[1])
from fastsim import _notice
_notice.tell = print
import kernel
kernel.increment(1)
kernel.increment(1.5)
"""
KERNEL = """
from fastsim._jit import entry

@entry
def increment(x):
    return x + 1
"""


def test_compiling_is_announced_once(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "kernel.py").write_text(KERNEL)
    monkeypatch.setenv("FASTSIM_CACHE_DIR", str(tmp_path))
    for expected in ([COMPILING], []):
        done = subprocess.run(
            [sys.executable, "-c", CODE, str(tmp_path)],
            check=True,
            capture_output=True,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        assert done.stdout.splitlines() == expected
