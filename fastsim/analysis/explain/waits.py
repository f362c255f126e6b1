"""Why a request waited: what ended the scan of the queue in every step that it spent there."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fastsim.analysis.explain.history import History
from fastsim.engines.outputs import NEVER, Status
from fastsim.engines.tape import Admitted, Call, Event, Held, Preempted, Queued, Reason, Refused

NEVER_CAME = (Status.PENDING, Status.REJECTED, Status.UNSERVABLE)


class WaitPart(NamedTuple):
    """The time from one schedule() call to the next. `refused` is at whom the scan ended, and what that one lacked."""

    start_us: int
    end_us: int
    reason: Reason
    refused: Refused | None = None


@dataclass
class Stay:
    """One stay in the queue, or at its door: `parts` follow each other without gaps.

    `ahead` requests stood before it when it came; None: it never came past the door, or not before the run ended.
    """

    since_us: int
    parts: list[WaitPart] = field(default_factory=list)
    ahead: int | None = None

    @property
    def until_us(self) -> int:
        """Its end, by an admission, or because request or run ended."""
        return self.parts[-1].end_us if self.parts else self.since_us


def stays_of(history: History, request: int) -> list[Stay]:
    """Every stay of a request in the queue, in time order."""
    log = history.log
    if int(log.status[request]) in NEVER_CAME:
        return []
    gone_us = int(log.finish_us[request])
    end_us = history.totals["end_us"] if gone_us == NEVER else gone_us
    arrival_us = int(log.arrival_us[request])
    stays = [Stay(arrival_us)]
    stay: Stay | None = stays[0]
    last = WaitPart(arrival_us, arrival_us, Reason.BUSY)
    for now_us, call, events in _calls(history, request):
        if stay is not None and any(isinstance(event, Held) for event in events):
            last = last._replace(reason=Reason.DOOR)
        if stay is not None and (events or stay.ahead is not None):
            last = _close(stay, last, min(now_us, end_us))
        for event in events:
            if isinstance(event, Preempted):
                stays.append(Stay(now_us))
                stay = stays[-1]
                last = WaitPart(now_us, now_us, Reason.BUSY)
            elif isinstance(event, Queued) and stay is not None:
                stay.ahead = event.ahead
            elif isinstance(event, Admitted):
                stay = None
        if stay is not None and stay.ahead is not None and call is not None:
            refused = _refused(call, events, request)
            own = refused is not None and refused.request == request
            reason = refused.reason if refused is not None and own else call.reason
            last = last._replace(reason=reason, refused=refused)
    if stay is not None:
        _close(stay, last, end_us)
    return stays


def _calls(history: History, request: int) -> Iterator[tuple[int, Call | None, list[Event]]]:
    """When each call was made, the call, and what happened to one request; last what happened after all of them."""
    for step, call in zip(history.tape.steps, history.tape.calls, strict=True):
        yield step.t_us, call, [event for event in call.events if event.request == request]
    yield history.totals["end_us"], None, [event for event in history.tape.after if event.request == request]


def _close(stay: Stay, part: WaitPart, until_us: int) -> WaitPart:
    """End the part under way; the next one begins there."""
    if until_us > part.start_us:
        stay.parts.append(part._replace(end_us=until_us))
    return part._replace(start_us=max(part.start_us, until_us))


def _refused(call: Call, events: list[Event], request: int) -> Refused | None:
    """Why the request itself was not admitted, if the scan looked at it; else at whom the scan ended."""
    own = [event for event in events if isinstance(event, Refused)]
    if own:
        return own[-1]
    head = [event for event in call.events if isinstance(event, Refused) and event.request == call.request]
    return head[-1] if head else None
