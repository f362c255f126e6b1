"""What a scheduler decided, as its kernel wrote it down: steps, and the tape of what happened at each of them.

`explain` and timelines are made of nothing else. An engine that keeps a tape (`Engine.records_steps`) maps what its
kernel noted onto these words; whoever reads them knows no engine.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Reason(StrEnum):
    """What a request in the queue waited for. The values are the words that people read."""

    EMPTY = "nobody: the queue was empty"
    PREEMPTION = "a step that preempts admits nobody"
    BUDGET = "token budget of the step"
    SLOTS = "running slots"
    RUNNING_CAP = "running cap (engine.running_cap)"
    BLOCKS = "KV blocks"
    GATE = "KV blocks for all its tokens (full-sequence gate)"
    WATERMARK = "KV blocks held free by the watermark"
    PROJECTION = "projected admission"
    STATE = "a prefix that this very step computes"
    ALIGNED = "no room for a chunk up to a block boundary"
    CHUNKING = "no room for its whole prompt (chunked prefill is off)"
    DEFERRED = "prefill_schedule_interval"
    BYPASS_LIMIT = "one that may not be passed again (max_admission_bypasses)"
    SCAN_LIMIT = "as many as a scan looks at (admission_scan_limit)"
    IN_FLIGHT = "its own output in flight"
    POLICY_ADMIT = "admit of engine.policy_file"
    POLICY_CAP = "cap of engine.policy_file"
    BUSY = "the step under way"  # it came while a step ran
    DOOR = "the door, closed by backpressure"


@dataclass(frozen=True)
class Step:
    """One schedule() call at `t_us`, whose batch runs from `start_us` to `end_us` (asynchronous: later than the call).

    `scheduled` is (request, tokens) in the scheduler's order; times in microseconds. `finished`, `free_end`, `running`
    and `waiting` are those when its output has been processed.

    With KV cache groups or drafts: `held_blocks` are the blocks in the tables of all running requests after schedule(),
    by group (each holder of a shared block counts it); `verified` is (request, drafts verified, accepted).
    """

    t_us: int
    scheduled: list[tuple[int, int]]
    preempted: list[int]
    finished: list[int]
    free_mid: int
    free_end: int
    running: int
    waiting: int
    start_us: int
    end_us: int
    held_blocks: list[int] = field(default_factory=list)
    verified: list[tuple[int, int, int]] = field(default_factory=list)


class Queued(NamedTuple):
    """`request` entered the queue: it came, or was preempted. `ahead` others stood before it."""

    request: int
    ahead: int


class Held(NamedTuple):
    """Backpressure kept `request` at the door."""

    request: int


class Rejected(NamedTuple):
    """`request` was turned away by the knob `limit`, which found so many requests, prompt tokens or preemptions."""

    request: int
    limit: str
    found: int


class Admitted(NamedTuple):
    """`request`, `length_tokens` long, left the queue and runs.

    `hit_tokens` of it are computed already: they were in the prefix cache, or (`from_host`) came back from the host.
    """

    request: int
    length_tokens: int
    hit_tokens: int
    from_host: bool


class Preempted(NamedTuple):
    """`evictor` took the blocks of `request`, because it lacked `lacked_blocks` of them; 0: it took its slot.

    An evictor that is the request itself was its own last resort. The victim had computed `computed_tokens` and
    generated `generated_tokens`, of which it keeps `kept_tokens`; `freed_blocks` became free (not those that others
    hold, too), and `host_blocks` went to the host.
    """

    request: int
    evictor: int
    lacked_blocks: int
    computed_tokens: int
    generated_tokens: int
    kept_tokens: int
    freed_blocks: int
    host_blocks: int


class Refused(NamedTuple):
    """`request` was looked at and not admitted: it `needed` more than was `available`.

    Blocks (BLOCKS, GATE, WATERMARK): those that it would have taken off the free list and those of the watermark,
    `watermark_blocks`. PROJECTION: expected blocks of all that would run. CHUNKING: tokens. SLOTS, RUNNING_CAP: running
    requests. Otherwise zeros.
    """

    request: int
    reason: Reason
    needed: int
    available: int
    watermark_blocks: int


Event = Queued | Held | Rejected | Admitted | Preempted | Refused


@dataclass(frozen=True)
class Call:
    """What one schedule() call did besides the step that it scheduled.

    `running` requests run after it. `reason` is why its scan of the queue went no further, `request` for whom that was
    (None: before it looked at anybody). `events` are in the order in which they happened, arrivals since the call
    before among them.
    """

    running: int
    reason: Reason
    request: int | None
    events: tuple[Event, ...]


@dataclass(frozen=True)
class Tape:
    """One run: its steps, the call of each, and what happened after the last of them.

    `drafting`: requests have drafts, so what they have computed is known when a step's output has been processed.
    """

    steps: list[Step]
    calls: list[Call]
    after: tuple[Event, ...]
    drafting: bool = False
