"""The charts of what an axis changes and of the spread over seeds."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import polars as pl

from fastsim.analysis.report.charts import Chart, data, finished, outcomes
from fastsim.analysis.report.effects import AxisEffect
from fastsim.analysis.report.figures import setting_text
from fastsim.analysis.report.rows import SweepReport
from fastsim.analysis.report.spread import Spread
from fastsim.analysis.report.theme import colour

_EFFECTS = {
    "better": ("triangle-up", "ok"),
    "worse": ("triangle-down", "livelock"),
    "more": ("triangle-up", "accent"),
    "less": ("triangle-down", "accent"),
    "no difference shown": ("circle", "muted"),
    "one seed": ("diamond", "muted"),
}


def effect(sweep: SweepReport, one: AxisEffect, metrics: Sequence[str], *, choose: bool = True) -> Chart | None:
    """The relative change of every level against the baseline with its interval; the reader chooses the metric."""
    if one.table is None:
        return None
    metrics = told_first(one, metrics)
    table = one.table.filter(one.table["metric"].is_in(metrics if choose else metrics[:1]))
    records = [
        {
            "level": row["level"],
            "metric": row["metric"],
            "known": row["relative"] is not None,
            "relative": _percent(row["relative"], 0.0),
            "low": _percent(row["relative_low"], row["relative"]),
            "high": _percent(row["relative_high"], row["relative"]),
            "verdict": row["verdict"],
            "text": _effect_text(row),
        }
        for row in table.to_dicts()
    ]
    levels = list(dict.fromkeys(record["level"] for record in records))
    base = alt.Chart(alt.NamedData(one.axis.name)).encode(
        y=alt.Y("level:N", sort=levels, axis=alt.Axis(title=None, grid=True))
    )
    if choose:
        select = alt.binding_select(options=metrics, labels=[sweep.label(m) for m in metrics], name="Metric: ")
        base = base.add_params(alt.param(name="metric", value=metrics[0], bind=select))
        base = base.transform_filter("datum.metric == metric")
    shown = [name for name in _EFFECTS if any(record["verdict"] == name for record in records)]
    shapes = alt.Scale(domain=shown, range=[_EFFECTS[name][0] for name in shown])
    fills = alt.Scale(domain=shown, range=[colour(_EFFECTS[name][1]) for name in shown])
    title = f"change against {table['baseline'][0]}, %"
    x = alt.X("relative:Q", scale=alt.Scale(nice=True), axis=alt.Axis(title=title, tickCount=5))
    tooltip = [alt.Tooltip("level:N", title=one.axis.name), alt.Tooltip("text:N", title="change"), "verdict:N"]
    interval = base.mark_rule(strokeWidth=2, color=colour("muted")).encode(x=x.copy(), x2="high:Q")
    interval = interval.encode(x=alt.X("low:Q", title=title))
    dots = base.mark_point(size=80, strokeWidth=0).encode(
        x=x,
        opacity=alt.when("datum.known").then(alt.value(1)).otherwise(alt.value(0)),
        tooltip=tooltip,
        shape=alt.Shape("verdict:N", scale=shapes, title=None),
        fill=alt.Fill("verdict:N", scale=fills, title=None),
    )
    zero = alt.Chart(data([{"x": 0}])).mark_rule(strokeDash=[4, 3]).encode(x="x:Q")
    blank = base.transform_filter("!datum.known").mark_text(align="left", dx=6, fontSize=11)
    blank = blank.encode(x=alt.datum(0, type="quantitative"), text="text:N")
    words = "; ".join(f"{r['level']}: {r['text']}, {r['verdict']}" for r in records if r["metric"] == metrics[0])
    description = f"Change of {sweep.label(metrics[0])} with {one.axis.name} against {table['baseline'][0]}: {words}"
    layers = alt.layer(zero, interval, dots, blank)
    return finished(layers, one.axis.name, records, max(24 * len(levels), 50), description[:1500])


def told_first(one: AxisEffect, metrics: Sequence[str]) -> list[str]:
    """The metrics, those with a change in percent before those that were 0 in the baseline."""
    told = set() if one.table is None else set(one.table.filter(pl.col("relative").is_not_null())["metric"])
    return sorted(metrics, key=lambda name: name not in told)


def _percent(share: float | None, instead: float | None) -> float:
    """In percent; where there is no share, what stands in for it: a bar of no length is not seen."""
    value = instead if share is None else share
    return 0.0 if value is None else float(f"{100 * value:.6g}")


def _effect_text(row: dict[str, Any]) -> str:
    if row["relative"] is None:
        if row["difference"] is None:
            return "no pair with a value"
        return f"{row['difference']:+.3g} (from 0: no %)"
    if row["relative_low"] is None:
        return f"{100 * row['relative']:+.1f} %"
    return f"{100 * row['relative']:+.1f} % ({100 * row['relative_low']:+.1f} to {100 * row['relative_high']:+.1f})"


def spread(sweep: SweepReport, found: Spread) -> Chart:
    """A mark a seed for each setting; seeds without a value stand in a lane of their own on the right."""
    texts = [setting_text(sweep, row) for row in found.settings.to_dicts()]
    values = found.points["value"].drop_nulls()
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)  # type: ignore[arg-type]
    lane = high + 0.06 * (high - low or abs(high) or 1.0)
    records = [
        {
            "setting": f"{point['setting'] + 1}",
            "value": lane if point["value"] is None else point["value"],
            "text": "no value" if point["value"] is None else f"{point['value']:.5g}",
            "outcome": point["outcome"],
            "name": texts[point["setting"]],
        }
        for point in found.points.to_dicts()
    ]
    order = [f"{k + 1}" for k in range(len(texts))]
    label = sweep.label(found.metric)
    base = alt.Chart(alt.NamedData("seeds")).encode(
        y=alt.Y("setting:N", sort=order, axis=alt.Axis(title="setting", grid=True)),
        x=alt.X("value:Q", scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(title=label, tickCount=6)),
    )
    tooltip = ["name:N", alt.Tooltip("text:N", title=label), alt.Tooltip("outcome:N", title="verdict")]
    styles = outcomes([record["outcome"] for record in records])
    points = base.mark_point(aria=False, size=55, strokeWidth=0.8, stroke=colour("paper"), opacity=0.8).encode(
        **styles, tooltip=tooltip
    )
    layers = [points]
    if found.points["value"].null_count():
        note = alt.Chart(data([{"x": lane, "text": "no value"}]))
        layers += [note.mark_rule(strokeDash=[2, 3]).encode(x="x:Q")]
        layers += [
            note.mark_text(align="right", dx=-4, dy=8, baseline="top").encode(x="x:Q", y=alt.value(0), text="text:N")
        ]
    words = f"{label} of {len(texts)} settings, a mark for each of {found.seeds_shown} seeds."
    return finished(alt.layer(*layers), "seeds", records, max(22 * len(texts), 60), words)
