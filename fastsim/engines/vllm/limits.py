"""What vLLM asks of a request."""

import numpy as np

from fastsim.engines.limits import Limit, RequestLengths, Value, largest, longest

NULL_BLOCKS = 1
"""Blocks of `engine.num_gpu_blocks` that no request can hold."""


def limits(value: Value, requests: RequestLengths) -> list[Limit]:
    """A prompt that leaves room for an output, and blocks for the request at its end."""
    limit, size = value("engine.max_model_len"), value("engine.block_size")
    at_end = np.minimum(requests.prompt + requests.output, limit) - 1  # the KV of the last token is never computed
    return [
        longest(requests.prompt >= limit, requests.prompt, limit, "engine.max_model_len"),
        largest(-(-at_end // size), (value("engine.num_gpu_blocks") or 1) - NULL_BLOCKS, "at its end"),
    ]
