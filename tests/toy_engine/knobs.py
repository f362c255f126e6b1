"""The toy's one knob."""

from fastsim.engines.declaration import Engine, OwnColumn
from fastsim.model import Model, Positive
from fastsim.rule import absent


class ToyKnobs(Model):
    """One request at a time."""

    tokens_per_step: Positive = 1
    """Output tokens of a step."""


ENGINE = Engine(
    folder="toy",
    names=("toy",),
    table="toy",
    knobs=ToyKnobs,
    rules=(absent("toy", "workload.concurrency", None, "closed loop"),),
    columns=(OwnColumn("toy_idle_s", "s", "time without a request", "none"),),
)
