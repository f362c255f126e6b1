"""The YAML of benchmark configurations: nested mappings, lists and plain or quoted scalars, comments.

Anchors, tags, block scalars and several documents are refused with a sentence, not guessed. This saves a dependency
for one format.
"""

import re
from typing import Any

MAX_LINE = 2_000
"""Letters of a line; a pattern below takes time with the square of a line's length."""
NUMBER = re.compile(r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$")
PAIR = re.compile(r"""^("[^"]*"|'[^']*'|[^\s"'\[\]{}#&*!|>][^:#]*?)\s*:(?:\s+(.*))?$""")


def parse(text: str) -> Any:
    """The value of a document.

    Raises
    ------
    ValueError
        When it is not this subset of YAML; the message names the line.
    """
    lines = []
    for number, raw in enumerate(text.splitlines(), 1):
        if len(raw) > MAX_LINE:
            raise ValueError(f"line {number} has more than {MAX_LINE} letters")
        line = _without_comment(raw).rstrip()
        if line.strip() in ("", "---"):
            continue
        indent = len(line) - len(line.lstrip(" "))
        if "\t" in line[: indent + 1]:
            raise ValueError(f"line {number}: indented by a tab")
        lines.append((number, indent, line.strip()))
    if not lines:
        return None
    value, rest = _block(lines, 0, lines[0][1], 0)
    if rest < len(lines):
        raise ValueError(f"line {lines[rest][0]}: indented less than the first line")
    return value


def _without_comment(line: str) -> str:
    quote = ""
    for index, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == "#" and (index == 0 or line[index - 1] in " \t"):
            return line[:index]
    return line


def _block(lines: list[tuple[int, int, str]], at: int, indent: int, depth: int) -> tuple[Any, int]:
    """The mapping, list or scalar whose lines start at `at` with `indent`, and the line after it."""
    if depth > 50:
        raise ValueError(f"line {lines[at][0]}: nested too deeply")
    if lines[at][2].startswith("- ") or lines[at][2] == "-":
        return _list(lines, at, indent, depth)
    if not PAIR.match(lines[at][2]):
        return scalar(lines[at][2], lines[at][0]), at + 1
    mapping: dict[str, Any] = {}
    while at < len(lines) and lines[at][1] == indent:
        number, _, text = lines[at]
        match = PAIR.match(text)
        if match is None:
            raise ValueError(f"line {number}: not a key and a value")
        key = match[1].strip("\"'")
        if key in mapping:
            raise ValueError(f"line {number}: {key} is given twice")
        at += 1
        if match[2]:
            mapping[key] = scalar(match[2], number)
            if at < len(lines) and lines[at][1] > indent:
                raise ValueError(f"line {lines[at][0]}: a value that goes on over several lines is not supported")
        elif at < len(lines) and (lines[at][1] > indent or (lines[at][1] == indent and lines[at][2].startswith("-"))):
            mapping[key], at = _block(lines, at, lines[at][1], depth + 1)
        else:
            mapping[key] = None
    if at < len(lines) and lines[at][1] > indent:
        raise ValueError(f"line {lines[at][0]}: indented more than the line before")
    return mapping, at


def _list(lines: list[tuple[int, int, str]], at: int, indent: int, depth: int) -> tuple[list[Any], int]:
    items = []
    while at < len(lines) and lines[at][1] == indent and lines[at][2].startswith("-"):
        number, _, text = lines[at]
        rest = text[1:].lstrip()
        if not rest:
            at += 1
            if at < len(lines) and lines[at][1] > indent:
                item, at = _block(lines, at, lines[at][1], depth + 1)
                items.append(item)
            else:
                items.append(None)
            continue
        inner = indent + len(text) - len(rest)
        lines[at] = (number, inner, rest)
        item, at = _block(lines, at, inner, depth + 1)
        items.append(item)
    return items, at


def scalar(text: str, number: int) -> Any:
    """A scalar or an inline list.

    Raises
    ------
    ValueError
        For anchors, tags, block scalars and inline mappings.
    """
    text = text.strip()
    if text[:1] in ("&", "*", "!", "|", ">", "{"):
        raise ValueError(f"line {number}: {text[:20]} is not supported here")
    if text.startswith("["):
        if not text.endswith("]"):
            raise ValueError(f"line {number}: a list over several lines is not supported")
        return [scalar(item, number) for item in text[1:-1].split(",") if item.strip()]
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    lower = text.lower()
    if lower in ("true", "false"):
        return lower == "true"
    if lower in ("null", "~", ""):
        return None
    if NUMBER.match(text):
        return float(text) if any(letter in text for letter in ".eE") else int(text)
    return text
