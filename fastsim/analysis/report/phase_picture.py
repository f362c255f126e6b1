"""A phase map as a page to read and as a picture."""

from textwrap import wrap

from fastsim.analysis.numbers import as_title
from fastsim.analysis.phase.map import PhaseMap
from fastsim.analysis.report import html
from fastsim.analysis.report.charts import Chart
from fastsim.analysis.report.document import document
from fastsim.analysis.report.html import Cell
from fastsim.analysis.report.phase_chart import line_charts, map_chart
from fastsim.analysis.report.picture import png_of, stacked


def phase_png(found: PhaseMap, answer: str) -> bytes:
    """A PNG: the answer above the map, or above the curves along one axis."""
    return png_of(stacked(_title(found), wrap(as_title(answer), 96), _charts(found), columns=1))


def phase_page(found: PhaseMap, answer: str) -> str:
    """One HTML file: the answer, the charts, and every cell in a table."""
    charts = html.Charts()
    caption = (
        "A dot is a cell whose seeds disagree; cells that were not run are of the class of the nearest that was."
        if found.y is not None
        else "A mark is a run, the line goes through the middle of the seeds; behind it what most seeds say."
    )
    figures = "".join(charts.figure(title, caption, spec) for title, spec in _charts(found))
    share = 100 * found.runs / found.full_runs
    extent = (
        f"{found.runs:,} runs, {share:.1f} % of the {found.full_runs:,} of the whole grid; {found.seeds} seeds a cell."
    )
    table = found.to_polars().filter("evaluated").drop("evaluated")
    rows = [
        [Cell(f"{value:.4g}" if isinstance(value, float) else str(value), value) for value in row]
        for row in table.rows()
    ]
    listed = html.table(table.columns, rows, "Every cell that was run", name="settings", sortable=True)
    parts = [
        ("answer", "Answer", html.paragraph(as_title(answer), "answer") + html.paragraph(extent, "note")),
        ("where", "Where service holds", figures),
        ("table", "Every cell that was run", listed),
    ]
    return document(_title(found), "fastsim phase", parts, charts)


def _title(found: PhaseMap) -> str:
    what = "Where service holds" if found.column == "verdict" else f"Where {found.classes[-1]}"
    return f"{what}, by {found.x.name}" + (f" and {found.y.name}" if found.y is not None else "")


def _charts(found: PhaseMap) -> list[tuple[str, Chart]]:
    if found.y is None:
        return line_charts(found)
    return [("verdict of most seeds" if found.column == "verdict" else found.classes[-1], map_chart(found))]
