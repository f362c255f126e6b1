"""`fastsim verify`: golden cases, recorded from the engines themselves, against this package."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

ENGINES = {
    "vllm-0.33.0": "fastsim.replay",
    "vllm-0.16.0": "fastsim.replay",
    "vllm-0.33.0-async": "fastsim.replay",
    "blis": "fastsim.engines.blis.golden",
    "vllm-rlt": "fastsim.engines.rlt.golden",
}
"""Module whose `verify_case(case)` says how a case of an engine differs: None, or one line."""


def command(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Golden cases, or folders of them.")],
    engine: Annotated[str | None, typer.Option("--engine", metavar="NAME", help="Only cases of this engine.")] = None,
) -> int:
    """Replay golden cases and compare everything that must match.

    Prints one line a failing case (its first difference) and last `N/M identical`; exits 0 only if all are.
    """
    from fastsim.errors import InputError

    if engine is not None and engine not in ENGINES:
        raise InputError(f"--engine {engine}, but one of {', '.join(ENGINES)} was expected")
    total = identical = 0
    for path in case_files(paths):
        case = read_case(path)
        if engine is not None and case["engine"] != engine:
            continue
        total += 1
        difference = verifier(case["engine"], path)(case)
        if difference is None:
            identical += 1
        else:
            typer.echo(f"{case['engine']}/{case['name']}: {difference}")
    if total == 0:
        raise InputError(f"{', '.join(map(str, paths))}: no golden cases, but *.json.gz files were expected")
    typer.echo(f"{identical}/{total} identical")
    return 0 if identical == total else 1


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


def verifier(engine: str, path: Path) -> Callable[[dict[str, Any]], str | None]:
    """The function that replays cases of an engine."""
    from importlib import import_module

    from fastsim.errors import InputError

    if engine not in ENGINES:
        raise InputError(f"{path}: engine = {engine!r}, but one of {', '.join(ENGINES)} was expected")
    verify: Callable[[dict[str, Any]], str | None] = import_module(ENGINES[engine]).verify_case
    return verify
