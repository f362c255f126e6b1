"""Contents of files that must stay what they were: a sweep's processes read a policy as its first one did.

A file may be edited while a sweep runs. Whoever starts it reads the file once and hands its content on (`hold`); what a
process holds it reads no more.
"""

from pathlib import Path

_held: dict[str, bytes] = {}


def hold(contents: dict[str, bytes]) -> None:
    """From now on these are the contents of the files of these names, in this process."""
    _held.update(contents)


def read_bytes(path: str) -> bytes:
    """The content of a file: what is held, else what is there (OSError, ValueError: it cannot be read)."""
    held = _held.get(path)
    return Path(path).read_bytes() if held is None else held
