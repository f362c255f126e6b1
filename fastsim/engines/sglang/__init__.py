"""SGLang 0.5.23's scheduler: prefill first, admission that counts the future, retraction, a radix cache.

One full-attention model on one GPU. Read `schedule.py` first, then `admission.py` and `decode.py`; `kernel.py` is the
loop around them, with and without overlap. Rules as measured on the real scheduler (tests/golden/sglang-0.5.23).

Not covered: speculative decoding, LoRA, multimodal input, grammars, beams, sessions, hierarchical caches,
disaggregation, data-parallel attention; policies `dfs-weight`, `hrrn`, `shortest-prefill-first`, `random`,
`routing-key`; eviction other than lru; a bound on the queue; timeouts.
"""

from fastsim.engines.sglang.config import SglangConfig
from fastsim.engines.sglang.engine import SglangResult, run_configs, simulate_sglang
from fastsim.engines.sglang.golden import verify_case
from fastsim.engines.sglang.inputs import SglangWorkload, build_workload, from_workload

__all__ = [
    "SglangConfig",
    "SglangResult",
    "SglangWorkload",
    "build_workload",
    "from_workload",
    "run_configs",
    "simulate_sglang",
    "verify_case",
]
