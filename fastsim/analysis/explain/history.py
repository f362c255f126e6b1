"""What happened to every request of one run, as its engine wrote it down.

What the tape adds up to is held against the run's own totals, so a tape that is wrong is an error and not a story.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from fastsim.analysis.explain.spans import Span, SpanKind, spans_of
from fastsim.config import Config
from fastsim.engines import check_ability
from fastsim.engines.outputs import RequestLog
from fastsim.engines.tape import Admitted, Preempted, Tape
from fastsim.errors import WorkError

if TYPE_CHECKING:
    from fastsim.simulation import Result
    from fastsim.workload import Workload


@dataclass(frozen=True)
class History:
    """One run, request by request: `spans[i]` are request i's.

    `admissions` and `preemptions` are those of the tape, each with the row of its step, in the order of the decisions.
    """

    workload: "Workload"
    log: RequestLog
    totals: dict[str, int]
    tape: Tape
    spans: list[list[Span]]
    admissions: list[tuple[int, Admitted]]
    preemptions: list[tuple[int, Preempted]]

    def at_us(self, row: int) -> int:
        """When the schedule() call of a row was made."""
        return self.tape.steps[row].t_us


def check_recorded(config: Config) -> None:
    """Refuse a configuration whose engine keeps no record of its steps.

    Raises
    ------
    InputError
        One sentence.
    """
    why = "only they record their steps, from which timelines and the stories of requests are made"
    check_ability(config.engine.name, "records_steps", why)


def history_of(result: "Result") -> History:
    """The history of a run that was simulated with `record_steps`.

    Raises
    ------
    WorkError
        When what was recorded disagrees with the run's own log and totals.
    """
    check_recorded(result.config)
    if result.tape is None:
        raise ValueError("a result without a tape: simulate(..., record_steps=True) was expected")
    return history_from(result.tape, result.workload, result.requests, result.totals)


def history_from(tape: Tape, workload: "Workload", log: RequestLog, totals: dict[str, int]) -> History:
    """The history of a run with such a tape, log and totals."""
    admissions, preemptions = [], []
    for row, call in enumerate(tape.calls):
        for event in call.events:
            if isinstance(event, Admitted):
                admissions.append((row, event))
            elif isinstance(event, Preempted):
                preemptions.append((row, event))
    spans = spans_of(tape, workload, log, totals["end_us"])
    history = History(workload, log, totals, tape, spans, admissions, preemptions)
    fault = _disagreement(history)
    if fault is not None:
        raise WorkError(f"the per-step record does not explain this run: {fault}")
    return history


def _disagreement(history: History) -> str | None:
    """What the spans add up to, against the run's log and totals: the first difference in a line, or None."""
    log, totals = history.log, history.totals
    sums = {"recomputed_tokens": 0, "prefill_tokens": 0, "decode_tokens": 0}
    for request, spans in enumerate(history.spans):
        scheduled = sum(span.tokens for span in spans)
        if scheduled != log.scheduled_tokens[request]:
            return f"request {request}: {scheduled} tokens scheduled, but its log says {log.scheduled_tokens[request]}"
        for a, b in pairwise(spans):
            if a.end_us != b.start_us:
                return f"request {request}: a span ends at {a.end_us} us and the next starts at {b.start_us} us"
        sums["recomputed_tokens"] += sum(span.recomputed_tokens for span in spans)
        sums["decode_tokens"] += sum(span.tokens for span in spans if span.kind is SpanKind.DECODE)
        sums["prefill_tokens"] += sum(
            span.tokens for span in spans if span.kind in (SpanKind.PREFILL, SpanKind.RECOMPUTE)
        )
    sums["preemptions"] = len(history.preemptions)
    sums["prefix_hit_tokens"] = sum(event.hit_tokens for _, event in history.admissions if not event.from_host)
    counted = totals | {"prefix_hit_tokens": int(log.prefix_hit_tokens.sum())}
    for name, value in sums.items():
        if value != counted[name]:
            return f"{name}: {value} recorded, but the run counted {counted[name]}"
    return None
