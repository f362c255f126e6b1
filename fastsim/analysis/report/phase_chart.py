"""The charts of `fastsim phase`: the map of classes over two axes, or curves along one with its cliffs."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import altair as alt
import numpy as np

from fastsim.analysis.compare.metrics import null_is_infinite
from fastsim.analysis.numbers import column_label, number
from fastsim.analysis.phase.axes import PhaseAxis
from fastsim.analysis.phase.classes import FAILED
from fastsim.analysis.phase.map import PhaseMap, over_seeds
from fastsim.analysis.report.charts import Chart, data, finished, marked
from fastsim.analysis.report.figures import NOT_REACHED
from fastsim.analysis.report.theme import SHAPES, colour

MOST_MARKS = 16
"""Along a side of a map: shapes that say the class of a region without colour."""
CURVES = ("ttft_p99_ms", "goodput_req_per_s")


def styles(found: PhaseMap) -> dict[str, tuple[str, str]]:
    """Colour and shape of each class that is on the map, the good one first."""
    limits = {found.classes[0]: ("livelock", SHAPES["livelock"]), found.classes[-1]: ("ok", SHAPES["ok"])}
    present = [found.classes[code] for code in reversed(range(len(found.classes))) if (found.labels == code).any()]
    seen = [*present, *(name for name in found.figures["class"].unique(maintain_order=True) if name not in present)]
    if found.column != "verdict":
        return {name: limits[name] for name in seen}
    names = {name: "error" if name == FAILED else name for name in seen}
    return {name: (colour_name, SHAPES[colour_name]) for name, colour_name in names.items()}


def _encodings(found: PhaseMap) -> tuple[alt.Fill, alt.Shape]:
    by_class = styles(found)
    fills = alt.Scale(domain=list(by_class), range=[colour(name) for name, _ in by_class.values()])
    shapes = alt.Scale(domain=list(by_class), range=[shape for _, shape in by_class.values()])
    legend = alt.Legend(title=None, symbolOpacity=1, symbolStrokeWidth=0)
    return alt.Fill("class:N", scale=fills, legend=legend), alt.Shape("class:N", scale=shapes, legend=legend)


def map_chart(found: PhaseMap) -> Chart:
    """A cell a square: its class by colour, by shape every few cells, and a dot where its seeds disagree."""
    y_axis = found.y
    assert y_axis is not None
    rows, columns = found.labels.shape
    every = (max(1, rows // MOST_MARKS), max(1, columns // MOST_MARKS))
    x_texts, y_texts = _texts(found.x), _texts(y_axis)
    records = [
        {
            "x": x_texts[column],
            "y": y_texts[row],
            "class": found.classes[found.labels[row, column]],
            "mark": row % every[0] == every[0] // 2 and column % every[1] == every[1] // 2,
            "doubt": bool(found.disagrees[row, column]),
            "seeds": f"{100 * found.agreement[row, column]:.0f} %" if found.evaluated[row, column] else "not run",
        }
        for row in range(rows)
        for column in range(columns)
    ]
    fill, shape = _encodings(found)
    base = alt.Chart(alt.NamedData("phase")).encode(
        x=alt.X("x:N", sort=x_texts, axis=_sparse(found.x.name, x_texts, 10)),
        y=alt.Y("y:N", sort=y_texts[::-1], axis=_sparse(y_axis.name, y_texts, 12)),
        tooltip=[
            alt.Tooltip("x:N", title=found.x.name),
            alt.Tooltip("y:N", title=y_axis.name),
            alt.Tooltip("class:N", title="class"),
            alt.Tooltip("seeds:N", title="seeds that agree"),
        ],
    )
    cells = base.mark_rect(fillOpacity=0.35).encode(fill=fill)
    marks = base.transform_filter("datum.mark").mark_point(aria=False, size=42, strokeWidth=0, opacity=1)
    dots = base.transform_filter("datum.doubt").mark_point(aria=False, shape="circle", size=9, filled=True)
    layers = alt.layer(cells, marks.encode(fill=fill, shape=shape), dots.encode(color=alt.value(colour("ink"))))
    shares = ", ".join(f"{name} on {100 * found.share(name):.0f} %" for name in styles(found) if name in found.classes)
    words = f"Map of {found.column} over {found.x.name} and {y_axis.name}: {shares}. Dots: seeds disagree."
    return finished(layers, "phase", records, max(220, min(480, 12 * rows)), words)


def _texts(axis: PhaseAxis) -> list[str]:
    return [number(value) if isinstance(value, float) else str(value) for value in axis.values]


def _sparse(title: str, texts: Sequence[str], most: int) -> alt.Axis:
    """At most so many labels, evenly apart."""
    places = (
        sorted({round(k * (len(texts) - 1) / max(most - 1, 1)) for k in range(most)}) if len(texts) > most else None
    )
    kept = list(texts) if places is None else [texts[place] for place in places]
    longest = max(map(len, kept), default=0)
    angle = -40 if most == 10 and longest * len(kept) > 60 else 0
    return alt.Axis(title=title, values=kept, labelAngle=angle, grid=False, labelOverlap=False)


def line_charts(found: PhaseMap) -> list[tuple[str, Chart]]:
    """Title and chart of each curve along the axis; the metric of the limit comes first."""
    names = [found.column, *CURVES] if found.column in found.figures.columns else [*CURVES]
    kinds = found.figures.schema
    shown = [name for name in dict.fromkeys(names) if name in kinds and kinds[name].is_numeric()]
    shown = [name for name in shown if found.figures[name].null_count() < found.figures.height]
    return [(f"{column_label(name)} along {found.x.name}", _curve(found, name)) for name in shown]


def _curve(found: PhaseMap, name: str) -> Chart:
    """A mark a run, a line through the middle of the seeds, and the classes as bands behind."""
    is_number = _is_number(found.x)
    texts = _texts(found.x)
    runs = found.figures.select("x_place", "class", name)
    known = runs[name].drop_nulls()
    top = float(known.max())  # type: ignore[arg-type]
    lane = top * 1.12 if top > 0 else 1.0
    infinite = null_is_infinite(name)
    records = []
    for run in runs.to_dicts():
        value = run[name]
        if value is None and not infinite:
            continue
        records.append(
            {
                "x": found.x.values[run["x_place"]] if is_number else texts[run["x_place"]],
                "y": lane if value is None else float(value),
                "text": NOT_REACHED if value is None else number(float(value)),
                "class": run["class"],
                "kind": "run",
            }
        )
    for (place,), group in runs.group_by("x_place", maintain_order=True):
        middle = over_seeds(group[name], name)
        if middle is not None:
            x = found.x.values[int(place)] if is_number else texts[int(place)]
            records.append({"x": x, "y": middle, "kind": "middle", "class": "", "text": number(middle)})
    label = column_label(name)
    scale: dict[str, Any] = {"domainMax": lane * 1.06, "nice": False} if len(known) < len(runs) and infinite else {}
    y = alt.Y("y:Q", scale=alt.Scale(zero=True, **scale), axis=alt.Axis(title=label, tickCount=6))
    base = alt.Chart(alt.NamedData(name)).encode(x=_x(found.x, texts), y=y)
    fill, shape = _encodings(found)
    line = base.transform_filter("datum.kind == 'middle'").mark_line(stroke=colour("ink"), strokeWidth=1.2)
    tooltip = [
        alt.Tooltip("x:Q" if is_number else "x:N", title=found.x.name),
        alt.Tooltip("text:N", title=label),
        alt.Tooltip("class:N", title="class"),
    ]
    points = base.transform_filter("datum.kind == 'run'").mark_point(
        aria=False, size=60, strokeWidth=0.8, stroke=colour("paper"), opacity=0.9
    )
    layers: list[Any] = [*([_bands(found, fill)] if is_number else []), line]
    layers.append(points.encode(fill=fill, shape=shape, tooltip=tooltip))
    if scale:
        layers += marked(lane, f"{NOT_REACHED} in the run", [2, 3])
    words = f"{label} of each run along {found.x.name}, a line through the seeds' {_middle_word(infinite)}."
    return finished(alt.layer(*layers), name, records, 260, words)


def _middle_word(infinite: bool) -> str:
    return "median" if infinite else "mean"


def _is_number(axis: PhaseAxis) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in axis.values)


def is_log(axis: PhaseAxis) -> bool:
    """Whether the values are spaced by ratio rather than by difference."""
    if not _is_number(axis) or len(axis.values) < 3 or axis.values[0] <= 0:
        return False
    values = np.array(axis.values, float)
    by_ratio, by_step = np.diff(np.log(values)), np.diff(values)
    return bool(by_ratio.std() / by_ratio.mean() < by_step.std() / by_step.mean())


def _x(axis: PhaseAxis, texts: Sequence[str]) -> alt.X:
    if not _is_number(axis):
        return alt.X("x:N", sort=list(texts), axis=_sparse(axis.name, texts, 10))
    kind = {"type": "log"} if is_log(axis) else {"zero": False}
    domain = [axis.values[0], axis.values[-1]]
    return alt.X(
        "x:Q",
        scale=alt.Scale(domain=domain, nice=False, padding=8, **kind),
        axis=alt.Axis(title=axis.name, tickCount=8, grid=False, format=",.4~f" if domain[1] < 10000 else "~s"),
    )


def _bands(found: PhaseMap, fill: alt.Fill) -> alt.Chart:
    """A band a span of one class, from halfway to its neighbour."""
    labels, values = found.labels[0], found.x.values
    changes = [k for k, (a, b) in enumerate(pairwise(labels)) if a != b]
    log = is_log(found.x)
    pairs = [(values[k], values[k + 1]) for k in changes]
    edges = [values[0], *((a * b) ** 0.5 if log else (a + b) / 2 for a, b in pairs), values[-1]]
    firsts = [0, *(k + 1 for k in changes)]
    records = [
        {"from": low, "to": high, "class": found.classes[labels[first]]}
        for low, high, first in zip(edges, edges[1:], firsts, strict=False)
    ]
    bands: alt.Chart = alt.Chart(data(records)).mark_rect(opacity=0.16, aria=False)
    return bands.encode(x="from:Q", x2="to:Q", fill=fill)
