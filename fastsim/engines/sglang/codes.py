"""The integer codes of the engine. Kernels use the plain integers below each enum."""

from enum import IntEnum

from fastsim.engines.outputs import Status, Stop

NONE = -1
"""No such request, node, batch or count."""

NO_LIMIT = 2**60
"""Stands for "no horizon", "no cap", and for chunked prefill that is off."""


class Policy(IntEnum):
    """Order of the waiting queue (schedule_policy)."""

    FCFS = 0
    LPM = 1
    LOF = 2


LPM = int(Policy.LPM)
LOF = int(Policy.LOF)


class Retraction(IntEnum):
    """Which requests are retracted first (retraction_policy)."""

    LENGTH = 0
    PRIORITY = 1


BY_PRIORITY = int(Retraction.PRIORITY)

CONTINUE, OTHER, NO_TOKEN = range(3)
"""What the budgets of a prefill pass still allow."""

PENDING = int(Status.PENDING)
WAITING = int(Status.WAITING)
RUNNING = int(Status.RUNNING)
FINISHED = int(Status.FINISHED)
ABORTED = int(Status.REJECTED)
UNSERVABLE = int(Status.UNSERVABLE)

DRAINED = int(Stop.DRAINED)
HORIZON = int(Stop.HORIZON)
MAX_STEPS = int(Stop.MAX_STEPS)
LIVELOCK = int(Stop.LIVELOCK)
OUT_OF_MEMORY = int(Stop.OUT_OF_MEMORY)
NO_PROGRESS = 2
"""Kind of livelock: nobody runs, and nobody can ever be admitted."""

MORE_ROOM = -2
"""The run needs more tree nodes, or a longer record, than it was given."""

IDLE, EXTEND, DECODE, MIXED = range(4)
KINDS = "-EDM"
"""What a pass ran, as a number and as the letter of the recordings."""

REFRESH_EVERY = 32
QUEUE_LIMIT = 128
"""Longest-prefix order is given up, and the refresh ends, beyond so many waiting requests."""
