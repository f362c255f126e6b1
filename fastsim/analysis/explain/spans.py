"""What every request was doing at every moment of a run, from its steps and its tape."""

from collections import deque
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
    builder = _Builder(workload, log, tape.drafting)
    first = row = 0
    for row, (step, call) in enumerate(zip(tape.steps, tape.calls, strict=True)):
        if row > first and step.scheduled is tape.steps[first].scheduled:  # everybody in it decodes one token
            continue
        builder.repeat(tape.steps[first + 1 : row])
        first = row
        builder.receive(step.t_us)
        for event in call.events:
            if isinstance(event, Admitted):
                builder.admit(step.t_us, event)
            elif isinstance(event, Preempted):
                builder.preempt(step.t_us, event)
        for request, tokens in step.scheduled:
            builder.run(step, request, tokens)
        if tape.drafting:
            builder.submit(step)
    builder.repeat(tape.steps[first + 1 :])
    for request, status in enumerate(log.status.tolist()):
        if status in (Status.RUNNING, Status.WAITING, Status.TIMED_OUT):
            gone_us = int(log.finish_us[request])
            builder.fill(request, end_us if gone_us == NEVER else gone_us)
    return builder.spans


class _Builder:
    """The state of each request: vLLM's C and T, in flight included, the most it ever had computed, and what it does
    while it is in no batch.

    Drafts in flight count as right until the output of their step has been processed. `kept` is C without what is in
    flight, `flights` what is: steps, and how often each of its requests had been preempted.
    """

    def __init__(self, workload: "Workload", log: RequestLog, drafting: bool) -> None:
        self.prompt: list[int] = workload.prompt_tokens.tolist()
        self.since: list[int] = log.arrival_us.tolist()
        self.computed = [0] * len(self.prompt)
        self.highest = [0] * len(self.prompt)
        self.length = list(self.prompt)
        self.idle = [SpanKind.WAITING] * len(self.prompt)
        self.spans: list[list[Span]] = [[] for _ in self.prompt]
        self.drafting = drafting
        self.kept = [0] * len(self.prompt)
        self.lives = [0] * len(self.prompt)
        self.flights: deque[tuple[Step, list[int]]] = deque()

    def fill(self, request: int, until_us: int) -> None:
        """The time since its last span, in which it was in no batch."""
        spans = self.spans[request]
        start_us = spans[-1].end_us if spans else self.since[request]
        if until_us > start_us:
            spans.append(Span(self.idle[request], start_us, until_us))

    def admit(self, now_us: int, event: Admitted) -> None:
        self.fill(event.request, now_us)
        self.computed[event.request] = self.kept[event.request] = event.hit_tokens
        self.length[event.request] = event.length_tokens
        self.idle[event.request] = SpanKind.STALLED

    def preempt(self, now_us: int, event: Preempted) -> None:
        self.fill(event.request, now_us)
        self.lives[event.request] += 1
        self.idle[event.request] = SpanKind.SWAPPED if event.host_blocks else SpanKind.PREEMPTED

    def run(self, step: Step, request: int, tokens: int) -> None:
        """`tokens` in one batch, what exceeds its length being drafts; it samples when nothing is missing any more."""
        computed = self.computed[request]
        decodes = computed + 1 == self.length[request] and computed >= self.prompt[request]
        drafts = max(0, computed + tokens - self.length[request])
        again = max(0, min(computed + tokens - drafts, self.highest[request]) - computed)
        self.fill(request, step.start_us)
        spans = self.spans[request]
        kind = SpanKind.DECODE if decodes else SpanKind.RECOMPUTE if again else SpanKind.PREFILL
        if not (decodes and spans and spans[-1].kind is kind and spans[-1].end_us >= step.start_us):
            start_us = max(step.start_us, spans[-1].end_us if spans else self.since[request])
            spans.append(Span(kind, start_us, step.end_us))
        self._add(request, 1, tokens, again, step.end_us)
        if self.computed[request] >= self.length[request]:
            self.length[request] = self.computed[request] + 1

    def repeat(self, steps: list[Step]) -> None:
        """Steps with the list of the one before them: as many decodes for everybody in it."""
        if not steps:
            return
        for request, _ in steps[0].scheduled:
            spans = self.spans[request]
            if spans[-1].kind is not SpanKind.DECODE:  # the list itself was the last prefill of one token
                spans.append(Span(SpanKind.DECODE, max(spans[-1].end_us, steps[0].start_us), steps[0].end_us))
            again = max(0, min(len(steps), self.highest[request] - self.computed[request]))
            self._add(request, len(steps), len(steps), again, steps[-1].end_us)
            self.length[request] += len(steps)

    def _add(self, request: int, steps: int, tokens: int, again: int, end_us: int) -> None:
        """So many tokens in so many batches, the last of which ends at `end_us`, to its last span."""
        span = self.spans[request][-1]
        span.end_us = max(span.end_us, end_us)
        span.tokens += tokens
        span.steps += steps
        span.recomputed_tokens += again
        self.computed[request] += tokens
        if not self.drafting:
            self.highest[request] = max(self.highest[request], self.computed[request])

    def submit(self, step: Step) -> None:
        """The output of a step with drafts is awaited."""
        self.flights.append((step, [self.lives[request] for request, _ in step.scheduled]))

    def receive(self, now_us: int) -> None:
        """The outputs that have been processed by a schedule() call: wrong drafts are not computed."""
        while self.flights and self.flights[0][0].end_us <= now_us:
            step, lives = self.flights.popleft()
            wrong = {request: drafts - accepted for request, drafts, accepted in step.verified}
            for (request, tokens), life in zip(step.scheduled, lives, strict=True):
                if self.lives[request] == life:  # it has not been preempted meanwhile
                    self.computed[request] -= wrong.get(request, 0)
                    self.length[request] -= wrong.get(request, 0)
                    self.kept[request] += tokens - wrong.get(request, 0)
                    self.highest[request] = max(self.highest[request], self.kept[request])
