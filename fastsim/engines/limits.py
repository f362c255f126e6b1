"""What an engine asks of a request, so that one can be named that it can never serve. Light: no compiler."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]
Value = Callable[[str], Any]
"""The value of a key of the configuration."""


class RequestLengths(NamedTuple):
    """Lengths of the requests in tokens, int64, shape (num_requests,): `declared` is the limit each was sent with."""

    prompt: Int64Array
    output: Int64Array
    declared: Int64Array


class Limit(NamedTuple):
    """Who fails a limit, and the clause that says it of some of those."""

    fails: Mask
    clause: Callable[[Mask], str]


Limits = Callable[[Value, RequestLengths], list[Limit]]
"""`Engine.limits`: what is asked of every request, in the engine's order."""


def no_limits(value: Value, requests: RequestLengths) -> list[Limit]:
    """Whatever comes is served."""
    return []


def longest(fails: Mask, tokens: Int64Array, limit: int, key: str, what: str = "") -> Limit:
    """At most so many tokens, of a prompt or of `what`."""
    words = f"too long a {what}" if what else "too long a prompt: it leaves no room for an output"
    return Limit(fails, lambda hit: f"with {words} in {key} = {limit:,} tokens ({_up_to(tokens[hit])})")


def largest(blocks: Int64Array, usable: int, when: str) -> Limit:
    """At most as many KV blocks as there are."""
    text = f"with too few KV blocks {when}: {usable:,} are usable, and it takes "
    return Limit(blocks > usable, lambda hit: text + _up_to(blocks[hit]))


def _up_to(values: Int64Array) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{high:,}" if low == high else f"{low:,} to {high:,}"
