"""`[answer]`: the question a sweep is to answer, and its answer from the rows.

    [answer]
    question = "Which max_num_seqs keeps TTFT within 2 s and wastes the least?"
    where = ["ttft_p99_ms <= 2000"]          # each must hold; null never does
    best = ["least recomputed_share", "most output_throughput_tok_per_s"]   # ties go to the next
    for_each = ["workload.rate_scale"]       # one answer for each value
    show = ["preemptions"]                   # more columns

A *setting* is a combination of all axes but `for_each` and seeds. A setting meets the conditions where every seed
does; everything else is the mean over seeds.
"""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from fastsim.errors import InputError
from fastsim.metrics import by_name

if TYPE_CHECKING:
    import polars as pl

KEYS = ("question", "where", "best", "for_each", "show")
SEED = "workload.seed"
ROWS = "n|rows"
"""The column of a summary that counts its rows."""
_CONDITION = re.compile(r"\s*([\w.]+(?:\[\w+\])?)\s*(<=|>=|==|!=|<|>)\s*(\S.*?)\s*")
_BEST = re.compile(r"\s*(least|most)\s+(\S+)\s*")


@dataclass(frozen=True)
class Condition:
    """`column operator value`."""

    column: str
    operator: str
    value: float | str | bool

    def __str__(self) -> str:
        return f"{self.column} {self.operator} {self.value}"

    def expression(self) -> "pl.Expr":
        """Whether it holds; a null does not meet any condition."""
        import operator

        import polars as pl

        name = {"<=": "le", ">=": "ge", "==": "eq", "!=": "ne", "<": "lt", ">": "gt"}[self.operator]
        column = pl.col(self.column)
        if isinstance(self.value, str):
            column = column.cast(pl.String)
        holds: pl.Expr = getattr(operator, name)(column, pl.lit(self.value))
        return holds.fill_null(value=False)


@dataclass(frozen=True)
class Objective:
    """`least column` or `most column`."""

    column: str
    most: bool

    def __str__(self) -> str:
        return f"{'most' if self.most else 'least'} {self.column}"


@dataclass(frozen=True)
class Answer:
    """A validated `[answer]`; `axes` are those of the grid."""

    question: str
    where: tuple[Condition, ...]
    best: tuple[Objective, ...]
    for_each: tuple[str, ...]
    show: tuple[str, ...]
    axes: tuple[str, ...]

    @property
    def settings(self) -> list[str]:
        """The axes that the answer chooses values for."""
        return [name for name in self.axes if name not in (*self.for_each, SEED)]

    @property
    def columns(self) -> list[str]:
        """The metrics that answer tables show."""
        wanted = [*(o.column for o in self.best), *(c.column for c in self.where), *self.show]
        return [name for name in dict.fromkeys(wanted) if name not in self.axes]

    def summary(self, rows: "pl.LazyFrame") -> "pl.DataFrame":
        """One row a setting and value of `for_each`: means over seeds, and whether all seeds `meets` the conditions."""
        import polars as pl

        keys = [*self.for_each, *self.settings]
        meets = pl.all_horizontal(pl.lit(True), *(condition.expression() for condition in self.where))
        numbers = [pl.col(name).mean() for name in self.columns if by_name()[name].kind != "code"]
        words = [pl.col(name).mode().sort().first() for name in self.columns if by_name()[name].kind == "code"]
        grouped = rows.with_columns(meets.alias("meets"), pl.lit(0).alias("all")).group_by([*keys, "all"])
        return (
            grouped.agg(pl.col("meets").all(), pl.len().alias(ROWS), *numbers, *words).drop("all").collect().sort(keys)
        )

    def ranked(self, summary: "pl.DataFrame") -> "pl.DataFrame":
        """The rows that meet the conditions, the best first."""
        import polars as pl

        order = [pl.col(o.column) for o in self.best]
        descending = [o.most for o in self.best] + [False] * len(self.settings)
        found = summary.filter("meets")
        if not order and not self.settings:
            return found
        return found.sort([*order, *self.settings], descending=descending, nulls_last=True, maintain_order=True)

    def per_group(self, summary: "pl.DataFrame") -> "pl.DataFrame":
        """The best setting for each value of `for_each`; nulls where none meets the conditions."""
        best = self.ranked(summary).unique(self.for_each or None, keep="first", maintain_order=True)
        if not self.for_each:
            return best.head(1)
        groups = summary.select(self.for_each).unique(maintain_order=True)
        return groups.join(best, on=list(self.for_each), how="left", maintain_order="left")

    def overall(self, summary: "pl.DataFrame") -> "pl.DataFrame":
        """Settings by in how many groups they meet the conditions, then by the mean of the objectives there."""
        import polars as pl

        if not self.settings:
            return summary.head(0)
        means = [pl.col(o.column).mean() for o in self.best if by_name()[o.column].kind != "code"]
        table = summary.filter("meets").group_by(self.settings).agg(pl.len().alias("groups"), *means)
        return table.sort(
            ["groups", *(o.column for o in self.best), *self.settings],
            descending=[True, *(o.most for o in self.best), *([False] * len(self.settings))],
            nulls_last=True,
        )


def answer_from(
    table: Any, source: str, axes: Sequence[str], metrics: Sequence[str], pinned: Container[str] = ()
) -> Answer:
    """Validate an `[answer]` table.

    Parameters
    ----------
    table, source
        What the spec says, and its name.
    axes
        Of the grid.
    metrics
        Names of the result columns of its rows.
    pinned
        Keys that were axes before a setting gave them one value: they are left out.

    Raises
    ------
    InputError
        One sentence naming source, key, value and what was expected.
    """
    if not isinstance(table, Mapping):
        raise InputError(f"{source}: answer = {table!r}, but a table was expected")
    for name in table:
        if name not in KEYS:
            raise InputError(f"{source}: answer.{name} is not a key; known are {', '.join(KEYS)}")
    question = table.get("question", "")
    if not isinstance(question, str):
        raise InputError(f"{source}: answer.question = {question!r}, but text was expected")
    for_each = [name for name in _texts(table, "for_each", source) if name not in pinned]
    for name in for_each:
        _known(name, "for_each", source, axes, "an axis of this spec")
    show = _texts(table, "show", source)
    for name in show:
        _known(name, "show", source, metrics, "a result column")
    where = [_condition(text, source, [*metrics, *axes]) for text in _texts(table, "where", source)]
    best = [_objective(text, source, metrics) for text in _texts(table, "best", source)]
    return Answer(question, tuple(where), tuple(best), tuple(for_each), tuple(show), tuple(axes))


def _texts(table: Mapping[str, Any], key: str, source: str) -> list[str]:
    value = table.get(key, [])
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InputError(f"{source}: answer.{key} = {value!r}, but a list of texts was expected")
    return value


def _known(name: str, key: str, source: str, known: Sequence[str], what: str) -> None:
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"{source}: answer.{key}: {name} is not {what}{hint}")


def _condition(text: str, source: str, known: Sequence[str]) -> Condition:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise InputError(
            f"{source}: answer.where = {text!r}, but a column, one of <= >= < > == != and a value was expected, "
            'as in "ttft_p99_ms <= 2000"'
        )
    name, operator, raw = match.groups()
    _known(name, "where", source, known, "a result column or an axis")
    return Condition(name, operator, _value(raw))


def _value(raw: str) -> float | str | bool:
    if raw in ("true", "false"):
        return raw == "true"
    try:
        return float(raw) if any(letter in raw for letter in ".eE") else int(raw)
    except ValueError:
        return raw.strip("'\"")


def _objective(text: str, source: str, known: Sequence[str]) -> Objective:
    match = _BEST.fullmatch(text)
    if match is None:
        raise InputError(f'{source}: answer.best = {text!r}, but "least COLUMN" or "most COLUMN" was expected')
    _known(match[2], "best", source, known, "a result column")
    return Objective(match[2], match[1] == "most")
