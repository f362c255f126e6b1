"""`fastsim compact`: few files instead of many."""

import typer

from fastsim.cli import options


def command(folder: options.Folder) -> int:
    """Merge the part files of a complete sweep into files of 1 to 64 MB (one, when there is less than that).

    The rows, their order and what can be done with the folder stay the same. Killed at any moment, nothing is lost.
    """
    from fastsim.cli.tables import counted
    from fastsim.sweeps.store.compact import compact

    done = compact(folder)
    rows, files = counted(done.rows, "row"), counted(done.files, "file")
    if done.files == done.files_before:
        typer.echo(f"{folder} is compact: {rows} in {files}, {done.bytes / 1e6:,.2f} MB")
    else:
        sizes = f"{done.bytes_before / 1e6:,.2f} MB became {done.bytes / 1e6:,.2f} MB"
        typer.echo(f"{rows}: {counted(done.files_before, 'file')} became {files}, {sizes}")
    return 0
