"""The whole configuration: engine, latency, spec, fleet, workload, run, metrics, slo."""

from typing import Annotated, Any

from pydantic import Field

from fastsim.config.classes import part_of
from fastsim.config.engine import EngineConfig, LatencyConfig
from fastsim.config.fleet import FleetConfig
from fastsim.config.hardware import HardwareConfig
from fastsim.config.slo import SloConfig
from fastsim.config.speculation import SpecConfig
from fastsim.config.workload import WorkloadConfig
from fastsim.model import Duration, Model, Pause, type_integer


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


class Config(Model):
    """One complete configuration. Keys are dotted: `config.value("engine.max_num_seqs")`."""

    hardware: HardwareConfig = HardwareConfig()
    engine: EngineConfig = EngineConfig()
    latency: LatencyConfig = LatencyConfig()
    spec: SpecConfig = SpecConfig()
    fleet: FleetConfig = FleetConfig()
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
