"""Random workloads on caches too small for them, to see how often the admission livelocks, and what makes it likely.

A case is drawn from a `TightSpace` by its seed and index alone, with splitmix64, so it is the same on every machine,
in every chunk and order. Each is run under both accountings in one call, thousands of cases at a time.
"""

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim._jit import borrow, entry, helper
from fastsim.engines.outputs import ITL_BINS, TOTALS_DTYPE, Gaps
from fastsim.engines.rlt.inputs import RltWorkload, build_workload
from fastsim.engines.rlt.kernel import run
from fastsim.engines.rlt.state import RLT_TOTALS_DTYPE, State, new_scalars, new_state
from fastsim.errors import InputError
from tests.rlt_config import RltConfig

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


Range = tuple[int, int, int]
"""low, high, step"""


@dataclass(frozen=True, slots=True)
class TightSpace:
    """What a case is drawn from: uniform over low, low + step, ..., up to high; (low, high, step) each.

    The defaults surround the recorded livelocks. Prompts and outputs are cut so that every request could run alone.
    """

    num_requests: Range = (10, 10, 1)
    arrival_us: Range = (0, 24, 1)
    prompt_tokens: Range = (1, 9, 1)
    output_tokens: Range = (1, 8, 1)
    priority: Range = (0, 9, 1)
    num_blocks: Range = (40, 48, 8)
    block_size: Range = (1, 2, 1)
    max_num_seqs: Range = (3, 8, 1)
    max_num_batched_tokens: Range = (4, 16, 4)
    prefill_chunk_size: Range = (3, 4, 1)

    def __post_init__(self) -> None:
        for item in fields(self):
            low, high, step = getattr(self, item.name)
            least = 0 if item.name in ("arrival_us", "priority") else 1
            if not (least <= low <= high < 2**31 and step >= 1):
                raise InputError(
                    f"tight.{item.name} = {[low, high, step]}: expected low, high, step with {least} <= low <= high "
                    "and step >= 1"
                )

    def to_array(self) -> npt.NDArray[np.int64]:
        """The ranges in the order of `Knob`, int64, shape (knobs, 3)."""
        return np.array([getattr(self, item.name) for item in fields(self)], np.int64)


@entry
def draw_one(drawing, seed, index, cfgs, cases, workload):
    """Write case `index` into `cfgs[0]`, `cases[0]` and the first requests of `workload`."""
    draw_case(borrow(drawing), seed, index, cfgs[0], cases[0], borrow(workload))


@entry
def run_tight(drawing, seed, first, cfgs, sts, state, cases, totals, extras, itl):
    """Draw and run cases `first`, `first` + 1, ..., one a row of `cases`.

    `totals` and `extras` have two rows a case: the accounting before upstream's fix, and after it.
    """
    d = borrow(drawing)
    wl = borrow(state.wl)
    for k in range(cases.shape[0]):
        draw_case(d, seed, first + k, cfgs[0], cases[k], wl)
        sts[0]["num_requests"] = cases[k]["num_requests"]
        for fixed in range(2):
            cfgs[0]["count_restores"] = fixed
            cfgs[0]["blocked_checks_limit"] = fixed
            row = 2 * k + fixed
            run(cfgs, sts, state, totals[row : row + 1], extras[row : row + 1], itl)


TIGHT_BASE = RltConfig(
    num_blocks=48,
    block_size=1,
    max_loops=4,
    incremental=True,
    max_num_seqs=4,
    max_num_batched_tokens=4,
    prefill_chunk_size=3,
    horizon_us=500,
    on_livelock="skip",
)
"""What cases have in common: priority, preemption, incremental allocation, 500 ticks. Drawn knobs replace its own."""


@dataclass(frozen=True, slots=True)
class TightRuns:
    """Cases and what became of them.

    `cases` (count,) of CASE_DTYPE; `totals` (count, 2) of TOTALS_DTYPE and `extras` (count, 2) of RLT_TOTALS_DTYPE,
    column 0 before upstream's fix of the accounting, column 1 after.
    """

    cases: npt.NDArray[Any]
    totals: npt.NDArray[Any]
    extras: npt.NDArray[Any]


def _check(space: TightSpace, base: RltConfig) -> None:
    if base.prefix_caching:
        raise InputError("engine.prefix_caching = true: drawn workloads have no shared prefixes")
    if base.wavefront and space.prefill_chunk_size[1] > space.max_num_batched_tokens[0]:
        raise InputError(
            f"tight.prefill_chunk_size = {list(space.prefill_chunk_size)}: wavefront prefill expects at most the least "
            f"max_num_batched_tokens, {space.max_num_batched_tokens[0]}"
        )
    if space.num_blocks[0] < base.planes:
        raise InputError(f"tight.num_blocks = {list(space.num_blocks)}: expected at least {base.planes}, one page")


def _workload_room(count: int) -> RltWorkload:
    ones = np.ones(count, np.int64)
    return build_workload(ones, ones, ones, ones)


def run_tight_cases(space: TightSpace, seed: int, first: int, count: int, base: RltConfig = TIGHT_BASE) -> TightRuns:
    """Draw cases `first` to `first + count - 1` of `seed` and run each under both accountings."""
    _check(space, base)
    room = space.num_requests[1]
    ranges = -(-space.prompt_tokens[1] // space.prefill_chunk_size[0])
    state: State = new_state(
        _workload_room(room), num_tasks=room * ranges if base.wavefront else 0, max_loops=base.max_loops
    )
    cases = np.zeros(count, CASE_DTYPE)
    totals = np.zeros(2 * count, TOTALS_DTYPE)
    extras = np.zeros(2 * count, RLT_TOTALS_DTYPE)
    with np.errstate(over="ignore"):  # splitmix64 wraps around
        run_tight(
            Draw(space.to_array(), np.zeros(1, np.uint64)),
            seed,
            first,
            base.to_record(),
            new_scalars(room),
            state,
            cases,
            totals,
            extras,
            Gaps(np.zeros(ITL_BINS, np.int64)),
        )
    return TightRuns(cases, totals.reshape(count, 2), extras.reshape(count, 2))


def tight_case(space: TightSpace, seed: int, index: int, base: RltConfig = TIGHT_BASE) -> tuple[RltConfig, RltWorkload]:
    """Case `index` of `seed` by itself, to be run, recorded or explained; its accounting is `base`'s."""
    _check(space, base)
    workload = _workload_room(space.num_requests[1])
    cases = np.zeros(1, CASE_DTYPE)
    with np.errstate(over="ignore"):
        draw_one(Draw(space.to_array(), np.zeros(1, np.uint64)), seed, index, base.to_record(), cases, workload)
    case = cases[0]
    n = int(case["num_requests"])
    config = replace(
        base,
        num_blocks=int(case["num_blocks"]),
        block_size=int(case["block_size"]),
        max_num_seqs=int(case["max_num_seqs"]),
        max_num_batched_tokens=int(case["max_num_batched_tokens"]),
        prefill_chunk_size=int(case["prefill_chunk_size"]),
    )
    return config, build_workload(
        workload.arrival_us[:n], workload.prompt_tokens[:n], workload.output_tokens[:n], workload.priority[:n]
    )


_SEEDFIGURES = (
    (18, 1, 4, 2),
    (13, 2, 3, 0),
    (22, 4, 7, 1),
    (16, 7, 1, 0),
    (19, 9, 1, 9),
    (12, 5, 3, 0),
    (15, 1, 3, 5),
    (11, 3, 3, 1),
    (24, 6, 2, 6),
    (21, 7, 3, 0),
)
"""Arrival tick, prompt, outputs, priority."""


def seedfigures_nowave() -> tuple[RltConfig, RltWorkload]:
    """The workload whose five figures are those of upstream's fix.

    Before: 3 of 10 requests in 500 steps with 460 preemptions; after: 10 of 10 in 124 steps with 11. It was found by
    search (upstream's own inputs are not public); the accounting of the returned configuration is the fixed one.
    """
    arrival, prompt, output, priority = zip(*_SEEDFIGURES, strict=True)
    return TIGHT_BASE, build_workload(arrival, prompt, output, priority)
