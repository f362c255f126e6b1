"""Differences along an axis as text: the answer in a sentence, then a table for each metric."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl


def answer_from(of: str) -> str:
    """`Answer`, and what part of its grid the rows are, if they are not all."""
    return f"Answer, from {of}" if of else "Answer"


def rows_used(table: "pl.DataFrame", counts_when: str) -> list[str]:
    """How many of the rows an answer rests on; a warning when that is few."""
    from fastsim.cli.tables import wrapped

    used, present = table["rows_used"][0], table["rows_present"][0]
    line = f"Rows used: {used:,} of {present:,}"
    if used == present:
        return [f"{line}."]
    lines = [wrapped(f"{line} ({counts_when}).")]
    if used < FEW * present:
        few = f"Warning: only {max(100 * used / present, 0.1):.2g} % of the rows are used"
        lines.append(wrapped(f"{few}, so the answer rests on few and need not hold for the rest."))
    return lines


def compare_text(table: "pl.DataFrame", by: str, for_each: list[str], of: str = "") -> str:
    """The answer in a sentence, then a table for each metric; `of` says what part of its grid the rows are."""
    from fastsim.cli.tables import table as as_text
    from fastsim.cli.tables import wrapped

    parts = [_answer(table, by, for_each, of)]
    for metric in table["metric"].unique(maintain_order=True):
        rows = table.filter(metric=metric)
        header = [*(name.rpartition(".")[2] for name in for_each), by.rpartition(".")[2], "mean", "difference"]
        header += ["95 % from", "to", "relative", "verdict"]
        base = rows.row(0, named=True)
        parts.append(wrapped(f"{metric}, against {base['baseline']} ({_baseline(rows)}):"))
        body = [_cells(row, for_each) for row in rows.iter_rows(named=True)]
        parts.append(as_text(header, body, left=len(for_each) + 1, keys=len(for_each) + 1))
        parts.append("")
    return "\n".join([*parts[:1], "", *parts[1:-1]]) + _notes(table)


_NONE = "no difference shown"
_SHORT = {_NONE: "none shown"}
FEW = 0.5
"""Of the rows that are there: an answer from fewer warns."""


def _cells(row: dict[str, Any], for_each: list[str]) -> list[Any]:
    names = ("level_mean", "difference", "difference_low", "difference_high")
    levels = [*(_text(row[name]) for name in for_each), row["level"]]
    verdict = _SHORT.get(row["verdict"], row["verdict"])
    return [*levels, *(row[name] for name in names), percent(row["relative"]), verdict]


def _text(value: Any) -> str:
    from fastsim.analysis.compare.paired import level_text

    return level_text(value)


def cut(text: str, width: int) -> str:
    """The text, or as much of it as fits, with an ellipsis."""
    return text if len(text) <= width else text[: width - 1] + "…"


def _baseline(rows: "pl.DataFrame") -> str:
    from fastsim.cli.tables import number

    means = rows["baseline_mean"].drop_nulls()
    if means.is_empty():
        return "no value"
    low, high = float(means.min()), float(means.max())  # type: ignore[arg-type]
    return f"mean {number(low)}" if number(low) == number(high) else f"mean {number(low)} to {number(high)}"


def percent(share: float | None) -> str:
    """A relative change: `+5.1 %`."""
    if share is None:
        return "-"
    return f"{100 * share:+.1f} %" if abs(share) < 10 else f"{100 * share:+,.0f} %"


def _answer(table: "pl.DataFrame", by: str, for_each: list[str], of: str) -> str:
    """What the first metric says; by group where there are any."""
    from fastsim.cli.tables import wrapped

    metric = table["metric"][0]
    rows = table.filter(metric=metric)
    groups = rows.select(for_each).n_unique() if for_each else 1
    baseline = rows["baseline"][0]
    if groups > 1:
        counted = [
            f"{level} is better at {_count(mine, 'better')} and worse at {_count(mine, 'worse')}"
            for level in rows["level"].unique(maintain_order=True)
            for mine in [rows.filter(level=level)]
        ]
        shown = "; ".join(counted[:4]) + (f"; and {len(counted) - 4} more" if len(counted) > 4 else "")
        where = ", ".join(for_each)
        return wrapped(
            f"{answer_from(of)}: {metric} against {by} = {baseline}, of {groups} values of {where}: {shown}."
        )
    return wrapped(f"{answer_from(of)}: {_one_group(rows, metric, by, baseline)}")


def _count(rows: "pl.DataFrame", verdict: str) -> int:
    return rows.filter(verdict=verdict).height


def _one_group(rows: "pl.DataFrame", metric: str, by: str, baseline: str) -> str:
    from fastsim.analysis.compare.metrics import better
    from fastsim.analysis.numbers import more_seeds
    from fastsim.cli.tables import number

    judged = rows.filter(verdict="better") if better(metric) else rows.filter(rows["verdict"].is_in(["more", "less"]))
    if judged.is_empty():
        worse = rows.filter(verdict="worse")["level"].to_list()
        unclear = rows.filter(verdict="no difference shown")["level"].to_list()
        if not worse and not unclear:
            if rows["difference"].is_null().all():
                return f"no pair of rows has {metric} on both sides."
            return f"one seed gives no interval for {metric}; {more_seeds(30, 'gives one')}"
        text = f"no value of {by} is shown to be better than {baseline} in {metric}"
        if worse:
            text += f"; worse: {_listed(worse)}"
        return text + (f"; no difference shown: {_listed(unclear)}." if unclear else ".")
    key = "difference" if judged["difference"].null_count() < judged.height else "wins"
    best = judged.sort(key, descending=better(metric) >= 0, nulls_last=True).row(0, named=True)
    figures = (
        f"{number(best['difference'])} against {baseline} "
        f"(95 % {number(best['difference_low'])} to {number(best['difference_high'])}, "
        f"{percent(best['relative'])}; {best['seeds']} seeds)"
    )
    most, more = ("best", "better") if better(metric) else ("most", "more")
    if not (rivals := _rivals(rows, best)):
        return f"{by} = {best['level']} has the {most} {metric}: {figures}."
    return (
        f"of the values of {by} that are shown to have {more} {metric} than {baseline}, {best['level']} has the "
        f"{most}: {figures}; but {_listed(rivals)} may have {more} still, which these rows do not show."
    )


def _rivals(rows: "pl.DataFrame", best: dict[str, Any]) -> list[str]:
    """Values that are not shown to differ, but would by more than the best one; or of which nothing is known."""
    from fastsim.analysis.compare.metrics import better

    sign = 1 if better(rows["metric"][0]) >= 0 else -1
    found = []
    for row in rows.filter(rows["verdict"].is_in([_NONE, "one seed", "no pair"])).iter_rows(named=True):
        by_wins = row["pairs_null"] or best["pairs_null"]  # some infinite: those are judged by who has more how often
        names = ("difference", "wins") if by_wins else ("difference",)
        if row["verdict"] == "no pair" or any(_is_more(row, best, name, sign) for name in names):
            found.append(row["level"])
    return found


def _is_more(row: dict[str, Any], best: dict[str, Any], name: str, sign: int) -> bool:
    return row[name] is not None and best[name] is not None and sign * row[name] > sign * best[name]


def _listed(levels: list[str], most: int = 6) -> str:
    return ", ".join(levels[:most]) + (f" and {len(levels) - most} more" if len(levels) > most else "")


def _few_seeds(table: "pl.DataFrame", seeds: int) -> str:
    """What so few seeds cannot tell: which metrics fall in two groups, at which values of the axis."""
    from fastsim.analysis.compare.bootstrap import few_seeds_note

    grouped = table.filter("two_groups")
    names = [
        f"{metric} ({_listed(grouped.filter(metric=metric)['level'].unique(maintain_order=True).to_list(), 3)})"
        for metric in grouped["metric"].unique(maintain_order=True)
    ]
    return few_seeds_note(seeds, _listed(names, 3))


def _notes(table: "pl.DataFrame") -> str:
    """How much it rests on, and what null does."""
    from fastsim.cli.tables import wrapped

    rows = table.to_dicts()
    seeds, pairs = (max(row[name] for row in rows) for name in ("seeds", "pairs"))
    fewest = min(row["pairs"] for row in rows)
    several = f"{pairs:,} pair{'s' * (pairs != 1)}" if fewest == pairs else f"{fewest:,} to {pairs:,} pairs"
    text = f"\n\nOver {seeds} seed{'s' * (seeds != 1)}, {several} of each value"
    text += "; 95 % intervals by bootstrap over seeds." if seeds > 1 else "."
    used = rows_used(table, "a row counts when another one agrees with it in everything but the axis")
    text += "".join(f"\n{line}" for line in used)
    text += "".join("\n" + wrapped(f"note: {note}", indent=6) for note in [_few_seeds(table, int(seeds))] if note)
    nulls = table.filter(table["pairs_null"] > 0)
    if nulls.height:
        names = ", ".join(nulls["metric"].unique(maintain_order=True))
        note = (
            f"{names}: null (a percentile among requests that never got there, so infinite) in some pairs; means and "
            "differences are of the other pairs, the verdict is of how often each is larger."
        )
        text += "\n" + wrapped(note)
    return text
