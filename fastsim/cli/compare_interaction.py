"""Whether one axis's effect depends on another, in words and tables."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

_SHORT = {"no dependence shown": "none shown"}
_MANY = 20


def interaction_text(table: "pl.DataFrame", by: str, other: str, for_each: list[str], of: str = "") -> str:
    """The answer in a sentence, then a table for each metric and value of `for_each`.

    `of` says what part of its grid the rows are.
    """
    from fastsim.analysis.compare.rows import level_text
    from fastsim.cli.compare_text import answer_from
    from fastsim.cli.tables import wrapped

    parts = [wrapped(f"{answer_from(of)}: {_answer(table, by, other, for_each)}"), ""]
    groups = table.partition_by([*for_each, "metric"], maintain_order=True)
    metrics = table["metric"].unique(maintain_order=True).to_list()
    for rows in sorted(groups, key=lambda group: metrics.index(group["metric"][0])):
        base = rows.row(0, named=True)
        where = "".join(f", {name} = {level_text(base[name])}" for name in for_each)
        parts.append(
            wrapped(
                f"{base['metric']}{where}: effect of {by} against {base['baseline']}, less that effect at {other} = "
                f"{base['with_baseline']} (its base):"
            )
        )
        parts += [_table(rows, by.rpartition(".")[2], other.rpartition(".")[2]), ""]
    return "\n".join([*parts, _notes(table)])


def _table(rows: "pl.DataFrame", first: str, second: str) -> str:
    from fastsim.cli.tables import table as as_text

    header = [first, second, "effect", "at base", "less", "95 % from", "to", "verdict"]
    body = [
        [row["level"], row["with_level"], *_numbers(row), _SHORT.get(row["verdict"], row["verdict"])]
        for row in rows.iter_rows(named=True)
    ]
    return as_text(header, body, left=2, keys=2)


def _numbers(row: dict[str, Any]) -> list[Any]:
    return [
        row[name] for name in ("effect", "effect_at_baseline", "interaction", "interaction_low", "interaction_high")
    ]


def _answer(table: "pl.DataFrame", by: str, other: str, for_each: list[str]) -> str:
    """What the first metric says: its clearest combination."""
    from fastsim.analysis.compare.rows import level_text
    from fastsim.analysis.numbers import more_seeds
    from fastsim.cli.tables import number

    metric = table["metric"][0]
    rows = table.filter(metric=metric)
    if (rows["verdict"] == "one seed").all():
        return f"one seed gives no interval for {metric}; {more_seeds(30, 'gives one')}."
    shown = rows.filter(rows["verdict"].is_in(["depends", "reverses"]))
    if shown.is_empty():
        return (
            f"no dependence of the effect of {by} on {other} is shown in {metric} ({rows.height} "
            f"combination{'s' * (rows.height != 1)}, {max(int(value) for value in rows['seeds'])} seeds)."
        )
    best = max(shown.iter_rows(named=True), key=lambda row: abs(row["interaction"] or 0.0))
    low, high = number(best["interaction_low"]), number(best["interaction_high"])
    reverses = shown.filter(verdict="reverses").height
    where = "".join(f" at {name} = {level_text(best[name])}," for name in for_each)
    if rows.height == 1:
        begin = f"the effect of {by} on {metric} depends on {other}" + (", and reverses:" if reverses else ":")
    else:
        begin = (
            f"the effect of {by} on {metric} depends on {other} in {shown.height} of {rows.height} combinations"
            + (f", and reverses in {reverses}" if reverses else "")
            + ("; most, of those shown, where" if _larger_unshown(rows, best) else "; most where")
        )
    return (
        f"{begin}{where} {by} = {best['level']}, against {best['baseline']}, is worth "
        f"{number(best['effect'])} at {other} = {best['with_level']} but "
        f"{number(best['effect_at_baseline'])} at {best['with_baseline']} (difference "
        f"{number(best['interaction'])}, 95 % {low} to {high}; {best['seeds']} seeds)."
    )


def _larger_unshown(rows: "pl.DataFrame", best: dict[str, Any]) -> bool:
    """Whether a dependence that is not shown is larger than the largest that is."""
    sizes = rows.filter(~rows["verdict"].is_in(["depends", "reverses"]))["interaction"].abs()
    return bool((sizes > abs(best["interaction"] or 0.0)).any())


def _notes(table: "pl.DataFrame") -> str:
    """How much it rests on, and what null does."""
    from fastsim.cli.compare_text import rows_used
    from fastsim.cli.tables import wrapped

    seeds, pairs = (max(int(value) for value in table[name]) for name in ("seeds", "pairs"))
    lines = [
        wrapped(
            f"Over {seeds} seed{'s' * (seeds != 1)}, {pairs:,} quadruple{'s' * (pairs != 1)} of rows a combination"
            + ("; 95 % intervals over seeds." if seeds > 1 else ".")
        )
    ]
    lines += rows_used(table, "a row counts when the other three of its quadruple are there")
    if table.height > _MANY:
        lines.append(wrapped(f"{table.height} comparisons: without any dependence, 5 % of them would still be called."))
    nulls = table.filter(table["pairs_null"] > 0)["metric"].unique(maintain_order=True)
    if len(nulls):
        note = (
            f"{', '.join(nulls)}: null (infinite, where requests never got there) in some rows; effects are of the "
            "others, the verdict is of how often each is larger."
        )
        lines.append(wrapped(note))
    return "\n".join(lines)
