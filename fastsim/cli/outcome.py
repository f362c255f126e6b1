"""The end of a sweep: what failed, then the answer, or a summary where no question was asked."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from fastsim.analysis.answer import ROWS, SEED, Answer
from fastsim.analysis.compare.rows import level_text
from fastsim.analysis.numbers import column_label, short_key
from fastsim.cli.tables import counted, number, table, wrapped
from fastsim.sweeps.runner import SweepResult
from fastsim.sweeps.store.contents import read_contents

if TYPE_CHECKING:
    import polars as pl

MAX_ROWS = 30
BEST_ROWS = 5


def print_outcome(result: SweepResult, answer: Answer | None) -> None:
    """Print what a sweep found; failures go to stderr."""
    found = read_contents(result.folder)
    rows = found.scan()
    of = found.extent()
    typer.echo(answer_text(rows, answer, of) if answer is not None else summary_text(rows, of))
    computed = "" if result.computed == result.rows else f" ({result.computed:,} computed now)"
    typer.echo(f"\n{counted(result.rows, 'row')}{computed} in {result.folder}, {result.seconds:.1f} s")
    if result.failed:
        for text in result.tracebacks[:1]:
            typer.echo(text, err=True)
        example = [f"; for example config_id {index}: {error}" for index, error in result.errors.items()][:1]
        typer.echo(
            f"{counted(result.failed, 'configuration')} failed: rows with status error{''.join(example)}",
            err=True,
        )


def answer_text(rows: "pl.LazyFrame", answer: Answer, of: str = "") -> str:
    """The answer in a sentence, then the question, then the answer as a table.

    `of` says what part of the grid the rows are; empty when they are all.
    """
    summary = answer.summary(rows)
    title, best = answer_rows(answer, summary)
    said = sentence(answer, summary) if answer.settings else extent(answer, best)
    lines = [wrapped(said.replace("Answer: ", f"Answer, from {of}: ", 1) if of else said)] if said else []
    lines += [wrapped(line) for line in _basis(answer, summary, of)]
    if answer.question:
        lines.append(wrapped(f"Question: {answer.question}"))
    if title:
        lines += ["", wrapped(f"{title}:")]
    elif lines:
        lines.append("")
    shown = best.head(MAX_ROWS if answer.for_each else BEST_ROWS)
    lines.append(_frame_text(shown, keys=len(answer.for_each) + len(answer.settings)))
    if answer.for_each and best.height > MAX_ROWS:
        lines.append(f"... and {best.height - MAX_ROWS} more")
    return "\n".join(lines)


def _basis(answer: Answer, summary: "pl.DataFrame", of: str) -> list[str]:
    """What the answer rests on, where that is not every row of the grid."""
    if not of:
        return []
    rows, low, high = (int(value) for value in (summary[ROWS].sum(), summary[ROWS].min(), summary[ROWS].max()))  # type: ignore[arg-type]
    each = ", ".join([*answer.for_each, *answer.settings]) or "the answer"
    lines = [f"Rows used: {rows:,} of {rows:,}, {low:,}{'' if low == high else f' to {high:,}'} for each {each}."]
    if answer.settings:
        lines.append(
            "Warning: settings are compared though not all ran at the same loads and seeds; the whole grid may say "
            "otherwise."
        )
    return lines


def answer_rows(answer: Answer, summary: "pl.DataFrame") -> tuple[str, "pl.DataFrame"]:
    """The rows of the answer, axes first, and what they are: the best for each group, or the best first."""
    columns = [*answer.for_each, *answer.settings, *answer.columns]
    if not answer.for_each:
        return "The best", answer.ranked(summary).select(columns)
    title = f"Best for each {', '.join(answer.for_each)}" if answer.settings else ""
    return title, answer.per_group(summary).select(columns)


def sentence(answer: Answer, summary: "pl.DataFrame") -> str:
    """In one sentence: which setting meets the conditions most often, and how good it is there."""
    conditions = " and ".join(str(condition) for condition in answer.where)
    ranking = answer.overall(summary)
    if ranking.height == 0:
        return f"Answer: no setting meets {conditions}."
    first = ranking.row(0, named=True)
    setting = ", ".join(f"{name} = {number(first[name])}" for name in answer.settings)
    text = f"Answer: {setting}"
    if conditions:
        text += f" meets {conditions}"
    if conditions and answer.for_each:
        groups = summary.select(answer.for_each).n_unique()
        text += f" at {first['groups']} of {groups} values of {', '.join(answer.for_each)}"
        text += _range_met(answer, summary, first)
        text += ", more than any other setting" if _alone(ranking) else ", as many as any setting"
    figures = [f"{o} ({number(first[o.column])})" for o in answer.best if o.column in first]
    if figures:
        text += f"; of those, {', then '.join(figures)}" if conditions else f": {', then '.join(figures)}"
    return text + "."


def extent(answer: Answer, found: "pl.DataFrame") -> str:
    """Where there is nothing to choose: from where to where the first objective, or the first column, goes."""
    names = [name for name in answer.columns if found[name].dtype.is_numeric()]
    known = found.filter(found[names[0]].is_not_null()).sort(names[0]) if names else found.head(0)
    if known.is_empty():
        return ""
    ends = [
        " ".join(filter(None, [number(row[names[0]]), _setting(answer.for_each, row)]))
        for row in (known.row(0, named=True), known.row(-1, named=True))
    ]
    figures = ends[0] if known.height == 1 else f"from {ends[0]} to {ends[1]}"
    return f"Answer: {column_label(names[0])}: {figures}."


def _setting(axes: Sequence[str], row: dict[str, Any]) -> str:
    """`(max_num_seqs 32, watermark 0.05)`; nothing without axes."""
    text = ", ".join(f"{short_key(name)} {level_text(row[name])}" for name in axes)
    return f"({text})" if text else ""


def _alone(ranking: "pl.DataFrame") -> bool:
    """Whether the first setting meets the conditions in more groups than the second."""
    return ranking.height == 1 or ranking["groups"][0] > ranking["groups"][1]


def _range_met(answer: Answer, summary: "pl.DataFrame", setting: dict[str, Any]) -> str:
    """` (1 to 3.5)`: where a setting meets the conditions, when that is one number."""
    import polars as pl

    if len(answer.for_each) != 1 or not summary[answer.for_each[0]].dtype.is_numeric():
        return ""
    chosen = [pl.col(name).eq_missing(setting[name]) for name in answer.settings]
    met = summary.filter("meets", *chosen)[answer.for_each[0]].drop_nulls()
    return f" ({number(met.min())} to {number(met.max())})" if len(met) else ""


def summary_text(rows: "pl.LazyFrame", of: str = "") -> str:
    """Verdicts, and the rows with the most goodput; `of` as for `answer_text`."""
    import polars as pl

    counts = rows.group_by("verdict").agg(pl.len()).collect().sort("len", descending=True)
    verdicts = ", ".join(f"{verdict or 'error'} {count:,}" for verdict, count in counts.rows())
    names = rows.collect_schema().names()
    axes = [name for name in names if "." in name and name != SEED]
    shown = ["goodput_req_per_s", "output_throughput_tok_per_s", "ttft_p99_ms", "preemptions", "verdict"]
    best = (
        rows.select("config_id", *axes, *shown)
        .sort("goodput_req_per_s", "config_id", descending=[True, False], nulls_last=True)
        .head(BEST_ROWS)
        .collect()
    )
    among = f", of {of}" if of else ""
    lines = [wrapped(f"Verdicts{among}: {verdicts}"), "", wrapped(f"Most goodput{among}:")]
    lines.append(_frame_text(best, keys=1 + len(axes)))
    return "\n".join(lines)


def _short_names(names: list[str]) -> list[str]:
    """Dotted names by their last part, where that is clear."""
    last = [name.rpartition(".")[2] for name in names]
    return [short if last.count(short) == 1 else name for name, short in zip(names, last, strict=True)]


def _frame_text(frame: "pl.DataFrame", keys: int) -> str:
    """A frame as a table: texts to the left, numbers to the right; the first `keys` columns name a row."""
    import polars as pl

    texts = [k for k, dtype in enumerate(frame.dtypes) if dtype.base_type() in (pl.String, pl.Enum, pl.Categorical)]
    return table(_short_names(frame.columns), frame.rows(), left=texts, keys=keys)
