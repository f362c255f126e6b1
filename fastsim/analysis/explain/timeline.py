"""One run as a Chrome trace (JSON), which Perfetto and chrome://tracing show: a track a request, counters, preemptions.

Format: "Trace Event Format" of the Chromium project, JSON object form; times in microseconds.
"""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastsim.analysis.explain.history import History
from fastsim.analysis.explain.spans import Span, SpanKind
from fastsim.engines.outputs import Status, Stop
from fastsim.engines.tape import Preempted, Reason
from fastsim.errors import InputError

MAX_REQUESTS = 500
MAX_SLICES = 200_000
MAX_POINTS = 5_000
MAX_INSTANTS = 5_000
SCHEDULER, REQUESTS = 1, 2
"""The two processes of the trace."""
LOOP_TRACK, QUEUE_TRACK = 9, 10
FIRST_TRACK = 1_000_000
"""Of requests: Perfetto shows a track's number behind its name, drops number 0, and calls number `pid` the main one."""

_WHAT = {
    SpanKind.WAITING: "waiting",
    SpanKind.PREFILL: "prefill",
    SpanKind.RECOMPUTE: "recompute",
    SpanKind.DECODE: "decode",
    SpanKind.STALLED: "running, not scheduled",
    SpanKind.PREEMPTED: "preempted",
    SpanKind.SWAPPED: "swapped out",
}


@dataclass(frozen=True)
class Timeline:
    """A trace and how it was thinned: `notes` are sentences, none when everything is there."""

    trace: dict[str, Any]
    notes: tuple[str, ...]

    def write(self, path: Path, option: str = "--timeline") -> None:
        """Store the trace as JSON.

        Raises
        ------
        InputError
            When the file cannot be written.
        """
        try:
            path.write_text(json.dumps(self.trace, separators=(",", ":")))
        except OSError as error:
            raise InputError(f"{option} {path}: cannot be written ({error.strerror or error})") from None


def make_timeline(history: History, engine: str) -> Timeline:
    """The trace of a run. A large one is thinned, by rule.

    Request tracks: every k-th request, with the least k that leaves at most `MAX_REQUESTS` tracks and `MAX_SLICES`
    slices. Counters: of every k steps the one with the fewest free blocks, at most `MAX_POINTS` points; what ended the
    scans of the queue: of as many steps the reason that did for longest. Preemptions on
    the scheduler's track: every k-th, at most `MAX_INSTANTS`; those of a request are all on its own track.
    """
    shown, every = _chosen_requests(history)
    events = _headers(shown)
    for request in shown:
        events += [_slice(request, span) for span in history.spans[request]]
        events += _end_mark(history, request)
    tracks = set(shown)
    for number, (row, event) in enumerate(history.preemptions):
        if event.request in tracks:
            events += _preemption(number, history.at_us(row), row, event, event.evictor in tracks)
    stride = max(1, -(-len(history.preemptions) // MAX_INSTANTS))
    events += [_loop_mark(history.at_us(row), row, event) for row, event in history.preemptions[::stride]]
    points, bucket = _counters(history)
    events += points + _queue_slices(history, bucket)
    notes = []
    if every > 1:
        notes.append(f"tracks of every {_ordinal(every)} request: {len(shown):,} of {len(history.spans):,}")
    if bucket > 1:
        notes.append(
            f"counters at one step of every {bucket:,}, the one with the fewest free blocks; what ended the scans of "
            "the queue: in each as many, what did for longest"
        )
    if stride > 1:
        notes.append(f"every {_ordinal(stride)} preemption on the scheduler's track")
    trace = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "producer": "fastsim",
            "engine": engine,
            "requests": len(history.spans),
            "requests_shown": len(shown),
            "steps": len(history.tape.steps),
            "preemptions": len(history.preemptions),
            "stop": Stop(history.totals["stop"]).name.lower(),
            "thinned": "; ".join(notes) or "no",
        },
    }
    return Timeline(trace, tuple(notes))


def _chosen_requests(history: History) -> tuple[list[int], int]:
    count = len(history.spans)
    every = max(1, -(-count // MAX_REQUESTS))
    while every < count and sum(len(spans) for spans in history.spans[::every]) > MAX_SLICES:
        every += 1
    return list(range(0, count, every)), every


def _headers(shown: list[int]) -> list[dict[str, Any]]:
    events = [
        _meta("process_name", SCHEDULER, 0, name="scheduler"),
        _meta("process_sort_index", SCHEDULER, 0, sort_index=1),
        _meta("thread_name", SCHEDULER, LOOP_TRACK, name="preemptions"),
        _meta("thread_name", SCHEDULER, QUEUE_TRACK, name="the queue waits for"),
        _meta("process_name", REQUESTS, 0, name="requests"),
        _meta("process_sort_index", REQUESTS, 0, sort_index=2),
    ]
    for request in shown:
        events.append(_meta("thread_name", REQUESTS, _track(request), name=f"request {request}"))
        events.append(_meta("thread_sort_index", REQUESTS, _track(request), sort_index=request))
    return events


def _meta(name: str, pid: int, tid: int, /, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}


def _track(request: int) -> int:
    return FIRST_TRACK + request


def _slice(request: int, span: Span) -> dict[str, Any]:
    event: dict[str, Any] = {
        "ph": "X",
        "name": _WHAT[span.kind],
        "cat": span.kind.value,
        "pid": REQUESTS,
        "tid": _track(request),
        "ts": span.start_us,
        "dur": span.end_us - span.start_us,
    }
    if span.steps:
        event["args"] = {"tokens": span.tokens, "steps": span.steps, "recomputed_tokens": span.recomputed_tokens}
    return event


def _end_mark(history: History, request: int) -> list[dict[str, Any]]:
    """How a request ended, where that is not "still here"."""
    status = Status(int(history.log.status[request]))
    at_us = int(history.log.finish_us[request])
    if status is Status.REJECTED or status is Status.UNSERVABLE:
        at_us = max(0, int(history.log.arrival_us[request]))
    elif status not in (Status.FINISHED, Status.TIMED_OUT):
        return []
    return [_instant(status.name.lower().replace("_", " "), REQUESTS, _track(request), at_us, {})]


def _instant(name: str, pid: int, tid: int, at_us: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "i", "s": "t", "name": name, "cat": "event", "pid": pid, "tid": tid, "ts": at_us, "args": args}


def _facts(row: int, event: Preempted) -> dict[str, Any]:
    return {
        "victim": event.request,
        "evictor": event.evictor,
        "for": "blocks" if event.lacked_blocks else "a slot",
        "lacked_blocks": event.lacked_blocks,
        "lost_tokens": 0 if event.host_blocks else event.computed_tokens,
        "freed_blocks": event.freed_blocks,
        "step": row,
    }


def _preemption(number: int, at_us: int, row: int, event: Preempted, evictor_shown: bool) -> list[dict[str, Any]]:
    """The mark on the victim's track, and an arrow from the track of whoever needed its blocks."""
    itself = event.evictor == event.request
    name = "preempts itself" if itself else f"preempted by request {event.evictor}"
    victim = _track(event.request)
    marks = [_instant(name, REQUESTS, victim, at_us, _facts(row, event))]
    if evictor_shown and not itself:
        arrow = {"name": "evicts", "cat": "eviction", "id": number, "pid": REQUESTS, "ts": at_us}
        marks.append(arrow | {"ph": "s", "tid": _track(event.evictor)})
        marks.append(arrow | {"ph": "f", "bp": "e", "tid": victim})
    return marks


def _loop_mark(at_us: int, row: int, event: Preempted) -> dict[str, Any]:
    itself = event.evictor == event.request
    name = f"{event.request} itself" if itself else f"{event.evictor} evicts {event.request}"
    return _instant(name, SCHEDULER, LOOP_TRACK, at_us, _facts(row, event))


def _counters(history: History) -> tuple[list[dict[str, Any]], int]:
    """Counter events and how many steps share one point."""
    steps = history.tape.steps
    bucket = max(1, -(-len(steps) // MAX_POINTS))
    events = []
    for start in range(0, len(steps), bucket):
        row = min(range(start, min(start + bucket, len(steps))), key=lambda k: steps[k].free_mid)
        step = steps[row]
        events += [
            _counter("running", "requests", step.t_us, history.tape.calls[row].running),
            _counter("waiting", "requests", step.t_us, step.waiting),
            _counter("free KV", "blocks", step.t_us, step.free_mid),
            _counter("batch", "tokens", step.t_us, sum(tokens for _, tokens in step.scheduled)),
        ]
    if steps:
        events.append(_counter("batch", "tokens", history.totals["end_us"], 0))
    return events, bucket


def _queue_slices(history: History, bucket: int) -> list[dict[str, Any]]:
    """What ended the scans of the queue, neighbours with the same reason as one slice; none while it was empty."""
    steps, calls = history.tape.steps, history.tape.calls
    ends_us = [step.t_us for step in steps[1:]] + [history.totals["end_us"]]
    slices: list[dict[str, Any]] = []
    for start in range(0, len(steps), bucket):
        rows = range(start, min(start + bucket, len(steps)))
        lasted: Counter[Reason] = Counter()
        for row in rows:
            lasted[calls[row].reason] += ends_us[row] - steps[row].t_us
        reason = lasted.most_common(1)[0][0]
        start_us, end_us = steps[start].t_us, ends_us[rows[-1]]
        if slices and slices[-1]["name"] == reason.value and slices[-1]["ts"] + slices[-1]["dur"] == start_us:
            slices[-1]["dur"] = end_us - slices[-1]["ts"]
        elif reason is not Reason.EMPTY:
            place = {"pid": SCHEDULER, "tid": QUEUE_TRACK, "ts": start_us, "dur": end_us - start_us}
            slices.append({"ph": "X", "name": reason.value, "cat": "queue", **place})
    return slices


def _counter(name: str, unit: str, at_us: int, value: int) -> dict[str, Any]:
    return {"ph": "C", "name": name, "pid": SCHEDULER, "tid": 0, "ts": at_us, "args": {unit: value}}


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"
