"""What a policy's functions are given, out of the state of a run: the fields that are more than a load."""

from fastsim._jit import helper
from fastsim.engines.vllm.free_list import blocks_for
from fastsim.engines.vllm.lanes import length
from fastsim.engines.vllm.state import NONE


@helper
def waiting_requests(s):
    """Requests that wait, those set aside in a scan included."""
    return s.st["waiting"] + s.st["deferred"] + s.st["passed_over"]


@helper
def prefilling_requests(s):
    """Requests that run and miss more than the one token of a decode. They are all explicit."""
    count = 0
    i = s.q.lane_head[s.cfg["block_size"]]
    while i != NONE:
        computed = s.req.num_computed_tokens[i]
        if computed + 1 != length(s, i) or computed < s.wl.prompt_tokens[i]:
            count += 1
        i = s.req.lane_next[i]
    return count


@helper
def output_limit(s, i):
    """The output limit that a request declared, or what max_model_len leaves."""
    declared = s.wl.max_tokens[i]
    return declared if declared > 0 else s.cfg["max_model_len"] - s.wl.prompt_tokens[i]


@helper
def candidate_blocks(s, i):
    """Blocks of all tokens of a candidate but its hits."""
    return blocks_for(s, s.req.num_tokens[i]) - s.st["candidate_hits"]
