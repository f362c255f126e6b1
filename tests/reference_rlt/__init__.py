"""The staged scheduler of vllm-rlt in plain Python: what the compiled kernel must equal, written to be read."""

from tests.reference_rlt.engine import simulate

__all__ = ["simulate"]
