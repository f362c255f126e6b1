"""What the configuration is built from: strict frozen models, the field types, and one-sentence errors."""

from collections.abc import Iterable
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationError
from pydantic.fields import FieldInfo

from fastsim.errors import InputError
from fastsim.errors import printable as printable
from fastsim.errors import suggestion as suggestion

INT32_MAX = 2**31 - 1
"""Lengths and counts live in int32 arrays; what does not fit is refused here, at the boundary."""


def _integral(value: object) -> object:
    """1e8 is how people write a large integer in TOML: accept a float that is one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


type_integer = BeforeValidator(_integral)
a_list = Strict(False)
"""Marks a field that is a list in TOML and a tuple here, so that models stay hashable."""

Natural = Annotated[int, type_integer, Field(ge=0, le=INT32_MAX)]
"""0 and up."""
Positive = Annotated[int, type_integer, Field(ge=1, le=INT32_MAX)]
"""1 and up."""
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
"""A share of a whole."""
Duration = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
"""A time span that must not be empty, in seconds or milliseconds."""
Pause = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
"""A time span that may be empty."""
FileName = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""A file's name."""
Coefficient = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
"""Microseconds per something."""


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class _OneSentence(ModelMetaclass):
    """A model built directly from Python raises the same InputError as one read from a file."""

    def __call__(cls, *args: Any, **values: Any) -> Any:
        try:
            return super().__call__(*args, **values)
        except ValidationError as error:
            raise InputError(sentence(error, cls, cls.__name__)) from None  # type: ignore[arg-type]


class Model(BaseModel, metaclass=_OneSentence):
    """Base of all parts of the configuration: immutable, hashable, no unknown keys, no silent conversions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())


def sentence(error: ValidationError, model: type[BaseModel], source: str) -> str:
    """The first fault of a pydantic error as one sentence: source, key, value and what was expected."""
    fault = error.errors(include_url=False)[0]
    location = [str(part) for part in fault["loc"]]
    key = ".".join(location)
    if fault["type"] == "extra_forbidden":
        return f"{source}: {shown_name(key)} is not a key{suggestion(key, list(model.model_fields))}"
    if fault["type"] == "missing":
        return f"{source}: {key} is missing"
    return f"{source}: {key} = {shown(fault['input'])}, but {describe_field(model, location)} was expected"


def shown(value: object) -> str:
    """A value as it would stand in a spec, cut when long."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif value is None:
        text = "none"
    elif isinstance(value, str):
        text = '"' + printable(value).replace('"', '\\"') + '"'
    elif isinstance(value, tuple | list):
        text = "[" + ", ".join(shown(item) for item in value[:20]) + (", ..." if len(value) > 20 else "") + "]"
    else:
        try:
            text = str(value)
        except ValueError:  # an integer of more than 4300 digits has no decimal text in Python
            text = "an integer of thousands of digits"
    return text if len(text) <= 80 else text[:77] + "..."


def describe_field(model: type[BaseModel], location: list[str]) -> str:
    """What the field at a pydantic error location accepts."""
    inner = getattr(model, "extra_model", None)
    if inner is not None and location[0] not in model.model_fields:  # a model whose fields are named by the user
        return describe_field(inner, location[1:]) if len(location) > 1 else "a table"
    field = model.model_fields[location[0]]
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
        return describe_field(field.annotation, location[1:]) if len(location) > 1 else "a table"
    return describe(field.annotation, field.metadata)


def describe(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """Words for a field type: `an integer from 1 to 2147483647`, `one of "fcfs", "priority"`."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *extra = get_args(annotation)
        return describe(inner, [*extra, *metadata])
    if origin in (Union, UnionType):
        parts = [part for part in get_args(annotation) if part is not type(None)]
        words = " or ".join(describe(part, metadata) for part in parts)
        return f"{words} (or none)" if len(parts) < len(get_args(annotation)) else words
    if origin is Literal:
        return "one of " + ", ".join(shown(choice) for choice in get_args(annotation))
    if origin is tuple:
        return f"a list, each item {describe(get_args(annotation)[0])}"
    if annotation is int:
        return "an integer" + _range(metadata)
    if annotation is float:
        return "a number" + _range(metadata)
    return {bool: "true or false", str: "text"}.get(annotation, str(annotation))


def _range(metadata: Iterable[Any]) -> str:
    limits: dict[str, Any] = {}
    for item in metadata:
        for part in item.metadata if isinstance(item, FieldInfo) else [item]:
            for kind in (annotated_types.Ge, annotated_types.Gt, annotated_types.Le, annotated_types.Lt):
                if isinstance(part, kind):
                    name = kind.__name__.lower()
                    limits[name] = getattr(part, name)
    low = f" from {_number(limits['ge'])}" if "ge" in limits else f" above {_number(limits['gt'])}" if limits else ""
    high = f" to {_number(limits['le'])}" if "le" in limits else f" to below {_number(limits['lt'])}" if limits else ""
    return low + high


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) or abs(value) < 1e6 else f"{value:g}"


def shown_name(name: str) -> str:
    """A key's name as typed, made safe and short for one line."""
    return shown(name)[1:-1] if name else '""'
