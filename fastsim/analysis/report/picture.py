"""The picture: the answer, the map and the main charts as one PNG, drawn on paper's colours."""

from dataclasses import replace
from textwrap import wrap
from typing import Any

import polars as pl

from fastsim.analysis.numbers import as_title
from fastsim.analysis.report import charts, charts_axes
from fastsim.analysis.report.effects import effect_metrics, effects
from fastsim.analysis.report.html import all_visible
from fastsim.analysis.report.load_curves import CURVES, curve, load_curves
from fastsim.analysis.report.phase import phase_map
from fastsim.analysis.report.rows import SweepReport
from fastsim.analysis.report.theme import LIGHT, config, in_light
from fastsim.analysis.report.tradeoff import trade_offs

WIDTH = 520
"""Of a chart, in points; two stand side by side."""
SCALE = 2.0
_WIDE = 150
MOST_LEVELS = 24
_TITLE = {"fontSize": 22, "subtitleFontSize": 14, "anchor": "start", "offset": 18, "subtitlePadding": 8}
_APART = {"scale": {"color": "independent", "fill": "independent", "shape": "independent"}}


def picture(sweep: SweepReport) -> bytes:
    """A PNG of a report, twice as many pixels as points."""
    return png_of(picture_spec(sweep))


def png_of(spec: dict[str, Any]) -> bytes:
    """A chart as PNG."""
    import vl_convert

    return bytes(vl_convert.vegalite_to_png(all_visible(spec), scale=SCALE))


def picture_spec(sweep: SweepReport) -> dict[str, Any]:
    """The picture as a Vega-Lite chart: two columns under a title that is the answer."""
    question = sweep.question
    seeds = "one seed" if sweep.seeds == 1 else f"{sweep.seeds:,} seeds"
    verdicts = ", ".join(f"{name} {count:,}" for name, count in sweep.outcomes.items())
    lines = [
        *wrap(question.answer, _WIDE),
        f"{sweep.settings.height:,} settings, {seeds}; verdicts: {verdicts}",
    ]
    return stacked(question.text or f"Sweep {sweep.folder.resolve().name}", lines, _charts(sweep))


def stacked(title: str, lines: list[str], titled: list[tuple[str, charts.Chart]], columns: int = 2) -> dict[str, Any]:
    """Charts with their titles in columns, under a title and what is said below it."""
    found = [_titled(*pair) for pair in titled]
    datasets = {name: values for one in found for name, values in one.pop("datasets", {}).items()}
    rows = [
        {"hconcat": found[k : k + columns], "resolve": _APART, "spacing": 40} for k in range(0, len(found), columns)
    ]
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "title": {"text": wrap(title, 55 * columns), "subtitle": lines, **_TITLE},
        "vconcat": rows,
        "datasets": datasets,
        "padding": 24,
        "spacing": 30,
        "resolve": _APART,
        "config": config() | {"background": LIGHT["paper"], "font": "Liberation Sans, Arial, sans-serif"},
    }
    return dict(in_light(spec))


def _charts(sweep: SweepReport) -> list[tuple[str, charts.Chart]]:
    found: list[tuple[str, charts.Chart]] = []
    objective = next((name for name, _ in sweep.objectives if name in sweep.metrics), None)
    metrics = (objective,) if objective is not None else ()
    phase = phase_map(sweep, metrics) if metrics else None
    if phase is not None:
        if set(sweep.outcomes) != {"ok"}:
            found.append(("verdict of most rows", charts.verdict_map(phase)))
        found += [(sweep.label(metric), charts.metric_map(sweep, phase, metric)) for metric in metrics]
    lines = load_curves(sweep)
    if lines is not None:
        drawn = [(name, curve(sweep, lines, name)) for name in CURVES if name in sweep.metrics]
        found += [(f"{sweep.label(name)} over {lines.load.short}", spec) for name, spec in drawn if spec is not None]
    for trade in trade_offs(sweep)[:2]:
        title = f"{sweep.label(trade.y)} against {sweep.label(trade.x)}"
        found.append((title, charts.trade_off(sweep, trade, choose=False)))
    compared = effect_metrics(sweep)
    for one in effects(sweep, compared)[0][:2] if compared else []:
        first = charts_axes.told_first(one, compared)[0]
        title = f"{one.axis.name}: {sweep.label(first)}"
        if one.table is not None and len(one.axis.labels) > MOST_LEVELS:
            title += f", the best {MOST_LEVELS}"
            one = replace(one, table=_best_levels(sweep, one.table, first))
        spec = charts_axes.effect(sweep, one, compared, choose=False)
        if spec is not None:
            found.append((title, spec))
    return found


def _best_levels(sweep: SweepReport, table: pl.DataFrame, metric: str) -> pl.DataFrame:
    """The rows of the levels with the best mean, in their own order."""
    rows = table.filter(pl.col("metric") == metric)
    best = rows.sort("level_mean", descending=sweep.more_is_better(metric), nulls_last=True).head(MOST_LEVELS)
    return rows.filter(pl.col("level").is_in(best["level"].to_list()))


def _titled(title: str, spec: charts.Chart) -> dict[str, Any]:
    kept = {key: value for key, value in spec.items() if key not in ("$schema", "autosize")}
    return kept | {"title": {"text": as_title(title), "anchor": "start"}, "width": WIDTH}
