"""Summaries of measurements as a table: what was understood of each."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastsim.analysis.measured.result import MeasuredLoad


def results_text(results: "list[MeasuredLoad]") -> str:
    """One row a result, then what is not in them, and what their tools mean."""
    from fastsim.analysis.measured.beside import UNDERSTOOD, understood
    from fastsim.cli.tables import table, wrapped

    lines = ["Understood:", table(UNDERSTOOD, understood(results), left=3)]
    lines += [wrapped(f"note: {note}") for note in dict.fromkeys(note for result in results for note in result.notes)]
    missing = dict.fromkeys(what for result in results for what in result.missing.values())
    return "\n".join([*lines, *(wrapped(f"not said: {what}") for what in missing)])


def figures_text(results: "list[MeasuredLoad]") -> str:
    """What was measured, a column a result."""
    from fastsim.cli.tables import table

    names = list(dict.fromkeys(name for result in results for name in result.figures))
    rows = [[name, *(result.figures.get(name) for result in results)] for name in names]
    return table(["measured", *(result.source for result in results)], rows)
