"""`fastsim report`: a sweep's folder as a page to read and a picture."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastsim.cli import options

if TYPE_CHECKING:
    import polars as pl

    from fastsim.analysis.report.question import Question
    from fastsim.analysis.report.rows import SweepReport


def price(text: str | float) -> float:
    """A price above 0, or an error that names what was given."""
    from math import isfinite

    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (isfinite(value) and value > 0):
        raise typer.BadParameter(f"{text}, but a number above 0 was expected")
    return value


def command(
    folder: options.Folder,
    page: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Where the page is written.", show_default="DIR/report.html, without --png"
        ),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Write a picture too.", show_default=False)
    ] = None,
    gpu_hour_price: Annotated[
        float | None,
        typer.Option(
            "--gpu-hour-price",
            metavar="X",
            parser=price,
            help="What the GPUs of one server cost an hour: adds the cost of a million output tokens.",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Write a report of a sweep: one HTML file that needs no network, and a picture.

    The answer first, the map of where service holds, trade-offs, what each axis changes, the spread over seeds, every
    setting in a table with a search, and where the rows come from. The page can be read on a phone, in the dark, on
    paper, by keyboard and without seeing colours.
    """
    from fastsim.errors import need

    need("fastsim report", "altair", "vl_convert")
    from fastsim.analysis.report.figures import answered
    from fastsim.analysis.report.page import page as page_of
    from fastsim.analysis.report.page import provenance
    from fastsim.analysis.report.picture import picture as picture_of
    from fastsim.analysis.report.rows import read_sweep
    from fastsim.sweeps.store.contents import read_contents

    found = read_contents(folder)
    source = provenance(found)
    rows = found.scan()
    for note in found.notes():
        typer.echo(f"note: {note}", err=True)
    sweep = named(answered(read_sweep(folder, question_of(folder, rows), gpu_hour_price, rows)), found.extent())
    written = []
    if page is not None or picture is None:
        path = folder / "report.html" if page is None else page
        written.append(write_file(path, page_of(sweep, source, gpu_hour_price).encode(), "--html"))
    if picture is not None:
        written.append(write_file(picture, picture_of(sweep), "--png"))
    if sweep.question.answer:
        from fastsim.cli.tables import wrapped

        typer.echo(wrapped(sweep.question.answer))
    for line in written:
        typer.echo(line)
    return 0


def named(sweep: "SweepReport", of: str) -> "SweepReport":
    """The sweep, its answer with what part of its grid the rows are, if they are not all."""
    from dataclasses import replace

    said = sweep.question.answer.removeprefix("Answer: ")
    if not (of and said):
        return sweep
    return replace(sweep, question=replace(sweep.question, answer=f"Answer, from {of}: {said}"))


def write_file(path: Path, data: bytes, option: str) -> str:
    """Write a file that an option names, and say how large it is."""
    from fastsim.errors import InputError

    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"{option} {path}: cannot be written ({error.strerror})") from None
    return f"{path}: {len(data) / 1000:,.0f} kB"


def question_of(folder: Path, rows: "pl.LazyFrame | None" = None) -> "Question":
    """What the spec in a sweep's folder asks, and the answer from its rows (given, if they are known)."""
    from fastsim.analysis.answer import answer_from
    from fastsim.analysis.report.question import Question
    from fastsim.cli.outcome import answer_rows, extent, sentence
    from fastsim.config import load_spec
    from fastsim.engines.declaration import DEFAULT_ENGINE
    from fastsim.metrics import by_name
    from fastsim.sweeps.store.scan import scan

    rows = scan(folder) if rows is None else rows
    names = rows.collect_schema().names()
    axes = [name for name in names if "." in name]
    path = folder / "spec.toml"
    spec = load_spec(path) if path.is_file() else None
    asked = None if spec is None else spec.answer
    if spec is None or asked is None:
        return Question()
    answer = answer_from(asked, str(path), axes, [name for name in names if name in by_name()])
    summary = answer.summary(rows)
    title, table = answer_rows(answer, summary)
    said = sentence(answer, summary) if answer.settings else extent(answer, table)
    ranking = answer.overall(summary)
    condition = None
    if answer.where:
        import polars as pl

        condition = pl.all_horizontal(c.expression() for c in answer.where)
    return Question(
        text=answer.question,
        answer=said,
        title=title or "Each combination of the axes",
        table=table,
        objectives=tuple((o.column, o.most) for o in answer.best if by_name()[o.column].kind != "code"),
        condition=condition,
        condition_text=" and ".join(map(str, answer.where)),
        for_each=answer.for_each,
        columns=tuple(answer.columns),
        limits=tuple((c.column, float(c.value)) for c in answer.where if isinstance(c.value, int | float)),
        chosen={name: ranking[name][0] for name in answer.settings} if ranking.height else None,
        ranking=ranking,
        groups=summary.select(answer.for_each).n_unique() if answer.for_each else 1,
        engine=spec.settings.get("engine.name", DEFAULT_ENGINE),
    )
