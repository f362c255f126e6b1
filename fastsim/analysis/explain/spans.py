"""What every request was doing at every moment of a run, from its steps and its tape."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from fastsim.engines.outputs import NEVER, RequestLog, Status
from fastsim.engines.tape import Admitted, Preempted, Step, Tape

if TYPE_CHECKING:
    from fastsim.workload import Workload


class SpanKind(StrEnum):
    """What a request was doing."""

    WAITING = "waiting"  # from its arrival to its first admission
    PREFILL = "prefill"  # one chunk of tokens computed for the first time
    RECOMPUTE = "recompute"  # one chunk that begins with tokens a preemption threw away
    DECODE = "decode"
    STALLED = "stalled"  # running, but not in this step's batch: budget, deferral, or behind the batch in flight
    PREEMPTED = "preempted"  # in the queue again
    SWAPPED = "swapped"  # in the queue again, its KV on the host


@dataclass(slots=True)
class Span:
    """A stretch of one request's life, `start_us` to `end_us`.

    `tokens` were scheduled in `steps` batches, `recomputed_tokens` of them not for the first time.
    """

    kind: SpanKind
    start_us: int
    end_us: int
    tokens: int = 0
    steps: int = 0
    recomputed_tokens: int = 0


def spans_of(tape: Tape, workload: "Workload", log: RequestLog, end_us: int) -> list[list[Span]]:
    """The spans of each request of a run that ended at `end_us`: in time order, without gaps from its arrival on."""
    builder = _Builder(workload, log)
    first = row = 0
    for row, (step, call) in enumerate(zip(tape.steps, tape.calls, strict=True)):
        if row > first and step.scheduled is tape.steps[first].scheduled:  # everybody in it decodes one token
            continue
        builder.repeat(tape.steps[first + 1 : row])
        first = row
        for event in call.events:
            if isinstance(event, Admitted):
                builder.admit(step.t_us, event)
            elif isinstance(event, Preempted):
                builder.preempt(step.t_us, event)
        for request, tokens in step.scheduled:
            builder.run(step, request, tokens)
    builder.repeat(tape.steps[first + 1 :])
    for request, status in enumerate(log.status.tolist()):
        if status in (Status.RUNNING, Status.WAITING, Status.TIMED_OUT):
            gone_us = int(log.finish_us[request])
            builder.fill(request, end_us if gone_us == NEVER else gone_us)
    return builder.spans


class _Builder:
    """The state of each request: vLLM's C and T, in flight included, the most it ever had computed, and what it does
    while it is in no batch.
    """

    def __init__(self, workload: "Workload", log: RequestLog) -> None:
        self.prompt: list[int] = workload.prompt_tokens.tolist()
        self.since: list[int] = log.arrival_us.tolist()
        self.computed = [0] * len(self.prompt)
        self.highest = [0] * len(self.prompt)
        self.length = list(self.prompt)
        self.idle = [SpanKind.WAITING] * len(self.prompt)
        self.spans: list[list[Span]] = [[] for _ in self.prompt]

    def fill(self, request: int, until_us: int) -> None:
        """The time since its last span, in which it was in no batch."""
        spans = self.spans[request]
        start_us = spans[-1].end_us if spans else self.since[request]
        if until_us > start_us:
            spans.append(Span(self.idle[request], start_us, until_us))

    def admit(self, now_us: int, event: Admitted) -> None:
        self.fill(event.request, now_us)
        self.computed[event.request] = event.hit_tokens
        self.length[event.request] = event.length_tokens
        self.idle[event.request] = SpanKind.STALLED

    def preempt(self, now_us: int, event: Preempted) -> None:
        self.fill(event.request, now_us)
        self.idle[event.request] = SpanKind.SWAPPED if event.host_blocks else SpanKind.PREEMPTED

    def run(self, step: Step, request: int, tokens: int) -> None:
        """`tokens` in one batch; it samples one when nothing is missing any more."""
        computed = self.computed[request]
        decodes = tokens == 1 and computed + 1 == self.length[request] and computed >= self.prompt[request]
        again = max(0, min(computed + tokens, self.highest[request]) - computed)
        self.fill(request, step.start_us)
        spans = self.spans[request]
        kind = SpanKind.DECODE if decodes else SpanKind.RECOMPUTE if again else SpanKind.PREFILL
        if not (decodes and spans and spans[-1].kind is kind and spans[-1].end_us >= step.start_us):
            start_us = max(step.start_us, spans[-1].end_us if spans else self.since[request])
            spans.append(Span(kind, start_us, step.end_us))
        self._add(request, 1, tokens, step.end_us)
        if self.computed[request] >= self.length[request]:
            self.length[request] += 1

    def repeat(self, steps: list[Step]) -> None:
        """Steps with the list of the one before them: as many decodes for everybody in it."""
        if not steps:
            return
        for request, _ in steps[0].scheduled:
            spans = self.spans[request]
            if spans[-1].kind is not SpanKind.DECODE:  # the list itself was the last prefill of one token
                spans.append(Span(SpanKind.DECODE, max(spans[-1].end_us, steps[0].start_us), steps[0].end_us))
            self._add(request, len(steps), len(steps), steps[-1].end_us)
            self.length[request] += len(steps)

    def _add(self, request: int, steps: int, tokens: int, end_us: int) -> None:
        """So many tokens in so many batches, the last of which ends at `end_us`, to its last span."""
        span = self.spans[request][-1]
        computed = self.computed[request]
        span.end_us = max(span.end_us, end_us)
        span.tokens += tokens
        span.steps += steps
        span.recomputed_tokens += max(0, min(computed + tokens, self.highest[request]) - computed)
        self.computed[request] = computed + tokens
        self.highest[request] = max(self.highest[request], computed + tokens)
