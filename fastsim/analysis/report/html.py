"""Pieces of HTML. Everything that comes from a spec or a folder passes through `text`, or `json_block`."""

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from fastsim.analysis.numbers import as_title
from fastsim.errors import printable


def text(words: str) -> str:
    """Text as HTML, quotes included; what cannot be printed, or turns the direction of writing, is shown as escapes."""
    return escape(_visible(words))


def _visible(words: str) -> str:
    return "".join(letter if letter in "\n\t" else printable(letter) for letter in words)


def all_visible(value: Any) -> Any:
    """Data in which every text is visible."""
    if isinstance(value, str):
        return _visible(value)
    if isinstance(value, dict):
        return {all_visible(name): all_visible(inner) for name, inner in value.items()}
    return [all_visible(inner) for inner in value] if isinstance(value, list | tuple) else value


def json_block(name: str, value: Any) -> str:
    """A script element of data. No `<` is left in it, so nothing in it can end it."""
    data = json.dumps(all_visible(value), separators=(",", ":"), allow_nan=False)
    data = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f'<script type="application/json" id="{text(name)}">{data}</script>'


def paragraph(words: str, kind: str = "") -> str:
    """A paragraph; empty words give nothing."""
    return f"<p{_class(kind)}>{text(words)}</p>" if words else ""


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


class Cell:
    """A cell of a table: what it shows, what it sorts by, whether it is a word."""

    def __init__(self, shown: str, value: Any = None, *, word: bool = False) -> None:
        self.shown, self.value, self.word = shown, value, word

    def html(self) -> str:
        """The cell."""
        kind = " class=word" if self.word and len(self.shown) < 24 else ' class="word wide"' if self.word else ""
        value = "" if self.value is None else f' data-value="{text(str(self.value))}"'
        return f"<td{kind}{value}>{text(self.shown)}"


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    caption: str,
    *,
    name: str = "",
    sortable: bool = False,
    long: bool = False,
) -> str:
    """A table in a box of its own that scrolls, by keyboard too; end tags that HTML does not need are left out."""
    words = [bool(rows) and rows[0][k].word for k in range(len(header))]
    head = "".join(
        f"<th scope=col{' class=word' if word else ''}>"
        + (f"<button type=button>{text(title)}</button>" if sortable else text(title))
        for title, word in zip(header, words, strict=True)
    )
    body = "\n".join("<tr>" + "".join(cell.html() for cell in row) for row in rows)
    identity = f' id="{name}"' if name else ""
    kind = " class=long" if long else ""
    return (
        f'<div class=scroll tabindex=0 role=region aria-label="{text(caption)}"><table{identity}{kind}>'
        f"<caption>{text(caption)}</caption><thead><tr>{head}</thead><tbody>\n{body}\n</tbody></table></div>"
    )


def figure(name: str, title: str, caption: str, more: str = "") -> str:
    """A chart by its name among the specs, with a title, what it shows, and a table of its figures."""
    return (
        f'<figure aria-labelledby="{name}-title"><h3 id="{name}-title">{text(title)}</h3>'
        f'<div class=chart data-chart="{name}" aria-describedby="{name}-words"></div>'
        f'<figcaption id="{name}-words">{text(caption)}</figcaption>'
        f"{more}</figure>"
    )


class Charts:
    """The specs of the charts of a page, by name."""

    def __init__(self) -> None:
        self.specs: dict[str, dict[str, Any]] = {}

    def figure(self, title: str, caption: str, spec: dict[str, Any], more: str = "") -> str:
        """A figure with that chart."""
        name = f"chart-{len(self.specs)}"
        self.specs[name] = spec
        return figure(name, as_title(title), caption, more)


def folded(title: str, inner: str) -> str:
    """Something that opens on demand."""
    return f"<details><summary>{text(title)}</summary>{inner}</details>"


def definitions(pairs: Sequence[tuple[str, str]], kind: str) -> str:
    """A list of names and values."""
    items = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in pairs)
    if kind == "about":
        items = "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in pairs)
    return f"<dl class={kind}>{items}</dl>"
