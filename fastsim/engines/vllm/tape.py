"""What a kernel wrote into a `Recorder`, read back: steps, and the tape that explanations are made of."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.engines.tape import (
    Admitted,
    Call,
    Event,
    Held,
    Preempted,
    Queued,
    Reason,
    Refused,
    Rejected,
    Step,
    Tape,
)
from fastsim.engines.vllm.recorder import LIMITS, SAME, EventKind
from fastsim.engines.vllm.scalars import ScanEnd
from fastsim.engines.vllm.state import NONE

REASONS = {
    ScanEnd.SKIPPED: Reason.PREEMPTION,
    ScanEnd.EMPTY: Reason.EMPTY,
    ScanEnd.CAP: Reason.SLOTS,
    ScanEnd.RUNNING_CAP: Reason.RUNNING_CAP,
    ScanEnd.BUDGET: Reason.BUDGET,
    ScanEnd.BLOCKS: Reason.BLOCKS,
    ScanEnd.GATE: Reason.GATE,
    ScanEnd.WATERMARK: Reason.WATERMARK,
    ScanEnd.PROJECTION: Reason.PROJECTION,
    ScanEnd.STATE: Reason.STATE,
    ScanEnd.ALIGNED: Reason.ALIGNED,
    ScanEnd.CHUNKING: Reason.CHUNKING,
    ScanEnd.DEFERRED: Reason.DEFERRED,
    ScanEnd.BYPASS_LIMIT: Reason.BYPASS_LIMIT,
    ScanEnd.SCAN_LIMIT: Reason.SCAN_LIMIT,
    ScanEnd.IN_FLIGHT: Reason.IN_FLIGHT,
    ScanEnd.POLICY_ADMIT: Reason.POLICY_ADMIT,
    ScanEnd.POLICY_CAP: Reason.POLICY_CAP,
}
"""The words for each code: a kernel can write no other."""

READERS: dict[int, Callable[[list[int]], Event]] = {
    EventKind.QUEUED: lambda row: Queued(*row[1:3]),
    EventKind.HELD: lambda row: Held(row[1]),
    EventKind.REJECTED: lambda row: Rejected(row[1], LIMITS[row[2]], row[3]),
    EventKind.ADMITTED: lambda row: Admitted(row[1], row[2], row[3], bool(row[4])),
    EventKind.PREEMPTED: lambda row: Preempted(*row[1:]),
    EventKind.REFUSED: lambda row: Refused(row[1], REASONS[ScanEnd(row[2])], *row[3:6]),
}


def recorder_holds(rec: Any, scalars: npt.NDArray[np.void] | np.void) -> bool:
    """Whether everything that the run noted found room."""
    events, preempted = int(scalars["rec_events"]), int(scalars["rec_preempted"])
    return bool(events <= len(rec.events) and preempted <= len(rec.preempted))


def recorded_steps(rec: Any, scalars: npt.NDArray[np.void] | np.void) -> list[Step]:
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


def recorded_tape(rec: Any, scalars: npt.NDArray[np.void] | np.void, steps: list[Step], drafting: bool = False) -> Tape:
    """The whole record, the steps of which have been read."""
    events = [READERS[row[0]](row) for row in rec.events[: int(scalars["rec_events"])].tolist()]
    calls = []
    at = 0
    for running, reason, request, size, *_ in rec.calls[: len(steps)].tolist():
        mine = tuple(events[at : at + size])
        calls.append(Call(running, REASONS[ScanEnd(reason)], None if request == NONE else request, mine))
        at += size
    return Tape(steps, calls, tuple(events[at:]), drafting)
