"""What arrives when, and how long it is: the keys below `workload.`."""

from typing import Annotated

from pydantic import Field

from fastsim.config.classes import ClassesConfig
from fastsim.config.model import Duration, Model, Pause, Positive, type_integer
from fastsim.config.workload_parts import (
    ArrivalConfig,
    FileName,
    LengthConfig,
    MaxTokensConfig,
    PrefixConfig,
    PriorityConfig,
    SessionConfig,
    ThinkConfig,
    TraceFormat,
)


class WorkloadConfig(Model):
    """The requests of a run. The same values give the same requests, whatever the scheduler's settings."""

    num_requests: Annotated[int, type_integer, Field(ge=1, le=10**8)] | None = None
    """None: all of the trace, else 300."""
    seed: Annotated[int, type_integer, Field(ge=0, le=2**63 - 1)] = 0
    """Seed of numpy's default_rng."""
    arrival: ArrivalConfig = ArrivalConfig()
    prompt: LengthConfig = LengthConfig()
    output: LengthConfig = LengthConfig()
    max_tokens: MaxTokensConfig = MaxTokensConfig()
    prefix: PrefixConfig = PrefixConfig()
    priority: PriorityConfig = PriorityConfig()
    think: ThinkConfig = ThinkConfig()
    sessions: SessionConfig = SessionConfig()
    classes: ClassesConfig = ClassesConfig()
    trace: FileName | None = None
    """File of recorded requests; a relative path is relative to the file that names it."""
    format: TraceFormat | None = None
    """Format of the trace; none: recognised by its beginning."""
    window_start_s: Pause = 0.0
    """Only rows of the trace from this time on, which becomes the start."""
    window_end_s: Duration | None = None
    """Only rows of the trace before this time."""
    sample_share: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 1.0
    """Share of the trace's rows, drawn at random; a larger share keeps all of a smaller one. Thins bursts out."""
    rate_scale: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] = 1.0
    """Divides all gaps between arrivals: 2 is twice the rate."""
    concurrency: Positive | None = None
    """Clients of a closed loop, each with one request at a time."""
    timeout_s: Duration | None = None
    """A client gives up this long after its arrival."""
    retry_after_s: Annotated[float, Field(ge=1e-6, le=1e9, allow_inf_nan=False)] = 1.0
    """Pause of a closed-loop client whose request was rejected."""
