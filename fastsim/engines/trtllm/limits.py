"""What TensorRT-LLM asks of a request."""

import numpy as np

from fastsim.engines.limits import Limit, RequestLengths, Value, longest


def limits(value: Value, requests: RequestLengths) -> list[Limit]:
    """A prompt that leaves room for a token in the longest request and in the cache; without chunks it fits a step."""
    blocks, size = value("engine.num_gpu_blocks") or 0, value("engine.block_size")
    told, most = value("engine.max_model_len"), value("engine.max_num_batched_tokens")
    prompt = requests.prompt
    found = [
        longest(prompt >= told, prompt, told, "engine.max_model_len"),
        longest(prompt >= blocks * size, prompt, blocks * size, "the KV pool"),
    ]
    if not value("engine.enable_chunked_prefill"):
        fails = np.asarray(prompt > most)
        found.append(longest(fails, prompt, most, "engine.max_num_batched_tokens", "prompt for a step without chunks"))
    return found
