"""Keys of blocks behind the CPU tier: chained like BLIS's hashes, but numbered instead of computed.

A key stands for (the key of the block before it in the same table, what its tokens are). Along a regular table it is
the key of that block of the request or of its shared prefix. Quirk D, and tables that start in the middle, make other
chains; their keys are numbered as they appear.
"""

import numpy as np

from fastsim._jit import helper
from fastsim.engines.blis.blocks import prompt_key
from fastsim.engines.blis.codes import MORE_KEYS, NONE


@helper
def _regular_key(s, i, block):
    """Key of block `block` of a regular table of `i`, decode blocks included."""
    return prompt_key(s, i, block) if block < s.req.prompt_blocks[i] else s.req.key_start[i] + block


@helper
def _irregular_key(st, s, previous, owner, position):
    """Number of a key outside the regular chains: equal for equal (previous key, whose tokens, position)."""
    t = s.tier
    mask = t.chain_slot.shape[0] - 1
    at = (np.int64(previous) * 73856093 + np.int64(owner) * 19349663 + np.int64(position) * 83492791) & mask
    while t.chain_slot[at] != NONE:
        number = t.chain_slot[at]
        if (
            t.chain_previous[number] == previous
            and t.chain_owner[number] == owner
            and t.chain_position[number] == position
        ):
            return st["keys"] + number
        at = (at + 1) & mask
    number = st["chains"]
    if number == t.chain_owner.shape[0]:
        st["status"] = MORE_KEYS
        return st["keys"]
    st["chains"] = number + 1
    t.chain_slot[at] = number
    t.chain_previous[number] = previous
    t.chain_owner[number] = owner
    t.chain_position[number] = position
    return st["keys"] + number


@helper
def chained_key(cfg, st, s, i, previous, position):
    """Key of a block of `i` that starts at `position` behind a block with key `previous`."""
    block_size = cfg["block_size"]
    block = position // block_size
    if position % block_size == 0:
        before = _regular_key(s, i, block - 1) if block > 0 else NONE
        if previous == before:
            return _regular_key(s, i, block)
    owner = i
    if s.wl.prefix_group[i] != NONE and position + block_size <= s.wl.prefix_tokens[i]:
        owner = s.wl.arrival_us.shape[0] + s.wl.prefix_group[i]
    return _irregular_key(st, s, previous, owner, position)
