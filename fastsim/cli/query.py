"""`fastsim query`: SQL over a sweep's rows."""

from typing import Annotated

import typer

from fastsim.cli import options


def command(
    folder: options.Folder,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A SELECT from the table `rows`.")],
    as_csv: Annotated[bool, typer.Option("--csv", help="Print every row of the result as CSV.")] = False,
) -> int:
    """Ask a sweep's rows in SQL (polars reads it): the table is `rows`, axes are quoted names.

    A percentile among requests that never got there is infinite here, so that no mean passes it over; null means that
    there is no value.

    fastsim query DIR 'SELECT "engine.max_num_seqs", avg(goodput_req_per_s) FROM rows GROUP BY ALL'
    """
    import polars as pl

    from fastsim.cli.tables import counted, table
    from fastsim.errors import InputError
    from fastsim.sweeps.store.contents import read_contents
    from fastsim.sweeps.store.scan import infinite_where_censored

    found = read_contents(folder)
    for note in found.notes():
        typer.echo(f"note: {note}", err=True)
    rows = infinite_where_censored(found.scan())
    try:
        result = pl.SQLContext(rows=rows).execute(sql).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        said = str(error).splitlines()[0]
        raise InputError(
            f"SQL {sql!r}: {said}, but a SELECT from `rows` was expected (axes in double quotes)"
        ) from None
    if as_csv:
        typer.echo(result.write_csv(), nl=False)
        return 0
    words = [k for k, kind in enumerate(result.dtypes) if not kind.is_numeric()]
    typer.echo(table(result.columns, result.head(MOST_ROWS).rows(), left=words))
    if result.height > MOST_ROWS:
        typer.echo(f"... {counted(result.height, 'row')}, of which {MOST_ROWS} are shown; --csv prints them all")
    return 0


MOST_ROWS = 50
