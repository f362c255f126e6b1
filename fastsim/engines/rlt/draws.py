"""The generator of tight cases, inside kernels: splitmix64, a state per case, values in a fixed order."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim._jit import helper

GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
SHIFT_27 = np.uint64(27)
SHIFT_30 = np.uint64(30)
SHIFT_31 = np.uint64(31)
SHIFT_32 = np.uint64(32)
"""splitmix64 (Steele, Lea, Flood 2014)."""


class Knob(IntEnum):
    """What is drawn, the rows of `Draw.ranges`."""

    NUM_REQUESTS = 0
    ARRIVAL_US = 1
    PROMPT_TOKENS = 2
    OUTPUT_TOKENS = 3
    PRIORITY = 4
    NUM_BLOCKS = 5
    BLOCK_SIZE = 6
    MAX_NUM_SEQS = 7
    MAX_NUM_BATCHED_TOKENS = 8
    PREFILL_CHUNK_SIZE = 9


NUM_REQUESTS = int(Knob.NUM_REQUESTS)
ARRIVAL_US = int(Knob.ARRIVAL_US)
PROMPT_TOKENS = int(Knob.PROMPT_TOKENS)
OUTPUT_TOKENS = int(Knob.OUTPUT_TOKENS)
PRIORITY_VALUE = int(Knob.PRIORITY)
NUM_BLOCKS = int(Knob.NUM_BLOCKS)
BLOCK_SIZE = int(Knob.BLOCK_SIZE)
MAX_NUM_SEQS = int(Knob.MAX_NUM_SEQS)
MAX_NUM_BATCHED_TOKENS = int(Knob.MAX_NUM_BATCHED_TOKENS)
PREFILL_CHUNK_SIZE = int(Knob.PREFILL_CHUNK_SIZE)

CASE_DTYPE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "num_requests",
            "num_blocks",
            "block_size",
            "max_num_seqs",
            "max_num_batched_tokens",
            "prefill_chunk_size",
            "demand_blocks",  # blocks of all requests at their largest
            "largest_blocks",  # of the largest request
            "priority_levels",  # distinct priority values
        )
    ]
)
"""What a drawn case was like."""


class Draw(NamedTuple):
    """Scratch of the generator: `ranges` (knobs, 3) int64, `random` (1,) uint64, the state of splitmix64."""

    ranges: npt.NDArray[np.int64]
    random: npt.NDArray[np.uint64]


@helper
def mix64(z):
    """The output function of splitmix64."""
    z = (z ^ (z >> SHIFT_30)) * MIX_1
    z = (z ^ (z >> SHIFT_27)) * MIX_2
    return z ^ (z >> SHIFT_31)


@helper
def draw(d, knob):
    """The next value of a knob."""
    d.random[0] += GOLDEN_GAMMA
    low = d.ranges[knob, 0]
    step = d.ranges[knob, 2]
    count = np.uint64((d.ranges[knob, 1] - low) // step + 1)
    return low + step * np.int64((mix64(d.random[0]) >> SHIFT_32) * count >> SHIFT_32)


@helper
def draw_config(d, cfg, case):
    """The knobs of a case."""
    case["num_requests"] = draw(d, NUM_REQUESTS)
    case["num_blocks"] = draw(d, NUM_BLOCKS)
    case["block_size"] = draw(d, BLOCK_SIZE)
    case["max_num_seqs"] = draw(d, MAX_NUM_SEQS)
    case["max_num_batched_tokens"] = draw(d, MAX_NUM_BATCHED_TOKENS)
    case["prefill_chunk_size"] = draw(d, PREFILL_CHUNK_SIZE)
    cfg["num_blocks"] = case["num_blocks"]
    cfg["block_size"] = case["block_size"]
    cfg["max_num_seqs"] = case["max_num_seqs"]
    cfg["max_num_batched_tokens"] = case["max_num_batched_tokens"]
    cfg["prefill_chunk_size"] = case["prefill_chunk_size"]


@helper
def draw_requests(d, cfg, case, wl):
    """The requests of a case, in submission order: arrivals sorted as they are drawn, ties in drawing order."""
    capacity = cfg["num_blocks"] // cfg["planes"] * cfg["block_size"]
    n = case["num_requests"]
    for i in range(n):
        arrival = draw(d, ARRIVAL_US)
        k = i
        while k > 0 and wl.arrival_us[k - 1] > arrival:
            wl.arrival_us[k] = wl.arrival_us[k - 1]
            k -= 1
        wl.arrival_us[k] = arrival
    case["demand_blocks"] = 0
    case["largest_blocks"] = 0
    case["priority_levels"] = 0
    for i in range(n):
        prompt = min(draw(d, PROMPT_TOKENS), capacity)
        output = min(draw(d, OUTPUT_TOKENS), capacity - prompt + 1)
        wl.prompt_tokens[i] = prompt
        wl.output_tokens[i] = output
        wl.max_tokens[i] = output
        wl.priority[i] = draw(d, PRIORITY_VALUE)
        blocks = (prompt + output - 2 + cfg["block_size"]) // cfg["block_size"] * cfg["planes"]
        case["demand_blocks"] += blocks
        case["largest_blocks"] = max(case["largest_blocks"], blocks)
        new = 1
        for k in range(i):
            if wl.priority[k] == wl.priority[i]:
                new = 0
        case["priority_levels"] += new


@helper
def draw_case(d, seed, index, cfg, case, wl):
    """Case `index` of `seed`."""
    d.random[0] = mix64(mix64(np.uint64(seed)) + np.uint64(index))
    draw_config(d, cfg, case)
    draw_requests(d, cfg, case, wl)
