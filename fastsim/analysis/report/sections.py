"""The sections of the page: each takes the sweep and gives HTML, leaving its charts with the `Charts` of the page."""

from typing import Any

import polars as pl

from fastsim.analysis.compare.paired import level_text
from fastsim.analysis.numbers import column_label, number, short_key
from fastsim.analysis.report import charts, html
from fastsim.analysis.report.choice import choice
from fastsim.analysis.report.figures import missing, points_with_lane, setting_text
from fastsim.analysis.report.html import Cell
from fastsim.analysis.report.load_curves import CURVES, curve, load_curves
from fastsim.analysis.report.phase import PhaseGrid, phase_map
from fastsim.analysis.report.rows import ERROR, OUTCOMES, SweepReport
from fastsim.analysis.report.theme import BAR, HEXAGON, SHAPES, STAR
from fastsim.analysis.report.tradeoff import MOST_POINTS, TradeOff, trade_offs

MOST_ANSWERS, MOST_FIGURES = 60, 60
_GLYPHS = {
    "circle": '<circle cx="8" cy="8" r="7"/>',
    "square": '<rect x="1" y="1" width="14" height="14"/>',
    "triangle-up": '<path d="M8 1 15 15H1z"/>',
    "diamond": '<path d="M8 0 16 8 8 16 0 8z"/>',
    "cross": '<path d="M5 0h6v5h5v6h-5v5H5v-5H0V5h5z"/>',
    "triangle-down": '<path d="M8 15 15 1H1z"/>',
    **{path: f'<path transform="translate(8 8) scale(7.5)" d="{path}"/>' for path in (HEXAGON, BAR, STAR)},
    "triangle-left": '<path d="M1 8 15 1v14z"/>',
    "triangle-right": '<path d="M15 8 1 15V1z"/>',
}


def answer(sweep: SweepReport) -> str:
    """The answer, what there is to it in numbers, and the rows it rests on."""
    question = sweep.question
    facts = [
        ("settings", f"{sweep.settings.height:,}"),
        ("seeds", f"{sweep.seeds:,}"),
        ("rows", f"{sweep.height:,}"),
        *((axis.short, f"{len(axis.labels):,} values") for axis in sweep.axes[:8] if len(axis.labels) > 1),
    ]
    parts = [html.paragraph(question.answer, "answer"), choice(sweep), _verdicts(sweep)]
    parts.append(html.definitions(facts, "facts"))
    if question.table is not None and question.table.height:
        parts.append(_answer_table(question.table, question.title))
    if sweep.question.answer and sweep.seeds == 1:
        words = "One seed: how much of a difference is chance is not known. A second (sweep.seeds = 2) shows how far "
        words += "other requests move these figures, ten give 95 % intervals; a trace is the same for every seed."
        parts.append(html.paragraph(words, "note"))
    return "\n".join(parts)


def _verdicts(sweep: SweepReport) -> str:
    items = "".join(
        f'<li><svg viewBox="0 0 16 16" aria-hidden=true fill="var(--{name})">{_GLYPHS[SHAPES[name]]}</svg>'
        f"{name}: {count:,} ({100 * count / sweep.height:.1f} %)</li>"
        for name, count in sweep.outcomes.items()
    )
    beyond = ""
    if "misses_slo" in sweep.outcomes and sweep.question.limits:
        beyond = html.paragraph(f"misses_slo: service holds, but not {sweep.question.condition_text}.", "note")
    return f"<p>Verdicts of the {sweep.height:,} rows:</p><ul class=verdicts>{items}</ul>{beyond}"


def _answer_table(frame: pl.DataFrame, title: str) -> str:
    shown = frame.head(MOST_ANSWERS)
    header = [short_key(name) if "." in name else column_label(name) for name in shown.columns]
    words = [not dtype.is_numeric() for dtype in shown.dtypes]
    rows = [
        [
            Cell(level_text(value) if "." in name and value is not None else number(value), word=word)
            for name, value, word in zip(shown.columns, row, words, strict=True)
        ]
        for row in shown.rows()
    ]
    rest = f" (the first {MOST_ANSWERS} of {frame.height:,})" if frame.height > MOST_ANSWERS else ""
    return html.table(header, rows, title + rest)


def where(sweep: SweepReport, page: html.Charts) -> str:
    """The phase map: verdicts (the conditions in them) and the objective."""
    objective = next((name for name, _ in sweep.objectives if name in sweep.metrics), None)
    metrics = (objective,) if objective is not None else ()
    found = phase_map(sweep, metrics) if metrics else None
    if found is None:
        return html.paragraph("No axis has more than one value, so there is nothing to map.")
    notes = [found.x.note, found.y.note if found.y else ""]
    if found.pooled:
        notes.append(f"Each cell holds every value of {', '.join(found.pooled)}.")
    parts = [html.paragraph(" ".join(filter(None, notes)), "note")]
    if set(sweep.outcomes) == {"ok"}:
        parts[0] += html.paragraph("The verdict of every row is ok, so there is no map of verdicts.")
    else:
        caption = "The verdict of most rows of a cell, paler and with its share where others have another. "
        caption += "Of two as frequent the worse is shown."
        more = html.folded("The figures of this map", _verdict_table(found))
        parts.append(page.figure("Verdict", caption, charts.verdict_map(found), more))
    for metric in metrics:
        caption = "The mean of the settings of a cell."
        if found.cells[f"{metric}|none"].sum():
            caption += f" * or ×: some or all settings of the cell have no mean ({missing(metric)})."
        more = html.folded("The figures of this map", _metric_table(sweep, found, metric))
        parts.append(page.figure(sweep.label(metric), caption, charts.metric_map(sweep, found, metric), more))
    return "\n".join([parts[0], f"<div class=pair>{''.join(parts[1:])}</div>"])


def _place_cells(phase: PhaseGrid, cell: dict[str, Any]) -> list[Cell]:
    return [Cell(cell["x"], word=True), *([Cell(cell["y"], word=True)] if phase.y else [])]


def _place_header(phase: PhaseGrid) -> list[str]:
    return [phase.x.axis.name, *([phase.y.axis.name] if phase.y else [])]


def _verdict_table(phase: PhaseGrid) -> str:
    present = [name for name in OUTCOMES if phase.cells[f"n|{name}"].sum()]
    rows = [
        [*_place_cells(phase, cell), *(Cell(number(cell[f"n|{name}"])) for name in present)] for cell in phase.records()
    ]
    return html.table([*_place_header(phase), *present], rows, "Rows of each cell by verdict")


def _metric_table(sweep: SweepReport, phase: PhaseGrid, metric: str) -> str:
    rows = [
        [
            *_place_cells(phase, cell),
            Cell(missing(metric) if cell[metric] is None else number(cell[metric])),
            Cell(f"{100 * cell[f'{metric}|none']:.0f} %"),
            Cell(number(cell["settings"])),
        ]
        for cell in phase.records()
    ]
    header = [*_place_header(phase), sweep.label(metric), f"settings {missing(metric)}", "settings"]
    return html.table(header, rows, f"{sweep.label(metric)} of each cell")


def over_load(sweep: SweepReport, page: html.Charts) -> str:
    """Curves over the load, a line a setting; empty where the sweep has no load axis of numbers."""
    found = load_curves(sweep)
    if found is None:
        return ""
    figures = []
    for metric in CURVES:
        spec = curve(sweep, found, metric) if metric in sweep.metrics else None
        if spec is not None:
            caption = f"All at {found.fixed}." if found.fixed else ""
            figures.append(page.figure(f"{sweep.label(metric)} over {found.load.short}", caption, spec))
    return f"<div class=pair>{''.join(figures)}</div>"


def trade(sweep: SweepReport, page: html.Charts) -> str:
    """The trade-offs."""
    found = trade_offs(sweep)
    if not found:
        return html.paragraph("No row has the figures that trade-offs are drawn from.")
    words = "A mark is a setting"
    words += f", the mean of its {sweep.seeds:,} seeds." if sweep.seeds > 1 else "."
    words += (
        f" Dashed lines join those that no other {'of the same load ' if found[0].loads else ''}beats in both figures."
    )
    if found[0].loads:
        words += f" A load is a value of {', '.join(found[0].load_axes)}."
    if found[0].thinned:
        words += f" At most {MOST_POINTS:,} of the {found[0].settings:,} settings are drawn in a chart: "
        words += "the best, then evenly."
    figures = [_trade(sweep, one, page) for one in found]
    return html.paragraph(words, "note") + f"<div class=pair>{''.join(figures)}</div>"


def _trade(sweep: SweepReport, found: TradeOff, page: html.Charts) -> str:
    y, x = sweep.label(found.y), sweep.label(found.x)
    caption = f"Better is {'right' if sweep.more_is_better(found.x) else 'left'} and "
    caption += "up." if sweep.more_is_better(found.y) else "down."
    if found.y != found.y_wanted:
        caption += f" {sweep.label(found.y_wanted)} was not reached in any setting: "
        caption += "shown is the figure of the requests served."
    elif found.points["y"].null_count():
        caption += (
            f" In the lane at the top: the {found.lost:,} of {found.settings:,} settings with a seed that did not "
        )
        caption += f"reach {y}."
    if points_with_lane(sweep, found)[2]:
        caption += " The scale is logarithmic."
    more = html.folded("The settings on the dashed lines", _front_table(sweep, found))
    return page.figure(f"{y} against {x}", caption, charts.trade_off(sweep, found), more)


def _front_table(sweep: SweepReport, found: TradeOff) -> str:
    front = found.points.filter("front").sort("load", "x")
    rows = [
        [
            *([Cell(found.loads[row["load"]], word=True)] if found.loads else []),
            Cell(setting_text(sweep, row), word=True),
            Cell(number(row["x"])),
            Cell(missing(found.y) if row["y"] is None else number(row["y"])),
            Cell(row["outcome"], word=True),
        ]
        for row in front.head(MOST_FIGURES).to_dicts()
    ]
    header = [*(["load"] if found.loads else []), "setting", sweep.label(found.x), sweep.label(found.y), "verdict"]
    rest = f" (the first {MOST_FIGURES} of {front.height:,})" if front.height > MOST_FIGURES else ""
    return html.table(header, rows, f"Settings that no other beats in both{rest}")


def failures(sweep: SweepReport, messages: list[dict[str, Any]]) -> str:
    """A box that says what failed; empty when nothing did."""
    count = sweep.outcomes.get(ERROR, 0)
    if not count:
        return ""
    first = f" The first: config_id {messages[0]['config_id']}: {messages[0]['error']}" if messages else ""
    return html.paragraph(
        f"{count:,} rows have failed, or no server starts with their settings; they have no figures.{first}", "warning"
    )
