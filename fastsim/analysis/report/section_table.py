"""Every setting in a table with a search: the best, when there are too many for a page."""

from typing import Any

from fastsim.analysis.compare.paired import level_text
from fastsim.analysis.cost import COST
from fastsim.analysis.numbers import number, short_key
from fastsim.analysis.report import html
from fastsim.analysis.report.figures import outcome_text, value_text
from fastsim.analysis.report.html import Cell
from fastsim.analysis.report.question import MEETS
from fastsim.analysis.report.rows import OUTCOMES, SweepReport

MOST_SHOWN = 1000
_ON_PAPER = 30


def every_setting(sweep: SweepReport) -> str:
    """The table of settings with its search."""
    axes = [axis.name for axis in sweep.axes if len(axis.labels) > 1]
    objectives = [name for name, _ in sweep.objectives]
    usual = ["output_throughput_tok_per_s", "ttft_p99_ms", "tpot_served_mean_ms", "preemptions", "recomputed_share"]
    wanted = [MEETS, COST, *objectives, *sweep.question.columns, *usual]
    metrics = [name for name in dict.fromkeys(wanted) if name in sweep.metrics]
    shown = sweep.ranked.head(MOST_SHOWN)
    numeric = {axis.name: axis.is_number for axis in sweep.axes}
    rows = [
        [
            *(
                Cell(level_text(row[name]), row[name] if numeric[name] else None, word=not numeric[name])
                for name in axes
            ),
            Cell(outcome_text(row, OUTCOMES), word=True),
            *(Cell(value_text(row, name), "" if row[name] is None else row[name]) for name in metrics),
            Cell(number(row["config_id"]), row["config_id"]),
        ]
        for row in shown.to_dicts()
    ]
    header = [
        *map(short_key, axes),
        "verdict",
        *(sweep.label(name) for name in metrics),
        "config_id",
    ]
    order = ", then ".join(f"{'most' if most else 'least'} {sweep.label(name)}" for name, most in sweep.objectives)
    first = "those that meet the conditions in most seeds first, then " if MEETS in sweep.metrics else ""
    counted = (
        f"all {len(rows):,}" if len(rows) == sweep.settings.height else f"{len(rows):,} of {sweep.settings.height:,}"
    )
    caption = f"Settings ({counted}), the best first: {first}{order}"
    words = (
        "Figures are means over seeds. A percentile that one seed did not reach is marked, and counts as the worst. "
    )
    words += "config_id is that of the first seed: fastsim run DIR --config-id N runs it again."
    search = (
        "<p class=search><label for=search>Search the table</label> <input type=search id=search autocomplete=off "
        f"aria-describedby=count> <span id=count role=status>{len(rows):,} of {len(rows):,} rows shown</span></p>"
    )
    printed = f'<p class="only-print note">On paper: the first {min(_ON_PAPER, len(rows))} rows.</p>'
    table = html.table(header, rows, caption, name="settings", sortable=True, long=True)
    return html.paragraph(words, "note") + search + printed + table


def _level(value: Any, is_number: bool) -> Cell:
    return Cell(level_text(value), value if is_number else None, word=not is_number)
