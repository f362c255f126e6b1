"""Options and arguments that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer


def integer(text: str | int) -> int:
    """An integer, or an error that names what was given."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text}, but an integer was expected") from None


Spec = Annotated[Path, typer.Argument(metavar="SPEC.toml", help="The spec: settings, and a [sweep] table.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a key, as engine.max_num_seqs=64.", show_default=False),
]
Axes = Annotated[
    list[str] | None,
    typer.Option("--axis", metavar="KEY=V1,V2,...", help="Sweep a key over these values.", show_default=False),
]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A sweep's folder.")]
