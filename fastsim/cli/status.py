"""`fastsim status`: how far a sweep is."""

from pathlib import Path

import typer

from fastsim.cli import options


def command(folder: options.Folder) -> int:
    """Say how far a sweep's folder is: rows, parts, failures, and whether somebody works on it."""
    from fastsim.cli.tables import counted, wrapped
    from fastsim.errors import InputError
    from fastsim.store import read_manifest
    from fastsim.store.folder import known_parts, part_path

    manifest = read_manifest(folder)
    if manifest is None:
        raise InputError(f"{folder}: no readable manifest.json, but a sweep's folder was expected")
    there = {
        index: record
        for index, record in known_parts(folder).items()
        if part_path(folder, index).is_file() and part_path(folder, index).stat().st_size == record.bytes
    }
    rows = sum(record.rows for record in there.values())
    owner = lock_owner(folder)
    state = f"running ({owner})" if owner else "complete" if rows == manifest.rows else "incomplete"
    typer.echo(f"{state}: {rows:,} of {counted(manifest.rows, 'row')} ({rows / max(manifest.rows, 1):.1%})")
    size = sum(record.bytes for record in there.values())
    typer.echo(f"parts: {len(there):,}, {size / 1e6:,.2f} MB; selection: {manifest.selection}")
    axes = ", ".join(f"{name} ({count:,})" for name, count in manifest.axes.items())
    typer.echo(wrapped(f"axes: {axes or 'none'}"))
    counts = [record.errors for record in there.values()]
    failed = int(manifest.totals.get("errors", 0)) if None in counts else sum(count or 0 for count in counts)
    if failed:
        reasons = sorted(pair for record in there.values() for pair in record.first_errors)
        reasons = reasons or [(error["config_id"], error["error"]) for error in manifest.errors]
        typer.echo(f"{counted(failed, 'configuration')} failed{'; for example:' if reasons else ''}")
        for index, reason in reasons[:3]:
            typer.echo(f"  config_id {index}: {reason}")
    if state == "incomplete":
        typer.echo("the same `fastsim sweep` command goes on from here")
    return 0


def lock_owner(folder: Path) -> str | None:
    """Who holds a folder's lock, if anybody does."""
    import fcntl

    try:
        with (folder / ".lock").open("rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return (folder / ".lock").read_text(errors="replace").strip() or "of unknown process"
    return None
