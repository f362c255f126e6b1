"""A phase map of one axis as text: where the cliff is, and the figures on either side of it."""

import polars as pl

from fastsim.analysis.compare.metrics import null_is_infinite
from fastsim.analysis.numbers import number
from fastsim.analysis.phase.map import FIGURES, PhaseMap, over_seeds
from fastsim.cli.phase_text import spans, value_text

MOST_ROWS = 24
"""Of the table: more cells are thinned out away from the cliffs."""


def line_answer(found: PhaseMap) -> str:
    """Which class holds from where to where along the axis, and where seeds disagree."""
    said = []
    for code, first, last, _ in spans(found, 0):
        name = found.classes[code]
        low, high = (value_text(found.x.values[place]) for place in (first, last))
        what = "service holds" if name == "ok" else name
        said.append(f"{what} at {low}" if first == last else f"{what} from {low} to {high}")
    text = f"over {found.x.name}, " + ", ".join(said)
    if found.seeds > 1:
        doubtful = [value_text(value) for value, no in zip(found.x.values, found.disagrees[0], strict=True) if no]
        text += "; " + (f"seeds disagree at {_listed(doubtful)}" if doubtful else "all seeds say the same")
    return text + "."


def _listed(values: list[str]) -> str:
    return ", ".join(values) if len(values) <= 6 else f"{len(values)} values from {values[0]} to {values[-1]}"


def line_table(found: PhaseMap) -> str:
    """The cells that were run: class, how many seeds agree, and what the runs gave."""
    from fastsim.cli.tables import table

    names = [name for name in found.figures.columns if name not in ("x_place", "y_place", "class")]
    shown = [name for name in names if name not in FIGURES] + [name for name in FIGURES if name in names]
    by_place = found.figures.partition_by("x_place", as_dict=True)
    rows = []
    for place in _picked(found):
        runs = by_place[(place,)]
        agree = round(float(found.agreement[0, place]) * found.seeds)
        figures = [_figure(runs[name], name) for name in shown if runs[name].dtype.is_numeric()]
        rows.append(
            [
                value_text(found.x.values[place]),
                found.classes[found.labels[0, place]],
                f"{agree} of {found.seeds}",
                *figures,
            ]
        )
    numeric = [name for name in shown if found.figures[name].dtype.is_numeric()]
    return table([found.x.name.rpartition(".")[2], "class", "seeds", *numeric], rows, left=2)


def _picked(found: PhaseMap) -> list[int]:
    """Places that were run, at most MOST_ROWS: the ends and those beside a change first."""
    labels = found.labels[0]
    run = [int(place) for place in found.evaluated[0].nonzero()[0]]
    if len(run) <= MOST_ROWS:
        return run
    changes = (labels[:-1] != labels[1:]).nonzero()[0]
    nearest = sorted(run, key=lambda place: min((abs(2 * place - 2 * k - 1) for k in changes), default=place))
    return sorted({run[0], run[-1], *nearest[: MOST_ROWS - 2]})


def _figure(values: pl.Series, name: str) -> str:
    """Over the seeds: a percentile's median, the mean of others; a percentile that was not reached is infinite."""
    middle = over_seeds(values, name)
    if middle is not None:
        return number(middle)
    return "not reached" if null_is_infinite(name) else "-"
