"""Allocation of the state, once for many runs."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.engines.arrays import checked, zeros
from fastsim.engines.blis.inputs import BlisWorkload
from fastsim.engines.blis.state import GAP_COUNTS, BlisLog, Blocks, Int64Array, Lists, Requests, State, StepGaps, Tier
from fastsim.engines.heap import new_heap
from fastsim.engines.outputs import RequestLog


def new_blis_log(size: int) -> BlisLog:
    """An empty log of `size` entries."""
    return BlisLog(*(np.zeros(size, np.int64) for _ in BlisLog._fields))


class Sizes(NamedTuple):
    """Lengths of the buffers whose need is not known beforehand; a run that needs more is repeated with more."""

    segments: int = 16384
    ranges: int = 256
    chains: int = 256


def new_state(wl: BlisWorkload, configs: npt.NDArray[Any], sizes: Sizes, log: RequestLog, blis: BlisLog) -> State:
    """State large enough for every one of `configs` over `wl`."""
    n = len(wl.arrival_us)
    block_sizes = np.unique(configs["block_size"])
    smallest = int(block_sizes.min(initial=1 << 30))
    tiered = bool((configs["kv_cpu_blocks"] > 0).any())
    most_blocks = int(configs["total_kv_blocks"].max(initial=0))
    prompt_blocks = wl.prompt_tokens // smallest
    output_blocks = wl.output_tokens // smallest + 4
    tables = int(prompt_blocks.sum(dtype=np.int64)) + 1
    keys = tables + int((wl.group_prefix_tokens // smallest).sum(dtype=np.int64))
    if tiered:
        tables += int((prompt_blocks + output_blocks).sum(dtype=np.int64))
        keys += int(output_blocks.sum(dtype=np.int64)) + sizes.chains
    checked(keys, "the blocks of all prompts", "raise engine.block_size, or offer fewer or shorter requests")
    longest = int((prompt_blocks + output_blocks).max(initial=1))
    nodes = int(configs["kv_cpu_blocks"].max(initial=0))
    blocks = dict.fromkeys(Blocks._fields, most_blocks) | {
        "ring": 2 * most_blocks + 2,
        "table": tables,
        "label": keys,
        "group_key": len(wl.group_prefix_tokens),
        "cached": 2 * longest,
    }
    tier = dict.fromkeys(Tier._fields, sizes.chains if tiered else 0) | {
        "node_key": nodes,
        "node_prev": nodes,
        "node_next": nodes,
        "key_node": keys if tiered else 0,
        "chain_slot": _power_of_two(2 * sizes.chains) if tiered else 0,
    }
    gaps = dict.fromkeys(StepGaps._fields, sizes.ranges) | {
        "step_us": sizes.segments + 1,
        "steps": sizes.segments + 1,
        "weight": sizes.segments + 1,
        "counts": GAP_COUNTS,
    }
    return State(
        wl,
        Requests(*(_i64(n) for _ in Requests._fields)),
        Blocks(**{name: _i64(size) for name, size in blocks.items()}),
        Tier(**{name: _i64(size) for name, size in tier.items()}),
        StepGaps(**{name: _i64(size) for name, size in gaps.items()}),
        new_heap(n),
        new_heap(n),
        new_heap(n),
        Lists(_i64(n), _i64(int(block_sizes.max(initial=1))), _i64(n)),
        log,
        blis,
    )


def _i64(size: int) -> Int64Array:
    return zeros(size, np.int64)


def _power_of_two(least: int) -> int:
    return 1 << max(least - 1, 1).bit_length()
