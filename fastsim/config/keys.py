"""The keys: every leaf of the configuration by its dotted name, with its type and its closest spelling."""

import ast
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from textwrap import dedent
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from fastsim.config.classes import ClassConfig, is_class_name
from fastsim.config.fleet import NO_AUTOSCALING
from fastsim.config.models import Config
from fastsim.config.other_names import hint
from fastsim.errors import InputError
from fastsim.model import Model, describe, shown, shown_name, suggestion


@dataclass(frozen=True)
class Key:
    """One leaf of the configuration."""

    name: str
    model: type[BaseModel]
    field: FieldInfo

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        annotation: Any = self.field.annotation
        if self.field.metadata:
            annotation = Annotated[(annotation, *self.field.metadata)]
        return TypeAdapter(annotation, config=ConfigDict(strict=True))

    @property
    def default(self) -> Any:
        """Value when a spec does not say."""
        return self.field.default

    @property
    def summary(self) -> str:
        """One line for people: the text below the field in its model."""
        last = self.name.rpartition(".")[2]
        return next((text[last] for model in self.model.__mro__ if last in (text := _field_texts(model))), "")

    @cached_property
    def optional(self) -> bool:
        """Whether none is a value."""
        return type(None) in _alternatives(self.field.annotation)

    @cached_property
    def is_integer(self) -> bool:
        """Whether values are integers: a range of such a key is rounded."""
        return int in {_bare(part) for part in _alternatives(self.field.annotation)}

    @cached_property
    def is_number(self) -> bool:
        """Whether values are integers or floats."""
        return self.is_integer or float in {_bare(part) for part in _alternatives(self.field.annotation)}

    @cached_property
    def is_text(self) -> bool:
        """Whether values are free text: `--set workload.trace=7` names the file 7."""
        return str in {_bare(part) for part in _alternatives(self.field.annotation)}

    def describe(self) -> str:
        """What the key accepts."""
        return describe(self.field.annotation, self.field.metadata)

    def validate(self, value: object, source: str) -> Any:
        """The value in the key's own type; `source` is named when it is not one.

        The bare words none and null stand for None, which TOML lacks.

        Raises
        ------
        InputError
            When the value has another type or lies outside the key's range.
        """
        if self.optional and value in ("none", "null"):
            return None
        try:
            return self._adapter.validate_python(value)
        except ValidationError:
            raise InputError(f"{source}: {self.name} = {shown(value)}, but {self.describe()} was expected") from None


@cache
def _field_texts(model: type) -> dict[str, str]:
    """The string below each field of a class. Read only when asked for: it would be a third of the import's time."""
    if not issubclass(model, Model):
        return {}
    try:
        source = inspect.getsource(model)
    except OSError:  # a model made of the engines' tables, which have texts of their own
        return {}
    (body,) = ast.parse(dedent(source)).body
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: text.value.value
        for field, text in pairwise(body.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _leaves(model: type[BaseModel], prefix: str) -> Iterator[Key]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _leaves(field.annotation, f"{prefix}{name}.")
        else:
            yield Key(prefix + name, model, field)


def _sections(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name[:end] for name in names for end, letter in enumerate(name) if letter == ".")


CLASSES = "workload.classes"
CLASS_KEYS: dict[str, Key] = {key.name: key for key in _leaves(ClassConfig, "")}
"""Every key of a class of requests, below `workload.classes.NAME.`."""
CLASS_SECTIONS = _sections(CLASS_KEYS)


def split_class(name: str) -> tuple[str, str] | None:
    """Name of the class and key in it of `workload.classes.NAME.KEY`; None when it is something else."""
    if not name.startswith(CLASSES + "."):
        return None
    chosen, _, key = name.removeprefix(CLASSES + ".").partition(".")
    return (chosen, key) if is_class_name(chosen) else None


class _Keys(dict[str, Key]):
    """The keys that every configuration has; those of classes are made when they are asked for."""

    def __missing__(self, name: str) -> Key:
        found = split_class(name)
        if found is None or found[1] not in CLASS_KEYS:
            raise KeyError(name)
        return _class_key(name, found[1])

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name):
            return True
        found = split_class(name) if isinstance(name, str) else None
        return found is not None and found[1] in CLASS_KEYS

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default


@cache
def _class_key(name: str, key: str) -> Key:
    return replace(CLASS_KEYS[key], name=name)


KEYS: dict[str, Key] = _Keys({key.name: key for key in _leaves(Config, "")})
"""Every key of the configuration by its dotted name, in the order of the models.

The keys of classes of requests (`workload.classes.NAME.KEY`) are found in it for any name, but not listed.
"""

SECTIONS = _sections(KEYS)
"""Every table of a spec: `engine`, `workload`, `workload.arrival`, ..."""


def is_section(name: str) -> bool:
    """Whether a dotted name is a table of a spec, classes of requests included."""
    found = split_class(name)
    return name in SECTIONS or name == CLASSES or (found is not None and found[1] in ("", *CLASS_SECTIONS))


MODEL = "hardware.model"
POLICY = "engine.policy_file"


def is_file(name: str) -> bool:
    """Whether a key can name a file: recorded requests, a policy, or a model's config.json."""
    found = split_class(name)
    return name in ("workload.trace", POLICY, MODEL) or (found is not None and found[1] == "trace")


def class_keys(config: Config) -> list[str]:
    """The keys of the classes that a configuration has."""
    return [f"{CLASSES}.{name}.{key}" for name in config.workload.classes.names for key in CLASS_KEYS]


def find_key(name: str, source: str) -> Key:
    """The key of that name.

    Raises
    ------
    InputError
        When there is none; the sentence suggests the closest one.
    """
    if name in KEYS:
        return KEYS[name]
    if name.startswith(CLASSES):
        raise InputError(f"{source}: {_class_fault(name)}")
    if name.startswith("fleet.autoscale"):
        raise InputError(f"{source}: {name} is not a key: {NO_AUTOSCALING}")
    if name in SECTIONS:
        first = next(key for key in KEYS if key.startswith(name + "."))
        raise InputError(f"{source}: {name} is a table, but one of its keys was expected, such as {first}")
    other = hint(name)
    near = suggestion(name, list(KEYS)) if other is None else f"; {other}"
    raise InputError(f"{source}: {shown_name(name)} is not a key{near}")


def _class_fault(name: str) -> str:
    """What is wrong with a name below `workload.classes`."""
    chosen, _, key = name.removeprefix(CLASSES).removeprefix(".").partition(".")
    example = f"{CLASSES}.{chosen if is_class_name(chosen) else 'chat'}.share"
    if not is_class_name(chosen):
        return (
            f"{shown_name(name)} is not a key: a class is named by small letters, digits and _, and not by a word of "
            f"the models such as copy; {example} would be one"
        )
    if key in ("", *CLASS_SECTIONS):
        return f"{name} is a table, but one of its keys was expected, such as {example}"
    return f"{shown_name(name)} is not a key{suggestion(key, list(CLASS_KEYS))}"
