"""The configuration: pydantic models whose keys are the product's dotted names everywhere.

`Config` is one complete configuration; its parts are `EngineConfig`, `LatencyConfig`, `WorkloadConfig`, `RunConfig`,
`MetricsConfig` and `SloConfig`. Times carry their unit in the name.
"""

from fastsim.config.classes import ClassArrivalConfig, ClassConfig, ClassesConfig
from fastsim.config.derived import deployed, resolved, with_values
from fastsim.config.engine import EngineConfig, LatencyConfig
from fastsim.config.fleet import FleetConfig
from fastsim.config.hardware import HardwareConfig
from fastsim.config.keys import KEYS, Key, find_key
from fastsim.config.models import Config, MetricsConfig, RunConfig
from fastsim.config.rules import EFFECTS, RULES, Rule, check_rules
from fastsim.config.slo import SloConfig
from fastsim.config.spec import Layer, Spec, load_config, load_spec, spec_from_mapping
from fastsim.config.workload import WorkloadConfig
from fastsim.config.workload_parts import (
    ArrivalConfig,
    LengthConfig,
    MaxTokensConfig,
    PrefixConfig,
    PriorityConfig,
    SessionConfig,
    ThinkConfig,
)

__all__ = [
    "EFFECTS",
    "KEYS",
    "RULES",
    "ArrivalConfig",
    "ClassArrivalConfig",
    "ClassConfig",
    "ClassesConfig",
    "Config",
    "EngineConfig",
    "FleetConfig",
    "HardwareConfig",
    "Key",
    "LatencyConfig",
    "Layer",
    "LengthConfig",
    "MaxTokensConfig",
    "MetricsConfig",
    "PrefixConfig",
    "PriorityConfig",
    "Rule",
    "RunConfig",
    "SessionConfig",
    "SloConfig",
    "Spec",
    "ThinkConfig",
    "WorkloadConfig",
    "check_rules",
    "deployed",
    "find_key",
    "load_config",
    "load_spec",
    "resolved",
    "spec_from_mapping",
    "with_values",
]
