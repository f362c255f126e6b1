"""What SGLang asks of a request."""

from fastsim.engines.limits import Limit, RequestLengths, Value, longest

LEAST_ROOM = 6
"""Tokens that a prompt must leave of the context length and of the pool."""


def limits(value: Value, requests: RequestLengths) -> list[Limit]:
    """A prompt that leaves room in the context length and in the pool, whichever is shorter."""
    given, page = value("engine.sglang.max_total_tokens"), value("engine.sglang.page_size")
    tokens = (value("engine.num_gpu_blocks") or 1) * value("engine.block_size") if given is None else given
    lengths = (value("engine.max_model_len"), "engine.max_model_len"), (tokens // page * page, "the KV pool")
    limit, key = min(lengths)
    return [longest(requests.prompt >= limit - LEAST_ROOM, requests.prompt, limit, key)]
