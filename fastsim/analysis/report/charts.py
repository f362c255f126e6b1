"""The charts, by altair: each with a description for those who do not see it."""

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from fastsim.analysis.report.figures import cell_classes, low_high, missing, points_with_lane
from fastsim.analysis.report.phase import PhaseGrid
from fastsim.analysis.report.rows import OUTCOMES, SweepReport
from fastsim.analysis.report.theme import CLASSES, SHAPES, colour
from fastsim.analysis.report.tradeoff import TradeOff

Chart = dict[str, Any]
TEXTS = "texts"
"""How the name of a layer begins that a narrow page leaves out: the figures are in the table below it."""


def data(records: Sequence[dict[str, Any]]) -> alt.InlineData:
    """A few rows as a source of their own."""
    return alt.InlineData(values=list(records))


def outcomes(present: Sequence[str], title: str | None = None) -> dict[str, Any]:
    """Colour and shape of a verdict, both in one legend."""
    shown = [name for name in OUTCOMES if name in present]
    colours = alt.Scale(domain=shown, range=[colour(name) for name in shown])
    shapes = alt.Scale(domain=shown, range=[SHAPES[name] for name in shown])
    return {
        "fill": alt.Fill("outcome:N", scale=colours, title=title),
        "shape": alt.Shape("outcome:N", scale=shapes, title=title),
    }


def _place_axis(title: str, labels: Sequence[str], **more: Any) -> alt.Axis:
    longest = max(map(len, labels), default=0)
    turned = longest * len(labels) > 45
    return alt.Axis(title=title, labelAngle=-40 if turned else 0, grid=False, labelOverlap=False, **more)


def _cell_positions(phase: PhaseGrid) -> dict[str, Any]:
    y, x = phase.y, phase.x
    if _upright(phase):
        return {"y": alt.Y("x:N", sort=x.labels, axis=alt.Axis(title=x.axis.name, grid=False))}
    found: dict[str, Any] = {"x": alt.X("x:N", sort=x.labels, axis=_place_axis(x.axis.name, x.labels))}
    if y is not None:
        up = list(reversed(y.labels)) if y.axis.is_number else y.labels
        axis = alt.Axis(title=y.axis.name, grid=False)
        found["y"] = alt.Y("y:N", sort=up, axis=axis)
    return found


def _upright(phase: PhaseGrid) -> bool:
    """Whether one axis of many words stands up the page, where there is room for them."""
    return phase.y is None and not phase.x.axis.is_number and len(phase.x.labels) > 8


def _columns(phase: PhaseGrid) -> int:
    return 1 if _upright(phase) else len(phase.x.labels)


def _height(phase: PhaseGrid) -> int:
    if _upright(phase):
        return 26 * len(phase.x.labels)
    count = 1 if phase.y is None else len(phase.y.labels)
    title = 0 if phase.y is None else 7.5 * len(phase.y.axis.name)  # it stands upright beside the cells
    return round(max(min(max(46 * count, 60), max(26 * count, 340)), title))


def verdict_map(phase: PhaseGrid) -> Chart:
    """The most frequent verdict of each cell, with its share where others have it too."""
    records = [
        {
            "x": cell["x"],
            "y": cell["y"],
            "outcome": cell["outcome"],
            "part": cell["share"],
            "share": "" if cell["share"] == 1 else f"{100 * cell['share']:.0f} %",
            "rows": ", ".join(f"{name} {cell[f'n|{name}']:,}" for name in OUTCOMES if cell[f"n|{name}"]),
        }
        for cell in phase.records()
    ]
    tooltip = [
        alt.Tooltip("x:N", title=phase.x.axis.name),
        *([alt.Tooltip("y:N", title=phase.y.axis.name)] if phase.y else []),
        alt.Tooltip("rows:N", title="rows"),
    ]
    base = alt.Chart(alt.NamedData("verdicts")).encode(**_cell_positions(phase), tooltip=tooltip)
    styles = outcomes([record["outcome"] for record in records])
    shade = alt.FillOpacity("part:Q", scale=alt.Scale(domain=[0, 1], range=[0.02, 0.28]), legend=None)
    cells = base.mark_rect(stroke=colour("line")).encode(fill=styles["fill"], fillOpacity=shade)
    few = _columns(phase) <= 10 and any(record["share"] for record in records)
    marks = base.mark_point(aria=False, size=80, strokeWidth=0, opacity=1, xOffset=-12 if few else 0).encode(**styles)
    layers = [cells, marks]
    if few:  # beside the mark: cells are wider than high
        layers.append(
            base.mark_text(aria=False, dx=-4, align="left", fontSize=10)
            .encode(text="share:N")
            .properties(name=f"{TEXTS}_verdicts")
        )
    found = [record["outcome"] for record in records]
    words = ", ".join(f"{name} in {found.count(name)} cells" for name in OUTCOMES if name in found)
    return finished(
        alt.layer(*layers), "verdicts", records, _height(phase), f"Map of verdicts over {_over(phase)}: {words}."
    )


def metric_map(sweep: SweepReport, phase: PhaseGrid, metric: str) -> Chart:
    """A metric's mean in each cell, in five shades, the number written in it."""
    records, classes = cell_classes(phase, metric)
    label = sweep.label(metric)
    shades = [f"s{round(k * (CLASSES - 1) / max(len(classes) - 1, 1))}" for k in range(len(classes))]
    none = missing(metric)
    domain = [*classes, none] if any(record["class"] == none for record in records) else classes
    fills = [*(colour(name) for name in shades), colour("paper")][: len(domain)]
    inks = [*(colour(name.replace("s", "t")) for name in shades), colour("ink")][: len(domain)]
    tooltip = [
        alt.Tooltip("x:N", title=phase.x.axis.name),
        *([alt.Tooltip("y:N", title=phase.y.axis.name)] if phase.y else []),
        alt.Tooltip("full:N", title=label),
        alt.Tooltip("settings:Q", title="settings in the cell"),
    ]
    base = alt.Chart(alt.NamedData(f"map {metric}")).encode(**_cell_positions(phase), tooltip=tooltip)
    cells = base.mark_rect(stroke=colour("line")).encode(
        fill=alt.Fill("class:N", sort=domain, scale=alt.Scale(domain=domain, range=fills), title=None)
    )
    layers = [cells]
    if _columns(phase) <= 12:
        ink = alt.Color("class:N", scale=alt.Scale(domain=domain, range=inks), legend=None)
        layers.append(
            base.mark_text(aria=False, fontSize=10)
            .encode(text="text:N", color=ink)
            .properties(name=f"{TEXTS}_{metric}")
        )
    known = [record["value"] for record in records if record["value"] is not None]
    extent = f"from {min(known):.4g} to {max(known):.4g}" if known else "no value anywhere"
    return finished(
        alt.layer(*layers), f"map {metric}", records, _height(phase), f"Map of {label} over {_over(phase)}: {extent}."
    )


def _over(phase: PhaseGrid) -> str:
    return phase.x.axis.name + (f" and {phase.y.axis.name}" if phase.y else "")


def trade_off(sweep: SweepReport, trade: TradeOff, *, choose: bool = True) -> Chart:
    """Two metrics by setting, shapes by verdict, a line along the front, and a lane for those that were not reached."""
    records, lane, log = points_with_lane(sweep, trade)
    y_title, x_title = sweep.label(trade.y), sweep.label(trade.x)
    y_scale, y_axis = _y_scale(records, lane, log, y_title)
    base = alt.Chart(alt.NamedData(f"{trade.x} {trade.y}")).encode(
        x=alt.X("x:Q", scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(title=x_title, tickCount=6)),
        y=alt.Y("y:Q", scale=y_scale, axis=y_axis),
    )
    if choose and trade.loads:
        options: list[Any] = [None, *range(len(trade.loads))]
        select = alt.binding_select(options=options, labels=["all", *trade.loads], name="Load: ")
        base = base.add_params(alt.param(name="load", value=None, bind=select))
        base = base.transform_filter("load == null || datum.load == load")
    tooltip = [
        alt.Tooltip("setting:N", title="setting"),
        alt.Tooltip("x:Q", title=x_title, format=",.4~r"),
        alt.Tooltip("text:N", title=y_title),
        alt.Tooltip("outcome:N", title="verdict"),
        alt.Tooltip("config_id:Q", title="config_id"),
    ]
    styles = outcomes([record["outcome"] for record in records])
    line = base.transform_filter("datum.line").mark_line(
        interpolate="step-after" if sweep.more_is_better(trade.x) else "step-before",
        stroke=colour("ink"),
        strokeWidth=1,
        strokeDash=[5, 3],
    )
    line = line.encode(detail="load:N")
    points = base.mark_point(
        aria=False, size=_size(len(records)), strokeWidth=0.8, stroke=colour("paper"), opacity=0.85
    )
    layers = [line, points.encode(**styles, tooltip=tooltip)]
    if lane is not None:
        layers += marked(lane, missing(trade.y), [2, 3])
    for column, limit in sweep.question.limits:
        if column == trade.y and low_high(records)[0] <= limit <= low_high(records)[1]:
            layers += marked(limit, f"limit {limit:g}", [8, 4])
    front = trade.points["front"].sum()
    words = f"{y_title} against {x_title} of {len(records):,} settings; {front} are on the front."
    if trade.lost:
        words += f" {trade.lost:,} of {trade.settings:,} settings have no {y_title}: {missing(trade.y)}."
    return finished(alt.layer(*layers), f"{trade.x} {trade.y}", records, 340, words)


def _y_scale(records: list[dict[str, Any]], lane: float | None, log: bool, title: str) -> tuple[alt.Scale, alt.Axis]:
    """The scale and axis of a trade-off: room above for a lane, round numbers on a logarithmic one."""
    low, high = low_high(records)
    limits: dict[str, Any] = {}
    if lane is not None:
        limits["domainMax"] = lane * (lane / low) ** 0.1 if log else lane + 0.1 * (lane - min(low, 0.0))
    if not log:
        return alt.Scale(zero=low < 0.5 * high, nice=lane is None, **limits), alt.Axis(title=title, tickCount=6)
    limits["domainMin"] = low / 1.2
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 3) if len(decades) < 4 else (1,)
    ticks = [step * 10.0**decade for decade in decades for step in steps if low / 2 <= step * 10.0**decade <= high]
    axis = alt.Axis(title=title, values=ticks, format="~s" if low >= 1e-3 and high < 1e9 else "~g")
    return alt.Scale(type="log", nice=False, **limits), axis


def marked(y: float, words: str, dash: list[int]) -> list[alt.Chart]:
    """A dashed line across at a height, and words above it."""
    note = alt.Chart(data([{"y": y, "text": words}])).encode(y="y:Q")
    text = note.mark_text(align="left", baseline="bottom", dx=4, dy=-5, fontSize=11)
    return [note.mark_rule(strokeDash=dash), text.encode(x=alt.value(0), text="text:N")]


def _size(count: int) -> int:
    """Of a mark, in square pixels: larger where there are few."""
    return 110 if count <= 60 else 55


def finished(
    chart: alt.LayerChart | alt.FacetChart, name: str, records: list[dict[str, Any]], height: int, description: str
) -> Chart:
    """The chart as a spec. Its data come last and by name: altair would copy them at every step."""
    whole = chart.properties(width="container", height=height, description=description)
    spec: Chart = whole.to_dict(validate=False)
    spec.pop("config", None)
    spec["autosize"] = {"type": "fit-x", "contains": "padding", "resize": True}
    spec.setdefault("datasets", {})[name] = records
    return spec
