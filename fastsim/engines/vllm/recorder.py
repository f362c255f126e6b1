"""The per-step record: what the scheduler decided in every step, in the form of the recorded cases.

Written only when the configuration asks for it; a run without it carries arrays of length one and tests one flag a
step. A kernel cannot grow an array: when one is full the run stops with `LOG_FULL` and is repeated with more room.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim._jit import helper, inlined
from fastsim.engines.vllm.gaps import gap_log_has_room
from fastsim.engines.vllm.lanes import on_clock
from fastsim.engines.vllm.state import NONE

SAME = -1
"""Number of scheduled entries of a step whose list is that of the step before."""

STEP_COLUMNS = (
    "t_us",
    "scheduled",
    "preempted",
    "finished",
    "free_mid",
    "free_end",
    "running",
    "waiting",
    "start_us",
    "end_us",
)
"""Columns of `Recorder.steps`; scheduled, preempted, finished: how many entries the step has in the flat lists."""


class Recorder(NamedTuple):
    """Flat lists of decisions, filled up to the lengths in the scalars.

    ==========  =====  ==============  =================================================================
    array       dtype  shape           meaning
    ==========  =====  ==============  =================================================================
    steps       int64  (capacity, 10)  one row a schedule() call: `STEP_COLUMNS`
    scheduled   int32  (capacity, 2)   request and tokens, in the scheduler's order
    preempted   int32  (capacity,)     requests, in preemption order
    finished    int32  (capacity,)     requests, in scheduling order
    ==========  =====  ==============  =================================================================
    """

    steps: npt.NDArray[np.int64]
    scheduled: npt.NDArray[np.int32]
    preempted: npt.NDArray[np.int32]
    finished: npt.NDArray[np.int32]


def new_recorder(capacity: int) -> Recorder:
    """Room for `capacity` steps, scheduled entries, preemptions and completions each."""
    return Recorder(
        np.zeros((capacity, len(STEP_COLUMNS)), np.int64),
        np.zeros((capacity, 2), np.int32),
        np.zeros(capacity, np.int32),
        np.zeros(capacity, np.int32),
    )


@dataclass(frozen=True)
class Step:
    """One schedule() call at `t_us`, whose batch runs from `start_us` to `end_us` (asynchronous: later than the call).

    `scheduled` is (request, tokens) in the scheduler's order; times in microseconds. `finished`, `free_end`, `running`
    and `waiting` are those when its output has been processed.
    """

    t_us: int
    scheduled: list[tuple[int, int]]
    preempted: list[int]
    finished: list[int]
    free_mid: int
    free_end: int
    running: int
    waiting: int
    start_us: int
    end_us: int


def recorded_steps(rec: Recorder, scalars: npt.NDArray[np.void]) -> list[Step]:
    """The record as a list of steps, repeated lists expanded."""
    pairs = list(map(tuple, rec.scheduled[: int(scalars["rec_scheduled"])].tolist()))
    preempted = rec.preempted[: int(scalars["rec_preempted"])].tolist()
    finished = rec.finished[: int(scalars["rec_finished"])].tolist()
    steps: list[Step] = []
    at = [0, 0, 0]
    scheduled: list[tuple[int, int]] = []
    for row in rec.steps[: int(scalars["rec_steps"])].tolist():
        t_us, num_scheduled, num_preempted, num_finished, *lengths = row
        if num_scheduled != SAME:
            scheduled = pairs[at[0] : at[0] + num_scheduled]
            at[0] += num_scheduled
        steps.append(
            Step(
                t_us,
                scheduled,
                preempted[at[1] : at[1] + num_preempted],
                finished[at[2] : at[2] + num_finished],
                *lengths,
            )
        )
        at[1] += num_preempted
        at[2] += num_finished
    return steps


@inlined
def logs_have_room(s, num_requests):
    """Whether whatever the next step may be fits in the record and in the log of gaps."""
    return (not s.cfg["record"] or _record_has_room(s, num_requests)) and gap_log_has_room(s, num_requests)


@helper
def _record_has_room(s, num_requests):
    """Whether any possible next step fits."""
    return (
        s.st["rec_steps"] + s.st["in_flight"] < s.rec.steps.shape[0]
        and s.st["rec_scheduled"] + num_requests <= s.rec.scheduled.shape[0]
        and s.st["rec_preempted"] + num_requests <= s.rec.preempted.shape[0]
        and s.st["rec_finished"] + num_requests <= s.rec.finished.shape[0]
    )


@helper
def record_schedule(s, start_us, end_us):
    """After schedule(): the scheduled list in the order of the running list, and the free blocks."""
    row = s.st["rec_steps"] + s.st["in_flight"]
    size = 0
    i = s.st["running_head"]
    while i != NONE:
        tokens = 1 if on_clock(s, i) else s.req.scheduled[i]
        if tokens > 0:
            entry = s.st["rec_scheduled"] + size
            s.rec.scheduled[entry, 0] = i
            s.rec.scheduled[entry, 1] = tokens
            size += 1
        i = s.req.run_next[i]
    s.st["rec_scheduled"] += size
    s.rec.steps[row, 0] = s.st["now_us"]
    s.rec.steps[row, 1] = size
    s.rec.steps[row, 2] = s.st["preempted"]
    s.rec.steps[row, 4] = s.st["free"]
    s.rec.steps[row, 8] = start_us
    s.rec.steps[row, 9] = end_us


@helper
def record_update(s, free):
    """After update_from_output(): completions, free blocks, queue lengths. The row is complete."""
    row = s.st["rec_steps"]
    s.rec.steps[row, 3] = s.st["finished"]
    s.rec.steps[row, 5] = free
    s.rec.steps[row, 6] = s.st["running"]
    s.rec.steps[row, 7] = s.st["waiting"]
    s.st["rec_steps"] = row + 1


@helper
def record_repeated(s, t_us, free, start_us, end_us):
    """A schedule() call that fast-forward jumps over: the same list, only growth."""
    row = s.st["rec_steps"] + s.st["in_flight"]
    s.rec.steps[row, 0] = t_us
    s.rec.steps[row, 1] = SAME
    s.rec.steps[row, 2] = 0
    s.rec.steps[row, 4] = free
    s.rec.steps[row, 8] = start_us
    s.rec.steps[row, 9] = end_us
