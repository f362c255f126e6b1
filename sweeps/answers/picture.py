"""One picture an answer: the figures of its table with their intervals, drawn from the texts of the table."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt

from fastsim.analysis.report.theme import LIGHT, config, in_light

MOST_ROWS, MOST_SERIES = 18, 4
_NUMBER = r"[-+]?[\d,]*\.?\d+"
_CELL = re.compile(rf"({_NUMBER})( %)?(?: \[({_NUMBER}), ({_NUMBER})[^\]]*\])?")
_SHADES = ("accent", "ok", "overloaded", "thrash")
_MARKS = ("circle", "square", "diamond", "triangle-up")


class Figure(NamedTuple):
    """A figure of a table: the mean, its interval (the mean twice where there is none), whether it is in percent."""

    mean: float
    low: float
    high: float
    percent: bool


def figure(cell: str) -> Figure | None:
    """The first figure of a cell; None where it begins with none."""
    found = _CELL.match(cell)
    if found is None:
        return None
    mean, low, high = (None if text is None else float(text.replace(",", "")) for text in found.group(1, 3, 4))
    assert mean is not None
    return Figure(mean, mean if low is None else low, mean if high is None else high, found[2] is not None)


def series(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """The columns to draw together: the first of figures, those with intervals before others, and its like."""
    told = {k: [found for row in rows if (found := figure(row[k])) is not None] for k in range(1, len(header))}
    known = {k: found for k, found in told.items() if len(found) >= max(2, 0.6 * len(rows))}
    if not known:
        return []
    first = min(known, key=lambda k: (not any(one.low < one.high for one in known[k]), k))
    size = max(abs(one.mean) for one in known[first])
    alike = [
        k
        for k, found in known.items()
        if found[0].percent == known[first][0].percent
        and any(one.low < one.high for one in found) == any(one.low < one.high for one in known[first])
        and 0.02 * size <= max(abs(one.mean) for one in found) <= 50 * size
    ]
    return [first, *(k for k in alike if k != first)][:MOST_SERIES]


def picture(header: Sequence[str], rows: Sequence[Sequence[str]], drawn: Sequence[str] | None = None) -> str | None:
    """The picture of a table as SVG: of the columns named, or of those that go together; None where there are none."""
    columns = series(header, rows) if drawn is None else [list(header).index(name) for name in drawn]
    if not columns:
        return None
    import vl_convert

    shown = list(rows)[:MOST_ROWS]
    labels = [row[0] or "-" for row in shown]
    records = [
        {"row": label, "series": header[k], **found._asdict()}
        for row, label in zip(shown, labels, strict=True)
        for k in columns
        if (found := figure(row[k])) is not None
    ]
    names = [header[k] for k in columns]
    shades = alt.Scale(domain=names, range=[f"var(--{shade})" for shade in _SHADES[: len(names)]])
    marks = alt.Scale(domain=names, range=list(_MARKS[: len(names)]))
    legend = alt.Legend(title=None, orient="top", labelLimit=400, columns=2) if len(names) > 1 else None
    unit = "%" if records[0]["percent"] else ""
    title = unit if len(names) > 1 else f"{names[0]}{', ' + unit if unit else ''}"
    base = alt.Chart(alt.InlineData(values=records)).encode(
        y=alt.Y("row:N", sort=labels, axis=alt.Axis(title=header[0] or None, grid=True, labelLimit=280))
    )
    if len(names) > 1:
        base = base.encode(yOffset=alt.YOffset("series:N", sort=names))
    bars = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("low:Q", axis=alt.Axis(title=title or None, tickCount=6), scale=alt.Scale(zero=False, nice=True)),
        x2="high:Q",
        stroke=alt.Stroke("series:N", scale=shades, legend=legend),
    )
    dots = base.mark_point(size=55, opacity=1, strokeWidth=0).encode(
        x="mean:Q",
        fill=alt.Fill("series:N", scale=shades, legend=legend),
        shape=alt.Shape("series:N", scale=marks, legend=legend),
    )
    step = 16 if len(names) == 1 else 9 * len(names)
    chart: Any = alt.layer(bars, dots).properties(width=560, height=max(60, step * len(shown) + 10))
    spec = chart.to_dict(validate=False)
    spec["config"] = config() | {"background": LIGHT["paper"], "font": "Liberation Sans, Arial, sans-serif"}
    svg: str = vl_convert.vegalite_to_svg(in_light(spec))
    return svg
