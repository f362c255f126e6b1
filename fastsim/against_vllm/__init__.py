"""The installed vLLM's own scheduler instead of a recording: its decisions on a case's requests, without a GPU.

Only the GPU is simulated: a step takes what the latency model says, and every request whose tokens are all computed
gets one token. vLLM is imported when a case is replayed, never before.
"""

from typing import Any

from fastsim.against_vllm.drive import decisions
from fastsim.against_vllm.installed import installed_engines
from fastsim.replay import verify_case as verify_recorded

__all__ = ["decisions", "installed_engines", "verify_case"]


def verify_case(case: dict[str, Any]) -> str | None:
    """Compare with what the installed vLLM does now: None when all is the same, else the first difference in one line.

    The decisions that the case holds are not looked at.
    """
    return verify_recorded(decisions(case))
