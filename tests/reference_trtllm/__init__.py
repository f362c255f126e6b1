"""TensorRT-LLM's capacity and micro-batch schedulers in plain Python, from their published rules: the oracle.

Objects, lists and exact integers; it imports nothing of the kernels. No recording of the real scheduler verified it.
"""

from tests.reference_trtllm.requests import Request, Settings, Step
from tests.reference_trtllm.simulator import Simulator

__all__ = ["Request", "Settings", "Simulator", "Step"]
