"""The staged scheduler of vllm-rlt: looped transformers, bypass-bounded priority admission, swap preemption.

A step of the engine runs one stage: PREFILL, PRELUDE (embedding), RECURRENT (one loop over the layers) or CODA (head
and sampling). Rules as in the public vllm-rlt scheduler, before and after its change of the admission accounting
(`count_restores`, `blocked_checks_limit`). Read `schedule.py` first, then `admission.py` and `swap.py`.

Not covered: the mixed mode, asynchronous outputs, prefill/decode disaggregation, preemption of waiting requests that
hold KV (`waiting_only`), token gates (an exit-depth trace replaces them).
"""

from fastsim.engines.rlt.config import RltConfig, StageLatency
from fastsim.engines.rlt.engine import RltResult, run_configs, simulate_rlt
from fastsim.engines.rlt.golden import verify_case
from fastsim.engines.rlt.inputs import RltWorkload, build_workload, workload_for

__all__ = [
    "RltConfig",
    "RltResult",
    "RltWorkload",
    "StageLatency",
    "build_workload",
    "run_configs",
    "simulate_rlt",
    "verify_case",
    "workload_for",
]
