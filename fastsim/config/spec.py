"""Reading a spec: TOML files that extend one another, and `--set key=value`, as layers of validated settings."""

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastsim.config.derived import deployed, with_values
from fastsim.config.keys import CLASSES, KEYS, MODEL, find_key, is_file, is_section
from fastsim.config.models import Config
from fastsim.config.rules import check_rules
from fastsim.errors import InputError
from fastsim.model import printable, shown, shown_name

MAX_SPEC_BYTES = 4 * 2**20
MAX_FILES = 100
"""Of a chain of files that extend one another."""
DEEP_NAME = re.compile(r"""(?<![\w."'-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){100}""")
"""A name of more than a hundred parts: the time that TOML's reader takes grows with the square of them."""
TRACE = "workload.trace"


@dataclass(frozen=True)
class Layer:
    """What one file, or the command line, says. A later layer wins.

    `settings` holds validated values by dotted key, `sweep` the raw `[sweep]` table, `answer` the raw `[answer]` table
    (the question a sweep is to answer: no run depends on it). Relative file names are relative to `folder`; `settings`
    holds them resolved.
    """

    source: str
    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)
    sweep: dict[str, Any] = field(default_factory=dict)
    answer: Any = None


@dataclass(frozen=True)
class Spec:
    """A spec as its layers, the most general first."""

    source: str
    layers: tuple[Layer, ...]

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by dotted key; a later layer wins."""
        return {key: value for layer in self.layers for key, value in layer.settings.items()}

    @property
    def answer(self) -> Any:
        """The raw `[answer]` table, or None; a later layer's takes the place of an earlier one's."""
        return next((layer.answer for layer in reversed(self.layers) if layer.answer is not None), None)

    @property
    def sweeps(self) -> bool:
        """Whether there is anything in a `[sweep]` table."""
        return any(layer.sweep for layer in self.layers)

    @property
    def base(self) -> Config:
        """The base configuration as it is written, not yet checked, nor with what its hardware gives."""
        return with_values(Config(), self.settings)

    def config(self) -> Config:
        """The base configuration, checked.

        Raises
        ------
        InputError
            When keys contradict each other, or the model does not fit on the hardware.
        """
        config = deployed(self.base)
        check_rules(config, self.source)
        return config


def load_config(path: str | Path | None = None, sets: Sequence[str] = ()) -> Config:
    """The base configuration of a spec file, with `key=value` settings on top; its `[sweep]` is ignored."""
    return load_spec(path, sets).config()


def load_spec(path: str | Path | None = None, sets: Sequence[str] = ()) -> Spec:
    """Read a spec file, everything it extends, and `key=value` settings.

    Raises
    ------
    InputError
        One sentence that names file, key, value and what was expected.
    """
    layers = [] if path is None else _file_layers(Path(path), ())
    return _spec(printable(str(path)) if path is not None else "--set", layers, sets)


def spec_from_mapping(
    table: Mapping[str, Any], sets: Sequence[str] = (), *, source: str = "spec", folder: str | Path = "."
) -> Spec:
    """A spec from a mapping of the shape that TOML gives: nested tables or dotted keys, `sweep` among them."""
    return _spec(source, [_layer(table, source, Path(folder))], sets)


def _spec(source: str, layers: list[Layer], sets: Sequence[str]) -> Spec:
    if sets:
        layers = [*layers, parse_sets(sets)]
    return Spec(source, tuple(layers))


def parse_sets(sets: Iterable[str]) -> Layer:
    """The layer of `--set key=value` settings; the value is TOML, or bare text."""
    settings: dict[str, Any] = {}
    sweep: dict[str, Any] = {}
    for text in sets:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise InputError(f"--set {shown(text)}, but key=value was expected")
        if name in settings or name in sweep:
            raise InputError(f"--set {shown_name(name)} is given twice, but one value was expected")
        if name == "sweep.seeds":
            sweep["seeds"] = parse_value(value)
        else:
            key = find_key(name, "--set")
            parsed = parse_value(value)
            text_value = value.strip() if key.is_text and not isinstance(parsed, str) else parsed
            settings[name] = resolved_path(name, key.validate(text_value, "--set"), Path())
    return Layer("--set", Path(), settings, sweep)


def parse_value(text: str) -> Any:
    """A TOML value, or the text itself when it is not one."""
    text = text.strip()
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return table["value"] if len(table) == 1 else text


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises
    ------
    InputError
        When the file cannot be read, is not UTF-8, is larger than 4 MiB or is not TOML.
    """
    if not (_may_be_file(path) or path.is_dir() or _is_at_hand(path)):
        raise InputError(f"{printable(str(path))}: not a regular file, but a TOML file was expected")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SPEC_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{printable(str(path))}: cannot be read ({reason}), but a TOML file was expected") from None
    if len(data) > MAX_SPEC_BYTES:
        raise InputError(f"{printable(str(path))}: larger than 4 MiB, but a spec in TOML was expected")
    try:
        text = data.decode()
        if DEEP_NAME.search(text):
            raise InputError(f"{printable(str(path))}: not valid TOML: a name of more than 100 parts")
        return tomllib.loads(text)
    except UnicodeDecodeError:
        raise InputError(f"{printable(str(path))}: not UTF-8 text, but a TOML file was expected") from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise InputError(f"{printable(str(path))}: not valid TOML: {reason}") from None


def _file_layers(path: Path, children: tuple[Path, ...]) -> list[Layer]:
    """The layer of a file, after those of the file it extends."""
    if children and not _may_be_file(path):
        raise InputError(f"{printable(str(path))}: no file, but a TOML file was expected, which {children[-1]} extends")
    table = read_toml(path)
    if path.resolve() in children:
        raise InputError(
            f"{printable(str(path))}: extends itself through {children[-1].name}, but a chain that ends was expected"
        )
    if len(children) == MAX_FILES:
        raise InputError(f"{printable(str(path))}: the last of more than {MAX_FILES} files that extend one another")
    extends = table.pop("extends", None)
    if extends is None:
        parents = []
    elif isinstance(extends, str) and extends:
        parents = _file_layers(path.parent / extends, (*children, path.resolve()))
    else:
        raise InputError(
            f"{printable(str(path))}: extends = {shown(extends)}, but the name of a TOML file was expected"
        )
    return [*parents, _layer(table, printable(str(path)), path.parent)]


def _may_be_file(path: Path) -> bool:
    """False for a folder, a pipe or a device, whose end may never come; what cannot be looked at is read in vain."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return True


def _is_at_hand(path: Path) -> bool:
    """Whether a path is a pipe that the shell has already connected, as /dev/stdin or <(...), or /dev/null."""
    if str(path) == os.devnull:
        return True
    given = str(path.absolute()).startswith(("/dev/stdin", "/dev/fd/", "/proc/self/fd/"))
    return given and stat.S_ISFIFO(path.stat().st_mode)


def _layer(table: Mapping[str, Any], source: str, folder: Path) -> Layer:
    rest = dict(table)
    sweep = rest.pop("sweep", {})
    answer = rest.pop("answer", None)
    if not isinstance(sweep, Mapping):
        raise InputError(f"{source}: sweep = {shown(sweep)}, but a table was expected")
    settings = {}
    for name, value in flat(rest, source).items():
        settings[name] = resolved_path(name, KEYS[name].validate(value, source), folder)
    return Layer(source, folder, settings, dict(sweep), answer)


def flat(table: Mapping[str, Any], source: str, prefix: str = "") -> dict[str, Any]:
    """Nested tables as one mapping from known dotted keys to raw values.

    Raises
    ------
    InputError
        When a key is unknown, a table is not one, or a key is given twice (nested and as a quoted dotted name).
    """
    out: dict[str, Any] = {}
    for name, value in table.items():
        path = prefix + str(name)
        if is_section(path):
            if not isinstance(value, Mapping):
                example = f" of tables by name, such as [{CLASSES}.chat]," if path == CLASSES else ""
                raise InputError(f"{source}: {path} = {shown(value)}, but a table{example} was expected")
            if not value and path.startswith(CLASSES + "."):
                raise InputError(f"{source}: {path} is empty, but at least one key was expected, such as share = 1")
            found = flat(value, source, path + ".")
        else:
            found = {find_key(path, source).name: value}
        for key in found:
            if key in out:
                raise InputError(f"{source}: {key} is given twice, but one value was expected")
        out |= found
    return out


def resolved_path(name: str, value: Any, folder: Path) -> Any:
    """A value as it is kept: file names hold for the folder of the file that gives them."""
    if value is None or not is_file(name) or (name == MODEL and not _is_file_name(folder, value)):
        return value
    return str((folder / value).absolute())


def _is_file_name(folder: Path, value: str) -> bool:
    """Whether a model is named by its config.json, or the folder that holds it."""
    return value.endswith(".json") or (folder / value).exists()
