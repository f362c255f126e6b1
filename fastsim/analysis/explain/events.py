"""What happened to one request, event by event, in words."""

from collections import Counter
from typing import NamedTuple

from fastsim.analysis.explain.history import History
from fastsim.analysis.explain.spans import Span, SpanKind
from fastsim.analysis.explain.waits import Stay
from fastsim.config import Config, resolved
from fastsim.engines.outputs import NEVER, Status
from fastsim.engines.tape import Admitted, Preempted, Reason, Refused, Rejected
from fastsim.errors import WorkError

LIMIT_FINDS = {
    "max_num_queued_reqs": "requests were waiting",
    "max_num_queued_tokens": "prompt tokens were waiting",
    "backpressure_threshold": "preemptions had happened in its window",
}


class At(NamedTuple):
    """An event: events of one moment stand in the order of their ranks."""

    at_us: int
    rank: int
    words: str


def events_of(history: History, config: Config, request: int, stays: list[Stay]) -> list[At]:
    """What happened to a request, and why, in no order."""
    log, workload = history.log, history.workload
    status = Status(int(log.status[request]))
    if status in (Status.PENDING, Status.UNSERVABLE):
        return []
    priority = int(workload.priority[request])
    what = f"prompt {int(workload.prompt_tokens[request]):,}, output {int(workload.output_tokens[request]):,} tokens"
    what += f", priority {priority}" if priority else ""
    events = [At(int(log.arrival_us[request]), 0, f"arrives: {what}")]
    preemptions = [(row, event) for row, event in history.preemptions if event.request == request]
    admissions = [(row, event) for row, event in history.admissions if event.request == request]
    events += [At(history.at_us(row), 1, _preempted(event)) for row, event in preemptions]
    events += [At(stay.since_us, 2, _waits(request, stay)) for stay in stays if stay.parts]
    events += [At(history.at_us(row), 3, _admitted(history, row, event)) for row, event in admissions]
    events += _computed(history.spans[request], ", all drafts among them," if history.tape.drafting else "")
    if log.first_token_us[request] != NEVER:
        ttft_us = int(log.first_token_us[request] - log.arrival_us[request]) + (
            resolved(config).latency.frontend_us or 0.0
        )
        events.append(At(int(log.first_token_us[request]), 5, f"first token: TTFT {seconds(ttft_us)}"))
    if status is Status.FINISHED:
        events.append(At(int(log.finish_us[request]), 7, "last token: done"))
    elif status is Status.TIMED_OUT:
        events.append(At(int(log.finish_us[request]), 7, "its client gives up"))
    elif status is Status.REJECTED:
        events.append(At(int(log.arrival_us[request]), 7, f"rejected: {rejected(history, config, request)}"))
    return events


def _waits(request: int, stay: Stay) -> str:
    by: Counter[Reason] = Counter()
    for part in stay.parts:
        by[part.reason] += part.end_us - part.start_us
    reasons = "; ".join(f"{seconds(us)} for {reason.value}" for reason, us in by.most_common(3) if us)
    place = "at the door" if stay.ahead is None else "at the head of the queue"
    if stay.ahead:
        place = "behind 1 other" if stay.ahead == 1 else f"behind {stay.ahead:,} others"
    text = f"waits {seconds(stay.until_us - stay.since_us)} {place}: {reasons}"
    lacks = [part.refused for part in stay.parts if part.refused is not None and part.refused.needed > 0]
    if lacks:
        who = "it" if lacks[-1].request == request else f"request {lacks[-1].request}, before it,"
        text += f" (at last {who} {_lacked(lacks[-1])})"
    return text


def _lacked(refused: Refused) -> str:
    needed, available = f"{refused.needed:,}", f"{refused.available:,}"
    if refused.reason in (Reason.SLOTS, Reason.RUNNING_CAP):
        return f"found {needed} running, of {available}, and nobody less urgent"
    if refused.reason is Reason.CHUNKING:
        return f"needed {needed} tokens in one step and {available} were left"
    if refused.reason is Reason.PROJECTION:
        return f"and all that ran were expected to grow to {needed} blocks, of {available} allowed"
    kept = f" ({refused.watermark_blocks:,} of them to stay free)" if refused.watermark_blocks else ""
    return f"needed {needed} blocks{kept} and {available} were free"


def _preempted(event: Preempted) -> str:
    blocks = _blocks(event.lacked_blocks, "more ")
    if event.evictor == event.request:
        cause = f"PREEMPTED by itself: it needs {blocks} than are free, and is the next to go"
    elif event.lacked_blocks == 0:
        cause = f"PREEMPTED: request {event.evictor}, more urgent, takes its slot"
    else:
        cause = f"PREEMPTED: request {event.evictor} needs {blocks} than are free"
    if event.host_blocks:
        return f"{cause}; its {_blocks(event.host_blocks)} go to the host"
    lost = event.generated_tokens - event.kept_tokens
    generated = f"loses {lost:,} generated" if lost else f"keeps {event.kept_tokens:,} generated"
    return (
        f"{cause}; it loses {event.computed_tokens:,} computed tokens ({_blocks(event.freed_blocks)} become free), "
        f"{generated}"
    )


def _blocks(count: int, more: str = "") -> str:
    return f"{count:,} {more}block{'' if count == 1 else 's'}"


def _admitted(history: History, row: int, event: Admitted) -> str:
    text = (
        f"admitted: {history.tape.calls[row].running:,} run now, {history.tape.steps[row].free_mid:,} blocks stay free"
    )
    if event.from_host:
        return f"{text}; its {event.hit_tokens:,} tokens come back from the host"
    if event.hit_tokens:
        text += f"; {event.hit_tokens:,} of its {event.length_tokens:,} tokens are in the prefix cache"
    return text


def _computed(spans: list[Span], drafts: str) -> list[At]:
    """Neighbouring chunks and decodes as one sentence each."""
    events = []
    at = 0
    while at < len(spans):
        first = last = spans[at]
        tokens = steps = 0
        while at < len(spans) and spans[at].kind is first.kind:
            last = spans[at]
            tokens, steps = tokens + last.tokens, steps + last.steps
            at += 1
        time = seconds(last.end_us - first.start_us)
        if first.kind is SpanKind.DECODE:
            events.append(At(first.start_us, 6, f"decodes {tokens:,} tokens{drafts} in {time}"))
        elif first.kind in (SpanKind.PREFILL, SpanKind.RECOMPUTE):
            verb = "prefills" if first.kind is SpanKind.PREFILL else "recomputes"
            chunks = "1 chunk" if steps == 1 else f"{steps:,} chunks"
            events.append(At(first.start_us, 4, f"{verb} {tokens:,} tokens in {chunks}, {time}"))
    return events


def rejected(history: History, config: Config, request: int) -> str:
    """The limit at the door that turned a request away, and what it found."""
    tape = history.tape
    for event in (event for events in (*(call.events for call in tape.calls), tape.after) for event in events):
        if isinstance(event, Rejected) and event.request == request:
            limit = getattr(config.engine, event.limit)
            return f"{event.limit} = {limit:g}, and {event.found:,} {LIMIT_FINDS[event.limit]}"
    raise WorkError(f"request {request} was rejected, but the tape does not say why")


def seconds(us: float) -> str:
    """Microseconds as seconds with three decimals."""
    return f"{us / 1e6:,.3f} s"
