"""The whole configuration: engine, latency, workload, run, metrics, slo."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from fastsim.config.classes import part_of
from fastsim.config.engine import EngineConfig
from fastsim.config.engine_rlt import RltLatency
from fastsim.config.model import Coefficient, Duration, Model, Pause, a_list, type_integer
from fastsim.config.workload import WorkloadConfig


def _known_preset(name: str) -> str:
    """Refuse a preset whose model or GPU is not known, or that does not fit."""
    from fastsim.presets import coefficients  # here: most runs have no preset, and need not load them

    coefficients(name)
    return name


Preset = Annotated[str, AfterValidator(_known_preset)]


class LatencyConfig(Model):
    """Step time in microseconds: int(b0 + b1*prefill tokens + b2*decode tokens + b3*context tokens), left to right."""

    preset: Preset | None = None
    """MODEL@GPU, as in "llama-3.1-70b@4xh100": coefficients that are none come from its roofline."""
    b0_us: Annotated[float, Field(ge=1, le=1e9, allow_inf_nan=False)] | None = None
    """Fixed time of a step; at least 1, so that the clock always moves. None: the preset's, else 5752.71."""
    b1_us_per_prefill_token: Coefficient | None = None
    """Per prefill token of the step. None: the preset's, else 17.25."""
    b2_us_per_decode_token: Coefficient | None = None
    """Per decode token of the step. None: the preset's, else 6."""
    b3_us_per_context_token: Coefficient | None = None
    """Per token already computed of the step's decoding requests. None: the preset's, else 0."""
    frontend_us: Coefficient = 0.0
    """Fixed overhead outside the engine, added to TTFT and E2E."""
    alpha: Annotated[tuple[Coefficient, ...], a_list, Field(min_length=3, max_length=3)] = (232.46, 1.75, 3357.44)
    """BLIS's three, us: before the queue a base and per prompt token; per output token, reported, not on the clock."""
    rlt: RltLatency = RltLatency()


class RunConfig(Model):
    """When a run ends."""

    horizon_s: Duration | None = None
    """No step starts at or after this time; none: until all requests are done."""
    max_steps: Annotated[int, type_integer, Field(ge=1, le=10**15)] = 10**8
    """Most steps; finite, so that every run ends."""

    @property
    def horizon_us(self) -> int | None:
        """The horizon in integer microseconds."""
        return None if self.horizon_s is None else round(self.horizon_s * 1e6)


class MetricsConfig(Model):
    """What counts."""

    warmup_s: Pause = 0.0
    """Requests that arrive before this time are left out of latency metrics."""


class SloConfig(Model):
    """What a request must meet to count as good; none: no demand."""

    ttft_ms: Duration | None = None
    """Time to first token."""
    tpot_ms: Duration | None = None
    """Time per output token after the first."""
    e2e_ms: Duration | None = None
    """From arrival to last token."""


class Config(Model):
    """One complete configuration. Keys are dotted: `config.value("engine.max_num_seqs")`."""

    engine: EngineConfig = EngineConfig()
    latency: LatencyConfig = LatencyConfig()
    workload: WorkloadConfig = WorkloadConfig()
    run: RunConfig = RunConfig()
    metrics: MetricsConfig = MetricsConfig()
    slo: SloConfig = SloConfig()

    def value(self, key: str) -> Any:
        """The value of a dotted key."""
        part: Any = self
        for name in key.split("."):
            part = part_of(part, name)
        return part
