"""`fastsim verify`: this package against recorded golden cases, or against the vLLM that is installed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer


def command(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Golden cases, or folders of them.")],
    engine: Annotated[str | None, typer.Option("--engine", metavar="NAME", help="Only cases of this engine.")] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="PACKAGE",
            help="Instead of what was recorded, what the scheduler of the installed vLLM does on the cases' requests; "
            "only cases of the installed release. Needs no GPU.",
        ),
    ] = None,
) -> int:
    """Replay golden cases and compare everything that must match.

    Prints one line a failing case (its first difference) and last `N/M identical`; exits 0 only if all are.
    """
    from fastsim.errors import InputError
    from fastsim.fleet.golden import NOT_REPLAYED, VERIFIERS

    known = (*engine_names(), *VERIFIERS, *NOT_REPLAYED)
    if engine is not None and engine not in known:
        raise InputError(f"--engine {engine}, but one of {', '.join(known)} was expected")
    verify_live = live_verifier(against)
    total = identical = others = 0
    for path in case_files(paths):
        case = read_case(path)
        if engine is not None and case["engine"] != engine:
            continue
        verify = verify_live.get(case["engine"]) if against else verifier(case["engine"], path)
        if verify is None:
            others += 1
            continue
        total += 1
        difference = verify(case)
        if difference is None:
            identical += 1
        else:
            typer.echo(f"{case['engine']}/{case['name']}: {difference}")
    if others:
        which = f"{', '.join(NOT_REPLAYED)}: not simulated"
        if against:
            which = f"engines other than {', '.join(verify_live)}"
        typer.echo(f"not compared: {others} cases of {which}", err=True)
    if total == 0 and others and not against:
        raise InputError(f"{', '.join(map(str, paths))}: only cases of fleets that are not simulated")
    if total == 0 and others:
        raise InputError(f"--against {against}: no cases, but some of {', '.join(verify_live)} were expected")
    if total == 0:
        raise InputError(f"{', '.join(map(str, paths))}: no golden cases, but *.json.gz files were expected")
    typer.echo(f"{identical}/{total} identical")
    return 0 if identical == total else 1


def live_verifier(against: str | None) -> dict[str, Callable[[dict[str, Any]], str | None]]:
    """Functions that compare with an installed engine, by the engines whose cases they take; {} without `--against`."""
    from fastsim.errors import InputError

    if against is None:
        return {}
    from fastsim.engines import engines
    from fastsim.engines.contract import runtime_of

    live = {engine.live: engine.folder for engine in engines() if engine.live}
    if against not in live:
        raise InputError(f"--against {against}, but {' or '.join(live)} was expected")
    runtime = runtime_of(live[against])
    return dict.fromkeys(runtime.installed(), runtime.verify_live)


def engine_names() -> tuple[str, ...]:
    """Every engine that has recorded cases."""
    from fastsim.engines import engines

    return tuple(name for engine in engines() for name in engine.names)


def case_files(paths: list[Path]) -> Iterator[Path]:
    """The case files among and below some paths, in order."""
    from fastsim.errors import InputError

    for path in paths:
        if path.is_dir():
            yield from sorted(path.rglob("*.json.gz"))
        elif path.is_file():
            yield path
        else:
            raise InputError(f"{path}: does not exist, but a golden case or a folder of them was expected")


def read_case(path: Path) -> dict[str, Any]:
    """A case as JSON gives it."""
    import gzip
    import json

    from fastsim.errors import InputError

    try:
        with gzip.open(path) as file:
            case = json.load(file)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as gzip JSON ({error}), but a golden case was expected") from None
    if not isinstance(case, dict) or case.get("format") != "fastsim-golden/1":
        shown = case.get("format") if isinstance(case, dict) else type(case).__name__
        raise InputError(f"{path}: format = {shown!r}, but 'fastsim-golden/1' was expected")
    return case


def verifier(engine: str, path: Path) -> Callable[[dict[str, Any]], str | None] | None:
    """The function that replays cases of an engine, or of a fleet; None: that fleet is not simulated."""
    from fastsim.engines import engine_of
    from fastsim.engines.contract import runtime_of
    from fastsim.errors import InputError
    from fastsim.fleet.golden import NOT_REPLAYED, VERIFIERS, verify_case

    if engine in VERIFIERS:
        return verify_case
    if engine in NOT_REPLAYED:
        return None

    if engine not in engine_names():
        raise InputError(f"{path}: engine = {engine!r}, but one of {', '.join(engine_names())} was expected")
    return runtime_of(engine_of(engine).folder).verify_case
