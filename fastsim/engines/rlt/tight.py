"""Random workloads on caches too small for them, to see how often the admission livelocks, and what makes it likely.

A case is drawn from a `TightSpace` by its seed and index alone, with splitmix64, so it is the same on every machine,
in every chunk and order. Each is run under both accountings in one call, thousands of cases at a time.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim._jit import borrow, entry
from fastsim.engines.outputs import ITL_BINS, TOTALS_DTYPE, Gaps
from fastsim.engines.rlt.config import RltConfig
from fastsim.engines.rlt.draws import CASE_DTYPE, Draw, draw_case
from fastsim.engines.rlt.inputs import RltWorkload, build_workload
from fastsim.engines.rlt.kernel import run
from fastsim.engines.rlt.state import RLT_TOTALS_DTYPE, State, new_scalars, new_state
from fastsim.errors import InputError

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
