"""What vllm-rlt asks of a request, at its submission."""

import numpy as np

from fastsim.engines.limits import Limit, RequestLengths, Value, largest


def limits(value: Value, requests: RequestLengths) -> list[Limit]:
    """Blocks in every depth plane for its prompt and declared output, whose last token never enters the cache."""
    planes = value("engine.rlt.max_loops") if value("engine.rlt.layout") == "last_exited" else 1
    held = requests.prompt + np.maximum(requests.declared, requests.output) - 1
    blocks = -(-held // value("engine.block_size")) * planes
    return [largest(blocks, value("engine.num_gpu_blocks") or 1, "for its prompt and declared output")]
