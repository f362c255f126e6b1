"""Files read with a bound: what a reader holds in memory does not depend on what somebody puts into a file."""

from pathlib import Path

from fastsim.errors import InputError, check_regular

MAX_DOCUMENT_BYTES = 256 * 2**20
"""Largest file that is read as one piece (JSON, YAML)."""
MAX_LINE_BYTES = 16 * 2**20
"""Longest line of JSON lines; a CSV with a line of twice that is refused."""


def read_text(path: Path, what: str, limit: int = MAX_DOCUMENT_BYTES) -> str:
    """The text of a file that is read as a whole.

    Raises
    ------
    InputError
        When it cannot be read, is larger than `limit` bytes, or is not UTF-8.
    """
    check_regular(path, what)
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}), but {what} was expected") from None
    if len(data) > limit:
        raise InputError(f"{path}: larger than {limit // 2**20} MiB, but {what} was expected")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text, but {what} was expected") from None


def check_lines(path: Path) -> None:
    """Refuse a CSV with a line that would fill the memory: in every stretch of `MAX_LINE_BYTES` a line ends.

    Raises
    ------
    InputError
        When there is such a line.
    """
    if path.stat().st_size <= MAX_LINE_BYTES:
        return
    with path.open("rb") as file:
        while len(stretch := file.read(MAX_LINE_BYTES)) == MAX_LINE_BYTES:
            if b"\n" not in stretch:
                raise InputError(
                    f"{path}: a line is longer than {MAX_LINE_BYTES // 2**20} MiB, but a request a line was expected"
                )
