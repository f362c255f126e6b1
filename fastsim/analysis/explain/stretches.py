"""The times that one request spent in the queue, each cut by what it waited for."""

from dataclasses import dataclass

from fastsim.analysis.explain.history import History
from fastsim.analysis.explain.waits import NEVER_QUEUED, Blocked, Reason, blocked
from fastsim.engines.outputs import NEVER


@dataclass(frozen=True)
class Stretch:
    """One stay in the queue. `parts` follow each other without gaps from `since_us` to `until_us`.

    `ahead` requests stood before it when it was first passed over.
    """

    since_us: int
    until_us: int
    ahead: int
    parts: tuple[Blocked, ...]


def stretches(history: History, request: int) -> list[Stretch]:
    """Every stay of a request in the queue, from its arrival or a preemption to an admission or its end."""
    log = history.log
    if int(log.status[request]) in NEVER_QUEUED:
        return []
    starts = [int(log.arrival_us[request])]
    starts += [eviction.at_us for eviction in history.evictions if eviction.victim == request]
    ends = [admission.at_us for admission in history.admissions if admission.request == request]
    if len(ends) < len(starts):
        gone_us = int(log.finish_us[request])
        ends.append(history.totals["end_us"] if gone_us == NEVER else gone_us)
    parts = list(blocked(history, request))
    out = []
    place = 0
    for since_us, until_us in zip(starts, ends, strict=True):
        mine: list[Blocked] = []
        while place < len(parts) and parts[place].start_us < until_us:
            part = parts[place]
            mine.append(part._replace(end_us=min(part.end_us, until_us)))
            place += 1
        ahead = mine[0].ahead if mine else 0
        covered_us = mine[0].start_us if mine else until_us
        if covered_us > since_us:  # until the first schedule() call that found it
            mine.insert(0, Blocked(-1, since_us, covered_us, Reason.BUSY, ahead, -1, 0, 0))
        out.append(Stretch(since_us, until_us, ahead, tuple(mine)))
    return out
