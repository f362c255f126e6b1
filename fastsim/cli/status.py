"""`fastsim status`: how far a sweep is."""

import typer

from fastsim.cli import options


def command(folder: options.Folder) -> int:
    """Say how far a sweep's folder is: rows, parts, failures, and whether somebody works on it.

    Every file is compared with its checksum. The exit code is 1 when one was changed or is gone.
    """
    from fastsim.cli.tables import counted, wrapped
    from fastsim.errors import InputError
    from fastsim.sweeps.store.contents import read_contents

    found = read_contents(folder)
    manifest = found.manifest
    if manifest is None:
        raise InputError(f"{folder}: no readable manifest.json, but a sweep's folder was expected")
    state = f"running ({found.owner})" if found.owner else "complete" if found.is_complete else "incomplete"
    typer.echo(f"{state}: {found.rows:,} of {counted(manifest.rows, 'row')} ({found.rows / max(manifest.rows, 1):.1%})")
    size = sum(record.bytes for record in found.intact)
    typer.echo(f"parts: {len(found.intact):,}, {size / 1e6:,.2f} MB; selection: {found.extent() or 'all'}")
    axes = ", ".join(f"{name} ({count:,})" for name, count in manifest.axes.items())
    typer.echo(wrapped(f"axes: {axes or 'none'}"))
    counts = [record.errors for record in found.intact]
    failed = int(manifest.totals.get("errors", 0)) if None in counts else sum(count or 0 for count in counts)
    if failed:
        reasons = sorted(pair for record in found.intact for pair in record.first_errors)
        reasons = reasons or [(error["config_id"], error["error"]) for error in manifest.errors]
        typer.echo(f"{counted(failed, 'configuration')} failed{'; for example:' if reasons else ''}")
        for index, reason in reasons[:3]:
            typer.echo(f"  config_id {index}: {reason}")
    for note in [*filter(None, [found.damage()]), *found.notes()]:
        typer.echo(f"note: {note}", err=True)
    if state == "incomplete":
        typer.echo("the same `fastsim sweep` command goes on from here")
    return 1 if found.damaged or found.missing else 0
