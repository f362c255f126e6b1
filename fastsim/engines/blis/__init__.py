"""The `blis` engine: BLIS (inference-sim f90a1e3a) with its linear latency model, metric for metric.

`simulate_blis` runs one configuration, `run_blis` many over one workload, `verify_case` replays a recording of BLIS.
"""

from fastsim.engines.blis.aggregate import AGGREGATE_DTYPE
from fastsim.engines.blis.config import CONFIG_DTYPE, BlisConfig
from fastsim.engines.blis.engine import BlisBatch, BlisResult, run_blis, simulate_blis
from fastsim.engines.blis.golden import verify_case
from fastsim.engines.blis.inputs import BlisWorkload, build_workload, constant_rate_arrivals
from fastsim.engines.blis.state import BlisLog

__all__ = [
    "AGGREGATE_DTYPE",
    "CONFIG_DTYPE",
    "BlisBatch",
    "BlisConfig",
    "BlisLog",
    "BlisResult",
    "BlisWorkload",
    "build_workload",
    "constant_rate_arrivals",
    "run_blis",
    "simulate_blis",
    "verify_case",
]
