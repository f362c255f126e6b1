"""`python -m sweeps.answers [NAME ...]`: run the sweeps, or read finished ones, and answer their questions.

Without names all of them are answered, and sweeps/README.md and sweeps/pages are written.
"""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from fastsim.errors import FastsimError, InputError
from sweeps.answers import QUESTIONS
from sweeps.answers.common import FOLDER, Section, Setup
from sweeps.answers.text import section_text, write_pages

README = FOLDER / "README.md"


def answer(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME ...]", help="Which sweeps.", show_default="all")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Rows are kept here, a folder a sweep.")] = Path(
        "answers"
    ),
    workers: Annotated[int | None, typer.Option("--workers", metavar="N", show_default="one a core")] = None,
    tiny: Annotated[
        bool, typer.Option("--tiny", help="A few seeds and settings of each: to see that it runs.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw away the rows that are there.")] = False,
    readme: Annotated[Path | None, typer.Option("--readme", metavar="FILE", show_default="sweeps/README.md")] = None,
) -> None:
    """Answer the questions of the sweeps in this folder, with paired differences and 95 % intervals."""
    chosen = names or list(QUESTIONS)
    for name in chosen:
        if name not in QUESTIONS:
            raise InputError(f"{name} is not a sweep with an answer; known are {', '.join(QUESTIONS)}")
    setup = Setup(out, workers, tiny, fresh)
    sections: list[Section] = []
    for name in chosen:
        started = time.perf_counter()
        sections.append(QUESTIONS[name](setup))
        typer.echo(f"{name}: {time.perf_counter() - started:.1f} s", err=True)
    if names:
        typer.echo("\n\n".join(section_text(section) for section in sections))
    if readme is not None or not (names or tiny):
        write_pages(sections, readme or README)


def main() -> None:
    """Bad input is one sentence on stderr and exit code 2, as with `fastsim`."""
    try:
        typer.run(answer)
    except FastsimError as error:
        typer.echo(error, err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
