"""SGLang 0.5.23's scheduler in plain, obvious Python: slow, and importing nothing of the package."""

from tests.reference_sglang.driver import simulate

__all__ = ["simulate"]
