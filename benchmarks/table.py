"""Tables with the machine under them, for a terminal and for the page beside."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path

import numba

README = Path(__file__).parent / "README.md"


def machine() -> str:
    """One line on what was measured on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, Numba {numba.__version__}"


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    widths = [max(len(str(row[k])) for row in (columns, *rows)) for k in range(len(columns))]
    lines = [
        "| " + " | ".join(str(cell).ljust(width) for cell, width in zip(columns, widths, strict=True)) + " |",
        "|" + "|".join("-" * (width + 1) + (":" if k else "-") for k, width in enumerate(widths)) + "|",
    ]
    for row in rows:
        cells = [
            str(cell).rjust(width) if k else str(cell).ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *([note, ""] if note else []), f"Measured on: {machine()}."])


def publish(name: str, text: str, readme: bool) -> None:
    """Print a table; with `readme`, also put it between the markers of that name in benchmarks/README.md."""
    print(text)
    if not readme:
        return
    begin, end = f"<!-- benchmark {name} -->", f"<!-- end {name} -->"
    page = README.read_text()
    if begin not in page or end not in page:
        raise SystemExit(f"benchmarks/README.md has no markers {begin} and {end}")
    before, rest = page.split(begin, 1)
    README.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end, 1)[1]}")


def figure(value: float) -> str:
    """Three significant digits, thousands separated."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
