"""Why a waiting scan ended: what fast-forward may conclude from it."""

from enum import IntEnum


class ScanEnd(IntEnum):
    """The first reason that stopped the waiting loop of a step."""

    SKIPPED = 0  # a request was preempted in this step, so there was no scan
    EMPTY = 1
    CAP = 2
    BUDGET = 3
    BLOCKS = 4  # full-sequence gate, need or watermark
    CHUNKING = 5  # chunked prefill off and the head larger than the budget
    DEFERRED = 6  # prefill_schedule_interval
    PROJECTION = 7
    BYPASS_LIMIT = 8
    SCAN_LIMIT = 9
