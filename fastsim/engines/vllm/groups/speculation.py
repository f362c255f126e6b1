"""Which drafts are right: a hash of the request and the position stands in for the model.

So the outcome does not depend on the schedule: whoever decodes position p of request i again gets the same answer.
"""

import numpy as np

from fastsim._jit import helper, inlined

_MASK = 0xFFFFFFFF


@inlined
def mix(seed, index, position):
    """A hash of 32 bits: a linear combination under a finaliser of two multiplications."""
    v = (np.int64(seed) * 0x9E3779B1 + np.int64(index) * 0x85EBCA77 + np.int64(position) * 0xC2B2AE3D) & _MASK
    v ^= v >> 15
    v = (v * 0x2C1B3C6D) & _MASK
    v ^= v >> 12
    v = (v * 0x297A2D39) & _MASK
    return v ^ (v >> 15)


@helper
def accepted_drafts(s, i, length, drafts):
    """How many leading ones of `drafts` are right for request `i` with `length` known tokens."""
    first = s.cfg["first_accept"]
    for j in range(drafts):
        if mix(s.cfg["spec_seed"], i, length + j) % 1000 >= s.grp.accept_permille[first + j]:
            return j
    return drafts


@inlined
def next_drafts(s, i):
    """How many drafts request `i` gets behind the tokens that are known now."""
    if s.cfg["hashed_drafts"]:
        return mix(s.cfg["spec_seed"] + 1, i, s.req.num_tokens[i]) % (s.cfg["k"] + 1)
    return s.cfg["k"]
