"""What to set: the answer's setting as flags, and what it costs to be a step beside it."""

from typing import Any

import polars as pl

from fastsim.analysis.compare.rows import level_text
from fastsim.analysis.numbers import number
from fastsim.analysis.recommend.flags import serve_command, serve_flags
from fastsim.analysis.report import html
from fastsim.analysis.report.html import Cell
from fastsim.analysis.report.rows import SweepReport

NAME = "engine.name"


def choice(sweep: SweepReport) -> str:
    """The flags to paste and the neighbours of the chosen setting; empty where the answer chooses none."""
    chosen = sweep.question.chosen
    if not chosen:
        return ""
    return paste(sweep) + neighbours_table(sweep)


def paste(sweep: SweepReport) -> str:
    """The chosen setting as the command line of the engine's server; what has no flag is said."""
    chosen = dict(sweep.question.chosen or {})
    engine = str(chosen.pop(NAME, sweep.question.engine))
    flags, others = serve_flags(chosen, engine)
    parts = []
    if flags:
        command = " ".join([serve_command(engine), *flags])
        parts.append("<p>To paste:</p>" + f"<pre tabindex=0 class=paste>{html.text(command)}</pre>")
    if others:
        have = "has" if len(others) == 1 else "have"
        parts.append(html.paragraph(f"{', '.join(others)}: {have} no flag of that server.", "note"))
    return "".join(parts)


def neighbours(sweep: SweepReport) -> list[tuple[str, dict[str, Any] | None]]:
    """The chosen setting and those one step beside it on one axis: in words, and its row of the ranking.

    None: a neighbour that meets the conditions nowhere.
    """
    question = sweep.question
    chosen, ranking = question.chosen, question.ranking
    if not chosen or ranking is None:
        return []
    found: list[tuple[str, dict[str, Any] | None]] = [("the choice", ranking.row(0, named=True))]
    for axis in sweep.axes:
        if axis.name not in chosen or not axis.is_number:
            continue
        levels = axis.levels.to_list()
        place = levels.index(chosen[axis.name])
        for beside in (place - 1, place + 1):
            if not 0 <= beside < len(levels) or levels[beside] is None:
                continue
            wanted = {**chosen, axis.name: levels[beside]}
            row = ranking.filter([pl.col(name).eq_missing(value) for name, value in wanted.items()])
            words = f"{axis.short} {level_text(levels[beside])} instead of {level_text(chosen[axis.name])}"
            found.append((words, row.row(0, named=True) if row.height else None))
    return found


def neighbours_table(sweep: SweepReport) -> str:
    """What the neighbours give, where there are some."""
    found = neighbours(sweep)
    if len(found) < 2:
        return ""
    question = sweep.question
    objectives = [name for name, _ in question.objectives if name in found[0][1]]  # type: ignore[operator]
    conditions = bool(question.condition_text)
    rows = []
    for words, row in found:
        met = 0 if row is None else row["groups"]
        cells = [Cell(words, word=True)]
        if conditions:
            cells.append(Cell(f"{met} of {question.groups}" if question.groups > 1 else "yes" if met else "no"))
        cells += [Cell("-" if row is None else number(row[name])) for name in objectives]
        rows.append(cells)
    met_where = f"meets {question.condition_text}" + (f", of {question.groups}" if question.groups > 1 else "")
    header = ["setting", *([met_where] if conditions else []), *(sweep.label(name) for name in objectives)]
    where = " (means where the condition is met)" if conditions and objectives else ""
    return html.table(header, rows, f"What it costs to be a step beside it{where}")
