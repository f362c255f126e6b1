"""The integer codes of the engine."""

from enum import IntEnum

from fastsim.engines.outputs import Status, Stop


class Policy(IntEnum):
    """Capacity scheduler policies."""

    GUARANTEED_NO_EVICT = 0
    MAX_UTILIZATION = 1
    STATIC_BATCH = 2


class Chunking(IntEnum):
    """Context chunking policies; OFF: a context is computed in one step."""

    FIRST_COME_FIRST_SERVED = 0
    EQUAL_PROGRESS = 1
    OFF = 2


MAX_UTILIZATION = int(Policy.MAX_UTILIZATION)
STATIC_BATCH = int(Policy.STATIC_BATCH)
FIRST_COME = int(Chunking.FIRST_COME_FIRST_SERVED)
NO_CHUNKS = int(Chunking.OFF)

PENDING = int(Status.PENDING)
WAITING = int(Status.WAITING)
RUNNING = int(Status.RUNNING)
FINISHED = int(Status.FINISHED)
UNSERVABLE = int(Status.UNSERVABLE)

DRAINED = int(Stop.DRAINED)
HORIZON = int(Stop.HORIZON)
MAX_STEPS = int(Stop.MAX_STEPS)
NONE = -1
NO_LIMIT = 2**62
