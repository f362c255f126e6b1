"""What BLIS asks of a request, as it joins the queue."""

import numpy as np

from fastsim.engines.limits import Limit, RequestLengths, Value, largest, longest


def limits(value: Value, requests: RequestLengths) -> list[Limit]:
    """`max_model_len`, if there is one, and blocks for the prompt: one that outgrows the pool later is served."""
    limit = int(value("engine.blis.max_model_len"))
    whole = requests.prompt + requests.output
    fails = (requests.prompt >= limit) | (whole > limit) if limit else np.zeros(len(whole), np.bool_)
    blocks = -(-requests.prompt // value("engine.block_size"))
    return [
        longest(fails, whole, limit, "engine.blis.max_model_len", "prompt and output"),
        largest(blocks, value("engine.num_gpu_blocks") or 1, "for its prompt"),
    ]
