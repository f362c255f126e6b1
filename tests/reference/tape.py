"""What the scheduler decides, in plain tuples, as it decides it: the truth that explanations are held against.

("queued", request, others ahead), ("held", request), ("rejected", request, knob, what it found),
("admitted", request, length, computed tokens, from the host), ("preempted", request, evictor, blocks it lacked (0: a
slot), computed, generated, kept tokens, blocks freed, blocks to the host) and ("refused", request, why, needed,
available, watermark).
"""

from typing import Any, NamedTuple

from tests.reference.requests import RequestState

Event = tuple[Any, ...]


class Refusal(NamedTuple):
    """Which test a candidate failed, and by which numbers."""

    why: str
    needed: int = 0
    available: int = 0
    watermark: int = 0


class Call(NamedTuple):
    """What one schedule() call did: requests that run after it, why its scan ended, for whom, and all events."""

    running: int
    why: str
    request: int | None
    events: list[Event]


class Tape:
    """Events since the last schedule() call, and how its scan ended."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.calls: list[Call] = []
        self.end = ("", None)

    def note(self, kind: str, request: RequestState, *facts: Any) -> None:
        self.events.append((kind, request.index, *facts))

    def refuse(self, request: RequestState, refusal: Refusal) -> None:
        self.note("refused", request, *refusal)
        self.end_scan(refusal.why, request)

    def end_scan(self, why: str, request: RequestState | None = None) -> None:
        self.end = (why, None if request is None else request.index)

    def end_call(self, running: int) -> None:
        self.calls.append(Call(running, *self.end, self.events))
        self.events = []
