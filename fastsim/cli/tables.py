"""Numbers and tables for people: plain text that fits the terminal, or 80 columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from shutil import get_terminal_size
from textwrap import fill, wrap
from typing import Any

from fastsim.analysis.numbers import number as number

WIDTH, LEAST_WIDTH = 80, 20
"""Lines are at most so long, and at least where COLUMNS or the terminal ask for less."""
GAP = "  "
KEYS_SHARE = 0.7
"""Keys that take more of the width are not repeated."""

_TITLE_LIMITS = (80, 24, 18, 14, 12, 10, 8)
_CELL_LIMITS = (80, 32, 24, 18, 14)
_SPLIT_CELLS = 24
_ROW = ["row"]


def width() -> int:
    """How long a line may be: as wide as COLUMNS or the terminal says, from 20 to 80; elsewhere 80."""
    return min(WIDTH, max(LEAST_WIDTH, get_terminal_size((WIDTH, 24)).columns))


def counted(count: int, what: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def wrapped(text: str, indent: int = 2) -> str:
    """A sentence in lines of at most `width()` characters, all but the first indented."""
    return fill(text, width(), subsequent_indent=" " * indent, break_on_hyphens=False)


def table(header: Sequence[str], rows: Sequence[Sequence[Any]], left: int | Sequence[int] = 1, keys: int = 1) -> str:
    """Columns aligned by spaces: the first `left`, or those numbered, to the left, the others to the right.

    It is at most `width()` columns wide: headers are broken at underscores and dots, then texts at spaces; what is
    still too wide goes on in a further table below, which repeats the first `keys` columns or, where these are too
    many, the number of the row.
    """
    to_left = range(left) if isinstance(left, int) else left
    texts = [[value if isinstance(value, str) else number(value) for value in row] for row in rows]
    columns = [
        _TableColumn([title], [[row[k]] for row in texts], to_left=k in to_left) for k, title in enumerate(header)
    ]
    for limit in _CELL_LIMITS:
        for titles in _TITLE_LIMITS:
            narrow = [column.within(titles, limit) for column in columns]
            if _width(narrow) <= width():
                return _drawn(narrow)
    choices = (
        list(_parts([column.within(titles, _SPLIT_CELLS) for column in columns], keys)) for titles in _TITLE_LIMITS
    )
    return "\n\n".join(_drawn(part) for part in min(choices, key=lambda parts: (len(parts), parts[0][0].title == _ROW)))


@dataclass(frozen=True)
class _TableColumn:
    """A column: the lines of its title and of each of its cells."""

    title: list[str]
    cells: list[list[str]]
    to_left: bool

    @cached_property
    def width(self) -> int:
        return max(len(line) for lines in (self.title, *self.cells) for line in lines)

    def within(self, title: int, cell: int) -> "_TableColumn":
        """The column with its title and cells broken into lines of about so many characters."""
        cells = [
            wrap(text, cell, break_on_hyphens=False, break_long_words=False) if len(text) > cell else [text]
            for (text,) in self.cells
        ]
        widest = max((len(line) for lines in cells for line in lines), default=0)
        return _TableColumn(_broken(self.title[0], max(title, widest)), cells, self.to_left)

    def line(self, lines: list[str], k: int) -> str:
        text = lines[k] if 0 <= k < len(lines) else ""
        return text.ljust(self.width) if self.to_left else text.rjust(self.width)


def _width(columns: Sequence[_TableColumn]) -> int:
    return sum(column.width for column in columns) + len(GAP) * (len(columns) - 1)


def _parts(columns: Sequence[_TableColumn], keys: int) -> Iterator[list[_TableColumn]]:
    """Tables that fit, of all columns in their order, each after the keys."""
    repeated, rest = columns[:keys], columns[keys:]
    if _width(repeated) > KEYS_SHARE * width() or any(_width([*repeated, column]) > width() for column in rest):
        count = len(columns[0].cells)
        repeated, rest = [_TableColumn(_ROW, [[f"{row + 1:,}"] for row in range(count)], to_left=False)], columns
    part = list(repeated)
    for column in rest:
        room = width() - _width(repeated) - len(GAP)
        fitting = column if column.width <= room else _TableColumn(*_cut(column, room), column.to_left)
        if _width([*part, fitting]) > width():
            yield part
            part = list(repeated)
        part.append(fitting)
    yield part


def _cut(column: _TableColumn, room: int) -> tuple[list[str], list[list[str]]]:
    """Title and cells of a column that has a word wider than the page, which is broken anywhere."""
    title, *cells = (
        [piece for line in lines for piece in wrap(line, room) or [""]] for lines in (column.title, *column.cells)
    )
    return title, cells


def _drawn(columns: Sequence[_TableColumn]) -> str:
    height = max(len(column.title) for column in columns)
    lines = [[column.line(column.title, k - height + len(column.title)) for column in columns] for k in range(height)]
    for row in zip(*(column.cells for column in columns), strict=True):
        pairs = list(zip(columns, row, strict=True))
        lines += [[column.line(cell, k) for column, cell in pairs] for k in range(max(map(len, row)))]
    return "\n".join(GAP.join(line).rstrip() for line in lines)


def _broken(name: str, limit: int) -> list[str]:
    """A header in lines, broken at underscores and dots; a unit like req_per_s stays whole."""
    lines = [""]
    for letters in name.replace("_", "_\0").replace(".", ".\0").replace("_\0per_\0", "_per_").split("\0"):
        if lines[-1] and len(lines[-1]) + len(letters) > limit:
            lines.append("")
        lines[-1] += letters
    return lines
