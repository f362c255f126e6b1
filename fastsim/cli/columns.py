"""`fastsim columns`: what every result column means."""

from typing import Annotated

import typer


def command(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only columns whose name contains this.")] = None,
) -> int:
    """List the result columns: name, unit, meaning, and vLLM's Prometheus metric where it is one."""
    from fastsim.cli.tables import wrapped
    from fastsim.errors import InputError
    from fastsim.metrics import COLUMNS, by_name
    from fastsim.metrics.columns import CLASS_COLUMNS

    found = [column for column in COLUMNS if name is None or name in column.name]
    if name is not None and name in by_name():
        found = [by_name()[name]]
    if not found:
        raise InputError(f"no result column contains {name!r}")
    for column in found:
        what = column.description or column.name.replace("_", " ")
        if column.labels:
            what = f"{what}: {', '.join(column.labels)}"
        unit = f" [{column.unit}]" if column.unit else ""
        metric = f" ({column.prometheus})" if column.prometheus else ""
        typer.echo(wrapped(f"{column.name}{unit}: {what}{metric}", indent=4))
    if any(column in CLASS_COLUMNS for column in found):
        own = ", ".join(column.name for column in found if column in CLASS_COLUMNS)
        typer.echo(wrapped(f"\nWith workload.classes each class has its own, as NAME[CLASS]: {own}"))
    return 0
