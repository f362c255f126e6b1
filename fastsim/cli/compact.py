"""`fastsim compact`: few files instead of many."""

import typer

from fastsim.cli import options


def command(folder: options.Folder) -> int:
    """Merge the part files of a complete sweep into files of 1 to 64 MB (one, when there is less than that).

    The rows, their order and what can be done with the folder stay the same. Killed at any moment, nothing is lost.
    """
    from fastsim.store.compact import compact

    done = compact(folder)
    if done.files == done.files_before:
        typer.echo(f"{folder} is compact: {done.rows:,} rows in {_files(done.files)}, {done.bytes / 1e6:,.2f} MB")
    else:
        sizes = f"{done.bytes_before / 1e6:,.2f} MB became {done.bytes / 1e6:,.2f} MB"
        typer.echo(f"{done.rows:,} rows: {_files(done.files_before)} became {_files(done.files)}, {sizes}")
    return 0


def _files(count: int) -> str:
    return f"{count:,} file" if count == 1 else f"{count:,} files"
