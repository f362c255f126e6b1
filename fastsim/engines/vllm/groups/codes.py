"""The configuration as these kernels read it: vLLM's record, its KV cache groups, and its speculation."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.engines.vllm.codes import CONFIG_DTYPE


class GroupKind(IntEnum):
    """What a KV cache group keeps of a request."""

    FULL = 0
    SLIDING = 1  # the last `parameter` tokens, that being computed included
    CHUNKED = 2  # the tokens since the last multiple of `parameter`
    STATE = 3  # one state (and the speculative ones): Mamba without prefix caching
    ALIGNED = 4  # the running state, and states at block boundaries: Mamba with prefix caching


DENSE = -1
"""`retention` when everything is kept."""

_FIELDS = (
    "num_groups",
    "first_group",  # in the arrays of `Groups`
    "row_width",  # entries of all block tables of a request
    "common",  # least common multiple of the block sizes
    "retention",  # tokens; 0: prompt ends only; DENSE
    "full_first",  # two classes, the first of full attention: one pass of lookup is enough
    "aligned_group",  # a group of Kind.ALIGNED, or -1
    # speculation
    "k",  # drafts a decode; 0: none
    "lookahead",  # tokens beyond the scheduled ones for which the drafter needs room
    "draft_slots",  # input slots it takes for each scheduled request
    "hash_lookahead",  # tokens behind a block that its hash covers
    "drops_block",  # a prefix hit loses its last block
    "hashed_drafts",  # how many drafts a request gets is drawn, too
    "spec_seed",
    "first_accept",  # in `Groups.accept_permille`
)

GROUPS_CONFIG_DTYPE = np.dtype(
    [
        *((name, CONFIG_DTYPE[name]) for name in CONFIG_DTYPE.names or ()),
        *((name, np.int64) for name in _FIELDS),
        ("draft_us", np.float64),
        ("draft_us_per_token", np.float64),
    ]
)
"""CONFIG_DTYPE and what comes on top of it."""

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


class Groups(NamedTuple):
    """The groups of all configurations of a chunk, one configuration's behind the other's; read-only.

    ================  =====  ======  ===============================================================================
    array             dtype  unit    meaning
    ================  =====  ======  ===============================================================================
    kind              int32          `GroupKind`
    block_size        int32  tokens
    parameter         int32  tokens  window or chunk
    run               int32  blocks  sliding: consecutive entries that make a hit
    spec_blocks       int32  blocks  states for drafts
    checkpoint        int32  bool    writes a state from inside a chunk
    cap               int32  blocks  most that the gate asks for
    drops             int32  bool    loses the last block of a hit
    period            int32  blocks  sliding, aligned: of the entries that are hashed whatever their request; 0: none
    offset            int32          where its entries start in a request's row of tables
    by_class          int32          group at this place when groups stand class by class, full attention first
    class_of          int32          class of the group at this place
    accept_permille   int32          for each draft (not for each group)
    ================  =====  ======  ===============================================================================
    """

    kind: Int32Array
    block_size: Int32Array
    parameter: Int32Array
    run: Int32Array
    spec_blocks: Int32Array
    checkpoint: Int32Array
    cap: Int32Array
    drops: Int32Array
    period: Int32Array
    offset: Int32Array
    by_class: Int32Array
    class_of: Int32Array
    accept_permille: Int32Array
