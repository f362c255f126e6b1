"""The story of one request in words: every sentence is read off the history of its run."""

from collections import Counter
from dataclasses import dataclass

from fastsim.analysis.check.unservable import cause_of
from fastsim.analysis.explain.events import events_of, rejected, seconds
from fastsim.analysis.explain.history import History
from fastsim.analysis.explain.spans import SpanKind
from fastsim.analysis.explain.waits import stays_of
from fastsim.config import Config, resolved
from fastsim.engines.outputs import NEVER, Status, Stop
from fastsim.engines.tape import Reason
from fastsim.errors import InputError

GROUPS = {
    SpanKind.WAITING: "queueing",
    SpanKind.PREEMPTED: "preempted, in the queue again",
    SpanKind.SWAPPED: "swapped out, in the queue again",
    SpanKind.RECOMPUTE: "recomputing what was lost",
    SpanKind.STALLED: "running, but not scheduled",
    SpanKind.PREFILL: "prefill",
    SpanKind.DECODE: "decode",
}
PREEMPTION_KINDS = (SpanKind.PREEMPTED, SpanKind.SWAPPED, SpanKind.RECOMPUTE)


@dataclass(frozen=True)
class TimeShare:
    """Microseconds of one kind: until the first token, and after it."""

    what: str
    ttft_us: int
    rest_us: int

    @property
    def total_us(self) -> int:
        """All of it."""
        return self.ttft_us + self.rest_us


@dataclass(frozen=True)
class Story:
    """One request of one run.

    `answer` is one sentence, `facts` are sentences on what it lost and who took it, `events` are (microseconds, words)
    in time order, `shares` partition its time, `waits` give microseconds by what it waited for. `tokens_after_first`
    is the number that TPOT divides by.
    """

    answer: str
    facts: tuple[str, ...]
    events: tuple[tuple[int, str], ...]
    shares: tuple[TimeShare, ...]
    waits: tuple[tuple[Reason, int], ...]
    tokens_after_first: int


def explain(history: History, config: Config, request: int) -> Story:
    """The story of request number `request`.

    Raises
    ------
    InputError
        When there is no such request.
    """
    count = len(history.spans)
    if not 0 <= request < count:
        raise InputError(f"--request {request}, but an integer from 0 to {count - 1} was expected")
    stays = stays_of(history, request)
    shares = _shares(history, config, request)
    events = [(event.at_us, event.words) for event in sorted(events_of(history, config, request, stays))]
    waits: Counter[Reason] = Counter()
    for stay in stays:
        for part in stay.parts:
            waits[part.reason] += part.end_us - part.start_us
    return Story(
        _answer(history, config, request, shares),
        tuple(_facts(history, request)),
        tuple(events),
        shares,
        tuple(waits.most_common()),
        max(int(history.log.num_generated[request]) - 1, 0),
    )


def worst_request(history: History) -> int:
    """Who was held up longest, by anything but its own prefill and decode: whom to ask about when nobody is named."""
    own = (SpanKind.PREFILL, SpanKind.DECODE)
    held_us = [sum(s.end_us - s.start_us for s in spans if s.kind not in own) for spans in history.spans]
    return held_us.index(max(held_us)) if held_us else 0


# --- time -------------------------------------------------------------------------------------------------------------


def _shares(history: History, config: Config, request: int) -> tuple[TimeShare, ...]:
    """Its time by kind. They add up to TTFT, and to E2E (or to the time until the run ended)."""
    first_us = int(history.log.first_token_us[request])
    cut_us = first_us if first_us != NEVER else 2**62
    before: Counter[SpanKind] = Counter()
    after: Counter[SpanKind] = Counter()
    for span in history.spans[request]:
        ttft_us = max(0, min(span.end_us, cut_us) - span.start_us)
        before[span.kind] += ttft_us
        after[span.kind] += span.end_us - span.start_us - ttft_us
    shares = [TimeShare(words, before[kind], after[kind]) for kind, words in GROUPS.items()]
    shares.append(TimeShare("frontend", round(resolved(config).latency.frontend_us or 0.0), 0))
    return tuple(share for share in shares if share.total_us > 0)


# --- the answer -------------------------------------------------------------------------------------------------------


def _answer(history: History, config: Config, request: int, shares: tuple[TimeShare, ...]) -> str:
    log = history.log
    status = Status(int(log.status[request]))
    got = f"{int(log.num_generated[request]):,} of {int(history.workload.output_tokens[request]):,} output tokens"
    end = f"{seconds(history.totals['end_us'])} ({Stop(history.totals['stop']).name.lower().replace('_', ' ')})"
    if status is Status.FINISHED:
        total = sum(share.total_us for share in shares)
        words = {GROUPS[kind] for kind in PREEMPTION_KINDS}
        parts = {
            "queueing": sum(share.total_us for share in shares if share.what == "queueing"),
            "preemptions": sum(share.total_us for share in shares if share.what in words),
        }
        parts["the rest"] = total - sum(parts.values())
        named = ", ".join(f"{what} {seconds(us)} ({us / max(total, 1):.0%})" for what, us in parts.items())
        return f"Request {request} finished {seconds(total)} after it arrived: {named}."
    if status is Status.UNSERVABLE:
        cause = cause_of(config, history.workload, request)
        return f"Request {request} can never be served and was refused before the first step: it comes {cause}."
    if status is Status.PENDING:
        return f"Request {request} had not arrived when the run ended at {end}."
    if status is Status.HELD:
        return f"Request {request} was held at the door by backpressure until the run ended at {end}."
    if status is Status.REJECTED:
        return f"Request {request} was rejected at the door: {rejected(history, config, request)}."
    if status is Status.TIMED_OUT:
        where = "running" if history.spans[request][-1:] and history.spans[request][-1].steps else "waiting"
        after = seconds(int(log.finish_us[request] - log.arrival_us[request]))
        return (
            f"Request {request} was given up by its client {after} "
            f"after it arrived (workload.timeout_s), {where}, with {got}."
        )
    where = "running" if status is Status.RUNNING else "waiting"
    return (
        f"Request {request} was still {where} when the run ended at {end}, with {got}: "
        "in every percentile that it did not reach it counts as infinitely late."
    )


# --- what it lost -----------------------------------------------------------------------------------------------------


def _facts(history: History, request: int) -> list[str]:
    preemptions = [event for _, event in history.preemptions if event.request == request]
    facts = []
    if preemptions:
        by = Counter(event.evictor for event in preemptions)
        names = {request: "itself (it was the next to go)"}
        most = ", ".join(f"{names.get(who, f'request {who}')} ({count})" for who, count in by.most_common(3))
        others = "1 other" if len(by) == 4 else f"{len(by) - 3} others"
        more = f" and {others}" if len(by) > 3 else ""
        times = "once" if len(preemptions) == 1 else f"{len(preemptions):,} times"
        facts.append(f"It was preempted {times}, to make room for {most}{more}.")
        again = sum(span.recomputed_tokens for span in history.spans[request])
        admissions = [event for _, event in history.admissions if event.request == request]
        saved = sum(event.hit_tokens for event in admissions[1:] if not event.from_host)
        moved = sum(event.host_blocks for event in preemptions)
        discarded = sum(event.generated_tokens - event.kept_tokens for event in preemptions)
        lost = f"It computed {again:,} tokens again ({int(history.log.scheduled_tokens[request]):,} scheduled in all)"
        lost += f" and moved {moved:,} blocks to the host" if moved else ""
        lost += f"; the prefix cache saved it {saved:,}" if saved else ""
        lost += f"; {discarded:,} output tokens were thrown away and decoded again" if discarded else ""
        facts.append(f"{lost}.")
    caused = [e.request for _, e in history.preemptions if e.evictor == request and e.request != request]
    if caused:
        facts.append(f"It took the place of others {len(caused):,} times ({len(set(caused)):,} requests).")
    return facts
