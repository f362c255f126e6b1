"""What arrives when, and how long it is: the keys below `workload.`."""

from typing import Annotated

from pydantic import Field

from fastsim.config.classes import ClassesConfig
from fastsim.config.workload_parts import ArrivalConfig, ThinkConfig, TrafficConfig
from fastsim.model import Duration, Positive, type_integer


class WorkloadConfig(TrafficConfig):
    """The requests of a run. The same values give the same requests, whatever the scheduler's settings."""

    num_requests: Annotated[int, type_integer, Field(ge=1, le=10**8)] | None = None
    """None: all of the trace, else 300."""
    seed: Annotated[int, type_integer, Field(ge=0, le=2**63 - 1)] = 0
    """Seed of numpy's default_rng."""
    arrival: ArrivalConfig = ArrivalConfig()
    think: ThinkConfig = ThinkConfig()
    classes: ClassesConfig = ClassesConfig()
    concurrency: Positive | None = None
    """Clients, each with one request at a time: a closed loop or, with an `arrival.kind`, the most that are out."""
    timeout_s: Duration | None = None
    """A client gives up this long after its arrival."""
    ignore_eos: bool = False
    """Whether every output is as long as its declared limit (workload.max_tokens), as load generators ask for."""
    retry_after_s: Annotated[float, Field(ge=1e-6, le=1e9, allow_inf_nan=False)] = 1.0
    """Pause of a closed-loop client whose request was rejected."""
