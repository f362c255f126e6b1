"""The configuration: pydantic models whose keys are the product's dotted names everywhere.

`Config` is one complete configuration; its parts are `EngineConfig`, `LatencyConfig`, `WorkloadConfig`, `RunConfig`,
`MetricsConfig` and `SloConfig`. Times carry their unit in the name.
"""

from fastsim.config.engine import EngineConfig
from fastsim.config.models import Config, LatencyConfig, MetricsConfig, RunConfig, SloConfig
from fastsim.config.workload import (
    ArrivalConfig,
    LengthConfig,
    MaxTokensConfig,
    PrefixConfig,
    PriorityConfig,
    ThinkConfig,
    WorkloadConfig,
)

__all__ = [
    "ArrivalConfig",
    "Config",
    "EngineConfig",
    "LatencyConfig",
    "LengthConfig",
    "MaxTokensConfig",
    "MetricsConfig",
    "PrefixConfig",
    "PriorityConfig",
    "RunConfig",
    "SloConfig",
    "ThinkConfig",
    "WorkloadConfig",
]
