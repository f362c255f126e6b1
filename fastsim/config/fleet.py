"""The `fleet` table: replicas of the engine behind a router."""

from typing import Annotated, Literal

from pydantic import Field

from fastsim.model import Model, type_integer

BLIND_ROUTERS = ("round_robin", "random", "session")
"""They look at no replica."""
Router = Literal["round_robin", "random", "session", "power_of_two", "least_loaded", "vllm_dp"]

MOST_REPLICAS = 1024


class FleetConfig(Model):
    """How many replicas there are, each with the engine's keys, and who gets which request."""

    replicas: Annotated[int, type_integer, Field(ge=1, le=MOST_REPLICAS)] = 1
    """Replicas of the engine."""
    router: Router = "round_robin"
    """Which replica a request goes to: each in turn, a random one, the same one for a whole conversation, the one with
    fewer requests in flight of two, of all, or what vLLM's data-parallel balancer chooses."""
    refresh_ms: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 100.0
    """Time between two snapshots of the replicas' waiting and running requests and KV use; 0: one a decision."""


NO_AUTOSCALING = "a fleet keeps its fleet.replicas for the whole run, autoscaling is not simulated"
"""What a spec with `fleet.autoscale` is told."""
