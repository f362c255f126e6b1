"""Classes of requests that are mixed: the tables below `workload.classes.`, each named by who sends them."""

import re
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from fastsim.config.slo import SloConfig
from fastsim.config.workload_parts import ArrivalShape, TrafficConfig
from fastsim.model import Model, Pause, type_integer

CLASS_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""Bare keys of TOML, usable as column names."""


class ClassArrivalConfig(ArrivalShape):
    """When the requests of a class arrive. Without a `kind` they arrive as `workload.arrival` says, at their share."""

    rate_per_s: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] | None = None
    """Requests per second of the class. None: its share of `workload.arrival.rate_per_s`."""


class ClassConfig(TrafficConfig):
    """One class of requests: traffic of its own, with draws of its own."""

    share: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] = 1.0
    """Part of `workload.arrival.rate_per_s`, in proportion to the shares of all classes without a rate of their own."""
    num_requests: Annotated[int, type_integer, Field(ge=1, le=10**8)] | None = None
    """Most requests of the class; none: as many as there are among the first `workload.num_requests`."""
    start_s: Pause = 0.0
    """When its traffic begins."""
    arrival: ClassArrivalConfig = ClassArrivalConfig()
    slo: SloConfig = SloConfig()


class ClassesConfig(Model):
    """The classes by name, in the order of their names."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, ClassConfig] = Field(init=False)
    extra_model: ClassVar[type[Model]] = ClassConfig

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes; empty when there are none."""
        return tuple(sorted(self.__pydantic_extra__ or ()))

    def part(self, name: str) -> ClassConfig:
        """A class; one that is not there yet is all defaults."""
        return (self.__pydantic_extra__ or {}).get(name) or ClassConfig()

    def __hash__(self) -> int:
        return hash(tuple((name, self.part(name)) for name in self.names))


def part_of(model: Any, name: str) -> Any:
    """A field of a model, or a class by its name."""
    return model.part(name) if isinstance(model, ClassesConfig) else getattr(model, name)


def is_class_name(name: str) -> bool:
    """Whether a class can have this name: names that a model uses itself cannot be told from them."""
    return CLASS_NAME.fullmatch(name) is not None and not hasattr(ClassesConfig, name)
