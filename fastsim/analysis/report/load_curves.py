"""Curves over the load: a line a setting, before the clouds of all settings."""

import math
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from fastsim.analysis.compare.metrics import null_is_infinite
from fastsim.analysis.numbers import number
from fastsim.analysis.report.charts import Chart, finished, marked
from fastsim.analysis.report.figures import LOG_RATIO, NOT_REACHED, setting_text
from fastsim.analysis.report.phase import by_importance
from fastsim.analysis.report.rows import ReportAxis, SweepReport
from fastsim.analysis.report.theme import colour

MOST_LINES = 5
CURVES = ("ttft_p99_ms", "goodput_req_per_s")
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4])
_SHADES = ("accent", "ok", "overloaded", "thrash", "starved")


@dataclass(frozen=True)
class LoadCurves:
    """The lines to draw: `load` is the axis along, `varied` the axis of which each line is a value (None: one line).

    `rows` are the settings with `line`, the words of each; `fixed` says what all lines share.
    """

    load: ReportAxis
    varied: ReportAxis | None
    lines: tuple[str, ...]
    rows: pl.DataFrame
    fixed: str


def load_curves(sweep: SweepReport) -> LoadCurves | None:
    """The curves over the first load axis of numbers; None where there is none.

    The setting is the answer's, or the best; the lines are values of the axis that changes TTFT p99 most.
    """
    loads = [axis for axis in sweep.axes if axis.name in sweep.load_axes and axis.is_number and len(axis.labels) > 2]
    metric = next((name for name in CURVES if name in sweep.metrics), None)
    if not loads or metric is None:
        return None
    load = max(loads, key=lambda axis: len(axis.labels))
    base = dict(sweep.ranked.row(0, named=True)) | dict(sweep.question.chosen or {})
    ordered = [axis for axis in by_importance(sweep, metric) if axis.name not in sweep.load_axes]
    varied = ordered[0] if ordered else None
    others = [axis for axis in sweep.axes if axis not in (load, varied)]
    same = [pl.col(axis.name).eq_missing(base[axis.name]) for axis in others]
    frame = sweep.settings.filter(pl.all_horizontal(pl.lit(value=True), *same))
    if varied is None:
        frame = frame.with_columns(pl.lit("").alias("line"))
        lines: list[str] = [""]
    else:
        levels = varied.levels.to_list()
        groups = _alike(frame, varied, levels.index(base[varied.name]))
        own = next(k for k, (first, last, _) in enumerate(groups) if first <= levels.index(base[varied.name]) <= last)
        picked = [groups[k] for k in _picked(own, len(groups))]
        lines = [varied.labels[a] + (f" to {varied.labels[b]}" if b > a else "") for a, b, _ in picked]
        texts = pl.DataFrame([varied.levels.gather([place for *_, place in picked]), pl.Series("line", lines)])
        frame = frame.join(texts, on=varied.name, how="inner", nulls_equal=True)
    shared = [axis for axis in others if len(axis.labels) > 1]
    fixed = ", ".join(f"{axis.short} {axis.labels[axis.levels.to_list().index(base[axis.name])]}" for axis in shared)
    return LoadCurves(load, varied, tuple(lines), frame.sort(load.name), fixed)


def _alike(frame: pl.DataFrame, varied: ReportAxis, chosen: int) -> list[tuple[int, int, int]]:
    """Neighbouring values whose curves are the same to two digits: first, last, and the one that is drawn."""
    names = [name for name in CURVES if name in frame.columns]
    groups: list[tuple[int, int, int]] = []
    before: list[str] | None = None
    for place, level in enumerate(varied.levels.to_list()):
        rows = frame.filter(pl.col(varied.name).eq_missing(level)).sort("config_id").select(names).rows()
        now = ["-" if value is None else f"{value:.2g}" for row in rows for value in row]
        if now == before:
            first, _, drawn = groups[-1]
            groups[-1] = (first, place, chosen if place == chosen else drawn)
        else:
            groups.append((place, place, place))
        before = now
    return groups


def _picked(chosen: int, count: int) -> list[int]:
    """At most MOST_LINES places, evenly from end to end, with the chosen one among them."""
    if count <= MOST_LINES:
        return list(range(count))
    places = np.linspace(0, count - 1, MOST_LINES).round().astype(int)
    places[np.abs(places - chosen).argmin()] = chosen
    return sorted(set(places.tolist()))


def curve(sweep: SweepReport, found: LoadCurves, metric: str) -> Chart | None:
    """A metric over the load; None where it has no value at all."""
    known = found.rows[metric].drop_nulls()
    if known.is_empty():
        return None
    low, high = float(known.min()), float(known.max())  # type: ignore[arg-type]
    log = low > 0 and high / low > LOG_RATIO
    lost = found.rows[metric].null_count() > 0 and null_is_infinite(metric)
    lane = high * (high / low) ** 0.1 if log else high * 1.12
    records: list[dict[str, Any]] = []
    for row in found.rows.to_dicts():
        value = row[metric]
        if value is None and not lost:
            continue
        records.append(
            {
                "x": row[found.load.name],
                "y": float(f"{lane if value is None else value:.6g}"),
                "text": NOT_REACHED if value is None else number(value),
                "line": row["line"],
                "outcome": row["outcome"],
                "setting": setting_text(sweep, row),
            }
        )
    label = sweep.label(metric)
    scale: dict[str, Any] = {"type": "log"} if log else {"zero": True}
    if lost:
        scale |= {"domainMax": lane * (1.25 if log else 1.06), "nice": False}
    ticks: dict[str, Any] = {"tickCount": 5}
    if log:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(lane if lost else high)) + 1)
        ticks = {"values": [10.0**decade for decade in decades]}
    base = alt.Chart(alt.NamedData(f"load {metric}")).encode(
        x=alt.X("x:Q", scale=alt.Scale(zero=False, nice=False), axis=alt.Axis(title=found.load.name, tickCount=8)),
        y=alt.Y("y:Q", scale=alt.Scale(**scale), axis=alt.Axis(title=label, format="~s", **ticks)),
    )
    order = list(found.lines)
    title = None if found.varied is None else found.varied.short
    legend = None if found.varied is None else alt.Legend(title=title, orient="top")
    shades = alt.Scale(domain=order, range=[colour(_SHADES[k % len(_SHADES)]) for k in range(len(order))])
    dashes = alt.Scale(domain=order, range=[_DASHES[k % len(_DASHES)] for k in range(len(order))])
    tooltip = [
        alt.Tooltip("setting:N", title="setting"),
        alt.Tooltip("text:N", title=label),
        alt.Tooltip("outcome:N", title="verdict"),
    ]
    line = base.mark_line(strokeWidth=2).encode(
        stroke=alt.Stroke("line:N", scale=shades, legend=legend),
        strokeDash=alt.StrokeDash("line:N", scale=dashes, legend=legend),
    )
    dots = base.mark_point(aria=False, size=28, strokeWidth=0, opacity=1).encode(
        fill=alt.Fill("line:N", scale=shades, legend=legend), tooltip=tooltip
    )
    layers: list[Any] = [line, dots]
    for column, limit in sweep.question.limits:
        if column == metric and low <= limit <= high:
            layers += marked(limit, f"limit {limit:g}", [8, 4])
    if lost:
        layers += marked(lane, f"{NOT_REACHED} in the run", [8, 4])
    words = f"{label} over {found.load.name}" + (f", a line a value of {title}: {', '.join(order)}." if title else ".")
    return finished(alt.layer(*layers), f"load {metric}", records, 280, words)
