"""A Pareto front in words and a table."""

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from fastsim.analysis.compare.pareto import Aim

NEAR_SHARE = 0.05
"""A setting that is on the front in this share of the resamples might be on it with other seeds."""


def pareto_text(
    table: "pl.DataFrame", aims: Sequence["Aim"], for_each: list[str], loads: Sequence[str] = (), of: str = ""
) -> str:
    """The answer in a sentence, the front, and what might be on it too.

    `loads` are the axes of traffic that it mixes, `of` what part of its grid the rows are.
    """
    from fastsim.cli.compare_text import answer_from, rows_used
    from fastsim.cli.tables import wrapped

    axes = _shown_axes(table, aims, for_each)
    front = table.filter("on_front")
    near = table.filter(~table["on_front"] & (table["front_share"] >= NEAR_SHARE))
    parts = [wrapped(f"{answer_from(of)}: {_answer(table, front, near, aims, for_each)}"), ""]
    parts += [f"The front, from the {aims[0]} on:", _table(front, axes, aims)]
    if near.height:
        parts += ["", wrapped(f"Not on it, but in {100 * NEAR_SHARE:.0f} % or more of the resamples of the seeds:")]
        parts.append(_table(near, axes, aims))
    parts += ["", wrapped(_note(table)), *rows_used(table, "a setting counts when it has every seed, and values")]
    if loads:
        several = f"{', '.join(loads)} {'has' if len(loads) == 1 else 'have'} several values"
        split = " ".join(f"--for-each {name}" for name in loads)
        parts.append(wrapped(f"Loads are mixed: {several}; {split} gives a front for each."))
    return "\n".join(parts)


def _shown_axes(table: "pl.DataFrame", aims: Sequence["Aim"], for_each: list[str]) -> list[str]:
    """for_each, and the axes of the setting that have more than one value."""
    hidden = {*(aim.metric for aim in aims), "on_front", "front_share", "rows_used", "rows_present"}
    axes = [name for name in table.columns if name not in hidden]
    several = [name for name in axes if name in for_each or table[name].n_unique() > 1]
    return several or axes[-1:]


def _answer(
    table: "pl.DataFrame", front: "pl.DataFrame", near: "pl.DataFrame", aims: Sequence["Aim"], for_each: list[str]
) -> str:
    what = " and ".join(map(str, aims))
    settings, most = table.height, front.height
    if for_each:
        groups = table.select(for_each).n_unique()
        return f"{most} of {settings} settings are on the fronts of {what}, over {groups} values of {_names(for_each)}."
    a, b = (aim.metric for aim in aims)
    best_a, best_b = front.row(0, named=True), front.row(-1, named=True)
    if most == 1 and near.height:
        return (
            f"one of {settings} settings has the better means in both, {what}: {_number(best_a[a])} and "
            f"{_number(best_a[b])}; with other seeds {near.height} more might be on the front."
        )
    if most == 1:
        return f"one of {settings} settings is best in both, {what}: {_number(best_a[a])} and {_number(best_a[b])}."
    return (
        f"{most} of {settings} settings are on the front of {what}: from {_number(best_a[a])} at {_number(best_a[b])} "
        f"to {_number(best_b[a])} at {_number(best_b[b])}; no other is as good in both."
    )


def _names(names: list[str]) -> str:
    return ", ".join(names)


def _table(rows: "pl.DataFrame", axes: list[str], aims: Sequence["Aim"]) -> str:
    """Settings, metrics and share."""
    from fastsim.analysis.compare.rows import level_text
    from fastsim.cli.tables import table as as_text

    metrics = [aim.metric for aim in aims]
    header = [*(name.rpartition(".")[2] for name in axes), *metrics, "share"]
    body = [
        [*(level_text(row[name]) for name in axes), *(_number(row[m]) for m in metrics), _share(row)]
        for row in rows.iter_rows(named=True)
    ]
    return as_text(header, body, left=len(axes), keys=len(axes))


def _number(value: float) -> str:
    from fastsim.cli.tables import number

    return number(value) if isfinite(value) else "inf"


def _share(row: dict[str, Any]) -> str:
    return "-" if row["front_share"] is None else f"{100 * row['front_share']:.0f} %"


def _note(table: "pl.DataFrame") -> str:
    from fastsim.analysis.numbers import more_seeds

    if table["front_share"].null_count() == table.height:
        return f"One seed: how sure the front is cannot be said; {more_seeds(30, 'would say it')}."
    return (
        "Means over seeds (inf: a percentile among requests that never got there). The share says in how many of 500 "
        "resamples of the seeds a setting is on the front: near 100 % it is sure, below it depends on the seeds."
    )
