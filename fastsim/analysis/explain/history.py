"""What happened to every request of one run: spans of time, admissions, evictions.

`recorded.history_of` derives it from the per-step record. What it adds up to is held against the run's own totals
(`disagreement`), so a history that is wrong is an error and not a story.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from fastsim.engines.outputs import RequestLog

if TYPE_CHECKING:
    from fastsim.engines.vllm.recorder import Step
    from fastsim.workload import Workload


class Kind(StrEnum):
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

    `tokens` were scheduled in `steps` batches, `recomputed_tokens` of them not for the first time; the first of the
    batches is row `row` of the record.
    """

    kind: Kind
    start_us: int
    end_us: int
    row: int
    tokens: int = 0
    steps: int = 0
    recomputed_tokens: int = 0


class Admission(NamedTuple):
    """`request` left the queue at `at_us` (row `row`) after `waited_us`, for its life `life` (0: the first one).

    `hit_tokens` of its `length_tokens` were in the prefix cache, or (`swapped`) came back from the host.
    """

    row: int
    at_us: int
    request: int
    life: int
    waited_us: int
    length_tokens: int
    hit_tokens: int
    swapped: bool


class Eviction(NamedTuple):
    """`victim` was preempted by the schedule() call at `at_us` (row `row`), for `evictor`: the request that was being
    scheduled and lacked `lacked_blocks` blocks, or (`for_slot`) a slot. The victim itself: it was its own last resort.

    None: the record leaves open which of the requests of the step it was. The victim had `computed_tokens` in
    `blocks` blocks, and `generated_tokens` of output; a restart takes them from it.
    """

    row: int
    at_us: int
    victim: int
    evictor: int | None
    for_slot: bool
    lacked_blocks: int
    computed_tokens: int
    generated_tokens: int
    blocks: int
    swapped: bool


@dataclass
class History:
    """One run, request by request. `spans[i]` are request i's, in time order and without gaps from its arrival on.

    `steps` is the record, `config` the record of CONFIG_DTYPE it was made by; `admissions` and `evictions` are in the
    order of the decisions. `running[r]` is the number of running requests after the schedule() call of row r.
    """

    config: dict[str, Any]
    workload: "Workload"
    log: RequestLog
    totals: dict[str, int]
    steps: "list[Step]"
    spans: list[list[Span]]
    admissions: list[Admission] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    running: list[int] = field(default_factory=list)

    @property
    def budget_tokens(self) -> int:
        """Most tokens of one step."""
        return int(min(self.config["max_num_scheduled_tokens"], self.config["max_num_batched_tokens"]))


def disagreement(history: History) -> str | None:
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
        sums["decode_tokens"] += sum(span.tokens for span in spans if span.kind is Kind.DECODE)
        sums["prefill_tokens"] += sum(span.tokens for span in spans if span.kind in (Kind.PREFILL, Kind.RECOMPUTE))
    sums["preemptions"] = len(history.evictions)
    sums["salvaged_tokens"] = sum(a.hit_tokens for a in history.admissions if a.life > 0 and not a.swapped)
    for name, value in sums.items():
        if value != totals[name]:
            return f"{name}: {value} derived, but the run counted {totals[name]}"
    return None
