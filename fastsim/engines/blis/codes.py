"""Every integer code of the engine, once."""

from enum import IntEnum

from fastsim.engines.outputs import Status, Stop


class Scheduler(IntEnum):
    """In which order the waiting queue is served; ties by arrival, then by id as a string."""

    FCFS = 0  # queue order; preempted requests in front
    SJF = 1  # shortest prompt first
    PRIORITY_FCFS = 2  # most urgent class first
    REVERSE_PRIORITY = 3  # least urgent class first


class PreemptionPolicy(IntEnum):
    """Who loses its blocks when a running request needs one and none is free."""

    FCFS = 0  # the tail of the running list
    PRIORITY = 1  # the least urgent class, among those the latest arrival, among those the last in the list


class RunStatus(IntEnum):
    """What a kernel returns: done, or which buffer has to grow before the run can be repeated."""

    DONE = 0
    MORE_SEGMENTS = 1
    MORE_RANGES = 2
    MORE_KEYS = 3


SLO_PRIORITY = {"critical": 0, "standard": 1, "": 1, "batch": 5, "sheddable": 6, "background": 7}
"""Instance priority of an SLO class; smaller is more urgent. An unknown class counts as standard."""

NONE = -1
"""No such index, no key."""

NO_LIMIT = 2**62
"""Stands for "no horizon", "no cap on steps" and "no such event"."""

SCHEDULER_FCFS = int(Scheduler.FCFS)
SCHEDULER_SJF = int(Scheduler.SJF)
SCHEDULER_PRIORITY_FCFS = int(Scheduler.PRIORITY_FCFS)
PREEMPTION_FCFS = int(PreemptionPolicy.FCFS)

NOT_BLOCKED, BLOCKED_EMPTY, BLOCKED_CAP, BLOCKED_BLOCKS = range(4)
"""Why admission stopped: not tried; the queue is empty; no seat or no budget; the head's blocks."""

PENDING = int(Status.PENDING)
WAITING = int(Status.WAITING)
RUNNING = int(Status.RUNNING)
FINISHED = int(Status.FINISHED)
TIMED_OUT = int(Status.TIMED_OUT)
UNSERVABLE = int(Status.UNSERVABLE)

DRAINED = int(Stop.DRAINED)
HORIZON = int(Stop.HORIZON)
MAX_STEPS = int(Stop.MAX_STEPS)
LIVELOCK = int(Stop.LIVELOCK)

DONE = int(RunStatus.DONE)
MORE_SEGMENTS = int(RunStatus.MORE_SEGMENTS)
MORE_RANGES = int(RunStatus.MORE_RANGES)
MORE_KEYS = int(RunStatus.MORE_KEYS)
