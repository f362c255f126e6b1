"""Which sources decide the numbers in a row. Rows of different ones are never mixed in one folder."""

from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path

DECISIVE = (
    "model",
    "rule",
    "presets",
    "config",
    "workload",
    "engines",
    "metrics",
    "records",
    "simulation",
    "sweeps/grid",
    "sweeps/store/schema",
    "_jit",
)
"""Folders and files (without .py) below the package: what stands on other floors only moves rows about."""


@cache
def source_hashes() -> Mapping[str, str]:
    """Hash of every decisive source, 16 hex digits, by its path below the package."""
    root = Path(__file__).parents[2]
    hashes = {}
    for name in DECISIVE:
        files = (
            [root / f"{name}.py"]
            if (root / f"{name}.py").is_file()
            else sorted((root / name).rglob("*.py")) + sorted((root / name).rglob("*.json"))
        )
        for path in files:
            hashes[path.relative_to(root).as_posix()] = blake2b(path.read_bytes(), digest_size=8).hexdigest()
    return hashes


def changed_sources(before: Mapping[str, str], now: Mapping[str, str] | None = None) -> list[str]:
    """Decisive sources that differ from the recorded ones, by path, sorted; `now` is by default what is installed."""
    now = source_hashes() if now is None else now
    return sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
