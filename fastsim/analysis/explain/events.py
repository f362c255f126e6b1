"""What happened to one request, event by event, in words."""

from collections import Counter
from typing import NamedTuple

from fastsim.analysis.explain.history import Admission, Eviction, History, Kind, Span
from fastsim.analysis.explain.stretches import Stretch
from fastsim.analysis.explain.waits import Reason
from fastsim.config import Config, resolved
from fastsim.engines.outputs import NEVER, Status
from fastsim.engines.vllm.codes import PreemptionMode

RESTART = int(PreemptionMode.RESTART)
BLOCK_REASONS = (Reason.GATE, Reason.BLOCKS, Reason.WATERMARK)


class At(NamedTuple):
    """An event: events of one moment stand in the order of their ranks."""

    at_us: int
    rank: int
    words: str


def events_of(history: History, config: Config, request: int, waited: list[Stretch]) -> list[At]:
    """What happened to a request, and why, in no order."""
    log, workload = history.log, history.workload
    status = Status(int(log.status[request]))
    if status in (Status.PENDING, Status.UNSERVABLE):
        return []
    priority = int(workload.priority[request])
    what = f"prompt {int(workload.prompt_tokens[request]):,}, output {int(workload.output_tokens[request]):,} tokens"
    what += f", priority {priority}" if priority else ""
    events = [At(int(log.arrival_us[request]), 0, f"arrives: {what}")]
    events += [At(e.at_us, 1, _evicted(history, e)) for e in history.evictions if e.victim == request]
    events += [At(w.since_us, 2, _waits(history, request, w)) for w in waited if w.until_us > w.since_us]
    events += [At(a.at_us, 3, _admitted(history, a)) for a in history.admissions if a.request == request]
    events += _computed(history.spans[request])
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
        events.append(At(int(log.arrival_us[request]), 7, f"rejected: {rejected(config)}"))
    return events


def _waits(history: History, request: int, stretch: Stretch) -> str:
    by: Counter[Reason] = Counter()
    for part in stretch.parts:
        by[part.reason] += part.end_us - part.start_us
    reasons = "; ".join(f"{seconds(us)} for {reason.value}" for reason, us in by.most_common(3) if us)
    others = "1 other" if stretch.ahead == 1 else f"{stretch.ahead:,} others"
    place = f"behind {others}" if stretch.ahead > 0 else "at the head of the queue"
    text = f"waits {seconds(stretch.until_us - stretch.since_us)} {place}: {reasons}"
    short = [part for part in stretch.parts if part.reason in BLOCK_REASONS]
    if short:
        part = short[-1]
        who = "it" if part.head == request else f"the head of the queue, request {part.head},"
        most = "at most " if history.config["enable_prefix_caching"] else ""
        text += f" (at last {who} needed {most}{part.needed_blocks:,} blocks and {part.free_blocks:,} were free)"
    return text


def _evicted(history: History, eviction: Eviction) -> str:
    generated, computed = eviction.generated_tokens, eviction.computed_tokens
    missing = f"{eviction.lacked_blocks:,} more" if eviction.lacked_blocks > 0 else "more"
    if eviction.evictor == eviction.victim:
        cause = "PREEMPTED by itself: it needed more blocks than were free, and there was nobody else to preempt"
    elif eviction.for_slot:
        who = "a more urgent request" if eviction.evictor is None else f"request {eviction.evictor}, more urgent,"
        cause = f"PREEMPTED: {who} takes its slot"
    elif eviction.evictor is None:
        cause = "PREEMPTED: another request of this step lacked blocks (the record leaves open which)"
    else:
        noun = "block" if eviction.lacked_blocks == 1 else "blocks"
        cause = f"PREEMPTED: request {eviction.evictor} needs {missing} {noun} than are free"
    if eviction.swapped:
        return f"{cause}; its {eviction.blocks:,} blocks go to the host"
    kept = "loses" if history.config["preemption_mode"] == RESTART else "keeps"
    return (
        f"{cause}; it loses {computed:,} computed tokens ({eviction.blocks:,} blocks), {kept} {generated:,} generated"
    )


def _admitted(history: History, admission: Admission) -> str:
    step = history.steps[admission.row]
    text = f"admitted: {history.running[admission.row]:,} run now, {step.free_mid:,} blocks stay free"
    if admission.swapped:
        return f"{text}; its {admission.hit_tokens:,} tokens come back from the host"
    if admission.hit_tokens:
        text += f"; {admission.hit_tokens:,} of its {admission.length_tokens:,} tokens are in the prefix cache"
    return text


def _computed(spans: list[Span]) -> list[At]:
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
        if first.kind is Kind.DECODE:
            events.append(At(first.start_us, 6, f"decodes {tokens:,} tokens in {time}"))
        elif first.kind in (Kind.PREFILL, Kind.RECOMPUTE):
            verb = "prefills" if first.kind is Kind.PREFILL else "recomputes"
            chunks = "1 chunk" if steps == 1 else f"{steps:,} chunks"
            events.append(At(first.start_us, 4, f"{verb} {tokens:,} tokens in {chunks}, {time}"))
    return events


def rejected(config: Config) -> str:
    """The limits at the door, any of which may have turned a request away."""
    engine = config.engine
    limits = [f"{name} = {getattr(engine, name)}" for name in ("max_num_queued_reqs", "max_num_queued_tokens")]
    reasons = [text for text in limits if not text.endswith("None")]
    if engine.backpressure_threshold > 0:
        reasons.append(f"backpressure_threshold = {engine.backpressure_threshold:g}")
    return " or ".join(reasons)


def seconds(us: float) -> str:
    """Microseconds as seconds with three decimals."""
    return f"{us / 1e6:,.3f} s"
