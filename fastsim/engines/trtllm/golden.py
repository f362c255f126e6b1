"""Recordings: there are none of TensorRT-LLM's scheduler, whose KV cache manager needs a GPU."""

from typing import Any


def verify_case(case: dict[str, Any]) -> str | None:
    """A difference in every case: nothing recorded can be replayed."""
    return f"{case.get('name')}: no recording of TensorRT-LLM's scheduler can be replayed, its rules are only read"
