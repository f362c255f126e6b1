"""Numbers and tables for people: plain text that fits 80 columns."""

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from fastsim.analysis.numbers import number as number

WIDTH = 80


def wrapped(text: str, indent: int = 2) -> str:
    """A sentence in lines of at most 80 characters, all but the first indented."""
    return fill(text, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)


def table(header: Sequence[str], rows: Sequence[Sequence[Any]], left: int = 1) -> str:
    """Columns aligned by spaces: the first `left` to the left, the others to the right.

    A header too long for the width is broken at its underscores and dots.
    """
    cells = [[value if isinstance(value, str) else number(value) for value in row] for row in rows]
    widths = [max((len(row[k]) for row in cells), default=0) for k in range(len(header))]
    room = WIDTH - 2 * (len(header) - 1)
    titles = _titles(header, widths, room)
    widths = [max(width, *(len(line) for line in title)) for width, title in zip(widths, titles, strict=True)]
    height = max(len(title) for title in titles)
    padded = [[""] * (height - len(title)) + title for title in titles]
    lines = list(zip(*padded, strict=True))

    def shown(row: Sequence[str]) -> str:
        aligned = [
            cell.ljust(width) if k < left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(aligned).rstrip()

    return "\n".join([*(shown(line) for line in lines), *(shown(row) for row in cells)])


def _titles(header: Sequence[str], widths: Sequence[int], room: int) -> list[list[str]]:
    """Each header in lines, as few as make the table fit."""
    for limit in (80, 24, 18, 14, 12, 10, 8):
        titles = [_broken(name, max(limit, width)) for name, width in zip(header, widths, strict=True)]
        total = sum(max(width, *(len(line) for line in title)) for width, title in zip(widths, titles, strict=True))
        if total <= room:
            return titles
    return titles


def _broken(name: str, limit: int) -> list[str]:
    lines = [""]
    for letter in name.replace("_", "_\0").replace(".", ".\0").split("\0"):
        if lines[-1] and len(lines[-1]) + len(letter) > limit:
            lines.append("")
        lines[-1] += letter
    return lines
