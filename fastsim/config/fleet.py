"""The `fleet` table: replicas of the engine behind a router."""

from typing import Annotated, Literal

from pydantic import Field

from fastsim.model import Model, type_integer

Router = Literal["round_robin", "random", "session"]

MOST_REPLICAS = 1024


class FleetConfig(Model):
    """How many replicas there are, each with the engine's keys, and who gets which request."""

    replicas: Annotated[int, type_integer, Field(ge=1, le=MOST_REPLICAS)] = 1
    """Replicas of the engine."""
    router: Router = "round_robin"
    """Which replica a request goes to: each in turn, a random one, or always the same for a conversation."""


NO_AUTOSCALING = "a fleet keeps its fleet.replicas for the whole run, autoscaling is not simulated"
"""What a spec with `fleet.autoscale` is told."""
