"""What each axis changes, and how much is chance."""

import polars as pl

from fastsim.analysis.numbers import more_seeds, number
from fastsim.analysis.report import charts_axes, html
from fastsim.analysis.report.effects import MOST_AXES, AxisEffect, effect_metrics, effects
from fastsim.analysis.report.figures import setting_text
from fastsim.analysis.report.html import Cell
from fastsim.analysis.report.question import MEETS
from fastsim.analysis.report.rows import SweepReport
from fastsim.analysis.report.spread import MOST_SETTINGS, spread

_SMALL = 12
"""Values of an axis up to which two charts stand side by side."""


def changes(sweep: SweepReport, page: html.Charts) -> str:
    """What each axis changes."""
    metrics = effect_metrics(sweep)
    found, count = effects(sweep, metrics) if metrics else ([], 0)
    if not found:
        return html.paragraph("No axis has more than one value, so there is nothing to compare.")
    words = "Rows that agree in everything but one axis are pairs: the same requests, so what they share cancels. "
    if sweep.seeds > 1:
        words += (
            f"Bars are 95 % intervals over {sweep.seeds:,} seeds; a difference counts when its interval excludes 0."
        )
    else:
        words += f"With one seed there are no intervals; {more_seeds(10, 'gives some')}."
    parts = [html.paragraph(words, "note")]
    if count > MOST_AXES:
        parts.append(html.paragraph(f"The {MOST_AXES} axes that explain most are shown, of {count}.", "note"))
    small: list[str] = []
    large: list[str] = []
    for one in found:
        spec = charts_axes.effect(sweep, one, metrics)
        if spec is None or one.table is None:
            parts.append(f"<h3>{html.text(one.axis.name)}</h3>" + html.paragraph(f"Not compared: {one.reason}."))
            continue
        caption = " ".join(
            [f"Against {one.axis.short} = {one.table['baseline'][0]}, over all values of the other axes.", *one.notes]
        )
        more = html.folded("All differences", _effect_table(sweep, one, one.table))
        figure = page.figure(one.axis.name, caption, spec, more)
        (small if len(one.axis.labels) <= _SMALL else large).append(figure)
    return "\n".join([*parts, f"<div class=pair>{''.join(small)}</div>" if small else "", *large])


def _effect_table(sweep: SweepReport, one: AxisEffect, table: pl.DataFrame) -> str:
    rows = [
        [
            Cell(sweep.label(row["metric"]), word=True),
            Cell(row["level"], word=True),
            Cell(number(row["level_mean"])),
            Cell(number(row["baseline_mean"])),
            Cell(number(row["difference"])),
            Cell(
                "-"
                if row["difference_low"] is None
                else f"{number(row['difference_low'])} to {number(row['difference_high'])}"
            ),
            Cell("-" if row["relative"] is None else f"{100 * row['relative']:+.1f} %"),
            Cell(row["verdict"], word=True),
            Cell(f"{row['pairs']:,}" + (f" ({row['pairs_null']:,} with a null)" if row["pairs_null"] else "")),
        ]
        for row in table.to_dicts()
    ]
    header = ["metric", one.axis.short, "mean", "baseline's mean", "difference", "95 %", "relative", "verdict", "pairs"]
    return html.table(
        header, rows, f"Differences along {one.axis.name}; means and differences are of pairs without a null"
    )


def chance(sweep: SweepReport, page: html.Charts) -> str:
    """The distribution over seeds."""
    objective = next((name for name, _ in sweep.objectives if name in sweep.metrics and name != MEETS), None)
    found = spread(sweep, objective) if objective else None
    if found is None:
        return html.paragraph(f"There is one seed, so no spread over seeds; {more_seeds(10, 'gives one')}.")
    what = f"the best setting of each {', '.join(sweep.question.for_each)}" if found.by_load else "the best settings"
    caption = f"Of {what}; at most {MOST_SETTINGS}. A mark is one seed"
    caption += f" (the first {found.seeds_shown} of {sweep.seeds:,})." if found.seeds_shown < sweep.seeds else "."
    grouped = found.points.group_by("setting").agg(
        pl.col("value").min().alias("min"),
        pl.col("value").median().alias("median"),
        pl.col("value").max().alias("max"),
        pl.col("value").null_count().alias("none"),
    )
    by_setting = {row["setting"]: row for row in grouped.to_dicts()}
    rows = []
    for k, setting in enumerate(found.settings.to_dicts()):
        figures = by_setting[k]
        cells = [Cell(str(k + 1)), Cell(setting_text(sweep, setting), word=True)]
        cells += [Cell(number(figures[name])) for name in ("min", "median", "max")]
        rows.append([*cells, Cell(number(figures["none"]))])
    header = ["", "setting", "least", "median", "most", "seeds without a value"]
    title = f"{sweep.label(found.metric)} over seeds"
    more = html.table(header, rows, title)
    return page.figure(title, caption, charts_axes.spread(sweep, found), more)
