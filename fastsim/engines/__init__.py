"""The engines: one folder and one line each.

`knobs.py` of a folder declares the engine (`fastsim.engines.declaration`): what a spec can say of it. It is light, and
loaded with the configuration. `runtime.py` runs it (`fastsim.engines.contract`), and is loaded, with the compiler, when
the first of its configurations runs.
"""

from collections.abc import Iterable
from functools import cache
from importlib import import_module

from fastsim.engines.declaration import DEFAULT_ENGINE, Engine, Server
from fastsim.errors import InputError, suggestion

FOLDERS = (
    "vllm",
    "blis",
    "rlt",
    "sglang",
    "trtllm",
)


@cache
def engines() -> tuple[Engine, ...]:
    """Every engine, in the order above."""
    return tuple(import_module(f"fastsim.engines.{folder}.knobs").ENGINE for folder in FOLDERS)


@cache
def engine_of(name: str) -> Engine:
    """The engine that a value of `engine.name` stands for."""
    return next(engine for engine in engines() if name in engine.names)


def server_of(name: str) -> Server:
    """How an engine is served; one that is no server stands for the default engine's."""
    server = engine_of(name).server or engine_of(DEFAULT_ENGINE).server
    assert server is not None
    return server


def full_name(text: str, option: str = "--engine") -> str:
    """The value of `engine.name` that a name stands for: itself, or the first one of a folder of kernels.

    Raises
    ------
    InputError
        When there is no such engine.
    """
    known = {each.folder: each.names[0] for each in engines()} | {
        name: name for each in engines() for name in each.names
    }
    if text not in known:
        raise InputError(f"{option} {text}: no such engine{suggestion(text, list(known))}")
    return known[text]


def full_names(text: str) -> list[str]:
    """The values of `engine.name` that `--engines a,b` stands for.

    Raises
    ------
    InputError
        When there are fewer than two, one is named twice, or there is none of that name.
    """
    names = [full_name(each.strip(), "--engines") for each in text.split(",")]
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError(f"--engines {text}, but at least two engines, each named once, were expected")
    return names


def caveats(names: Iterable[str]) -> list[str]:
    """What must be known of the figures of some engines, one sentence each."""
    return list(dict.fromkeys(found for name in names if (found := engine_of(name).caveat) is not None))


def folders_of(names: Iterable[str]) -> list[str]:
    """The folders of the engines that some values of `engine.name` stand for."""
    found = {engine_of(name).folder for name in names}
    return [folder for folder in FOLDERS if folder in found]


def runtime_module(folder: str) -> str:
    """The module that runs an engine."""
    return f"fastsim.engines.{folder}.runtime"


def supporting(ability: str) -> str:
    """The names of the engines that have an ability, an attribute of `Engine`: for sentences."""
    return ", ".join(name for engine in engines() if getattr(engine, ability) for name in engine.names)


def check_ability(name: str, ability: str, why: str) -> None:
    """Refuse the value of `engine.name` that stands for an engine without an ability.

    Raises
    ------
    InputError
        One sentence; `why` is its end.
    """
    if not getattr(engine_of(name), ability):
        raise InputError(f"engine.name = {name!r}, but one of {supporting(ability)} was expected: {why}")
