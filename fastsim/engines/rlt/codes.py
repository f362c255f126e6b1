"""The integer codes of the engine. Kernels use the plain integers below each enum."""

from enum import IntEnum

import numpy as np


class Stage(IntEnum):
    """Where a request is. The first four are stages a step can run, each with a FIFO of its own."""

    PREFILL = 0
    PRELUDE = 1
    RECURRENT = 2
    CODA = 3
    WAITING = 4
    FINISHED = 5
    UNSERVABLE = 6
    PENDING = 7


PREFILL = int(Stage.PREFILL)
PRELUDE = int(Stage.PRELUDE)
RECURRENT = int(Stage.RECURRENT)
CODA = int(Stage.CODA)
WAITING = int(Stage.WAITING)
FINISHED = int(Stage.FINISHED)
UNSERVABLE = int(Stage.UNSERVABLE)
PENDING = int(Stage.PENDING)
NUM_STAGES = 4
NONE = -1  # no request, no page, no stage


class Policy(IntEnum):
    """Order of the waiting queue."""

    FCFS = 0
    PRIORITY = 1


PRIORITY = int(Policy.PRIORITY)


class Mode(IntEnum):
    """`REFILL` tops the decode batch up at any time; `NO_REFILL` drains one cohort after the other."""

    REFILL = 0
    NO_REFILL = 1


REFILL = int(Mode.REFILL)


class Phase(IntEnum):
    """What a `NO_REFILL` engine is doing."""

    FILL = 0
    CORE = 1
    CODA = 2


PHASE_FILL = int(Phase.FILL)
PHASE_CORE = int(Phase.CORE)
PHASE_CODA = int(Phase.CODA)


class OnLivelock(IntEnum):
    """What to do once empty steps have repeated a state.

    `STEP` goes on step by step; `STOP` ends the run; `SKIP` counts the cycles up to the horizon without running them,
    which gives the totals of `STEP`. With an arrival still to come, `STOP` and `SKIP` both skip up to it. Without a
    horizon or a last step every choice stops.
    """

    STEP = 0
    STOP = 1
    SKIP = 2


LIVELOCK_STEP = int(OnLivelock.STEP)
LIVELOCK_STOP = int(OnLivelock.STOP)


class Note(IntEnum):
    """Rows of the tape, in the order things happen. Operands in brackets; a step ends with its `STEP` row."""

    ARRIVAL = 0  # [request]
    ADMIT = 1  # [request, cached tokens, budget blocks]
    RESTORE = 2  # [request]
    BLOCKED = 3  # [request, bypasses]
    DEFER = 4  # [request, bypasses]
    PREEMPT_SLOT = 5  # [requester, victim]
    PREEMPT_GROW = 6  # [requester, victim]
    NOGROW = 7  # [request]
    STOP = 8  # [ScanStop]
    ITEM = 9  # [request, start, count, depth]
    TOKEN = 10  # [request]
    FINISHED = 11  # [request]
    WAITING = 12  # [request], one row a place of the queue
    BYPASSES = 13  # [request, bypasses], unfinished requests that were bypassed
    STEP = 14  # [clock, stage, free blocks, active]


# NumPy integers, because a plain one has a type of its own to Numba, and `note` would be compiled anew for each
NOTE_ARRIVAL = np.int64(Note.ARRIVAL)
NOTE_ADMIT = np.int64(Note.ADMIT)
NOTE_RESTORE = np.int64(Note.RESTORE)
NOTE_BLOCKED = np.int64(Note.BLOCKED)
NOTE_DEFER = np.int64(Note.DEFER)
NOTE_PREEMPT_SLOT = np.int64(Note.PREEMPT_SLOT)
NOTE_PREEMPT_GROW = np.int64(Note.PREEMPT_GROW)
NOTE_NOGROW = np.int64(Note.NOGROW)
NOTE_STOP = np.int64(Note.STOP)
NOTE_ITEM = np.int64(Note.ITEM)
NOTE_TOKEN = np.int64(Note.TOKEN)
NOTE_FINISHED = np.int64(Note.FINISHED)
NOTE_WAITING = np.int64(Note.WAITING)
NOTE_BYPASSES = np.int64(Note.BYPASSES)
NOTE_STEP = np.int64(Note.STEP)
NOTHING = np.int64(0)  # an operand that is not used


class ScanStop(IntEnum):
    """Why an admission scan ended before its bound."""

    SLOTS = 0
    BLOCKED_LIMIT = 1
    DEFER_LIMIT = 2
    BYPASS_LIMIT = 3


STOP_SLOTS = np.int64(ScanStop.SLOTS)
STOP_BLOCKED_LIMIT = np.int64(ScanStop.BLOCKED_LIMIT)
STOP_DEFER_LIMIT = np.int64(ScanStop.DEFER_LIMIT)
STOP_BYPASS_LIMIT = np.int64(ScanStop.BYPASS_LIMIT)
