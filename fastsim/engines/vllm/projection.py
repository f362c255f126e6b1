"""Projected admission: everybody who runs must still fit when grown to the expected length."""

from fastsim._jit import helper
from fastsim.engines.vllm.codes import Projection
from fastsim.engines.vllm.lanes import delivered_on_clock, on_clock
from fastsim.engines.vllm.state import NONE

ORACLE = int(Projection.ORACLE)
MAX_TOKENS = int(Projection.MAX_TOKENS)


@helper
def expected_blocks(cfg, st, wl, req, i):
    """Blocks of a request at its expected end. A request without declared limit may use all max_model_len leaves."""
    limit = cfg["max_model_len"]
    prompt = wl.prompt_tokens[i]
    if cfg["projection"] == ORACLE:
        output = wl.output_tokens[i]
    elif cfg["projection"] == MAX_TOKENS:
        output = wl.max_tokens[i] if wl.max_tokens[i] > 0 else limit - prompt
    else:
        output = st["mean_output_tokens"]
    length = delivered_on_clock(st, req, i) if on_clock(cfg, req, i) else req.num_tokens[i]
    total = min(max(prompt + output, length + 1), limit)
    return (total + cfg["block_size"] - 1) // cfg["block_size"]


@helper
def projection_admits(cfg, st, wl, req, i, leaving):
    """Whether the expected ends of running and candidate fit in `overcommit` of the pool. Nobody running: always."""
    total = expected_blocks(cfg, st, wl, req, i)
    others = 0
    k = st["running_head"]
    while k != NONE:
        if k != leaving:
            total += expected_blocks(cfg, st, wl, req, k)
            others += 1
        k = req.run_next[k]
    return others == 0 or total <= cfg["overcommit"] * st["usable"]
