"""The oracle's front: `simulate` one configuration on one workload with a plain-Python vLLM engine."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.reference.async_driver import AsyncDriver
from tests.reference.blocks import Identity
from tests.reference.driver import Books, Driver
from tests.reference.policies import complete
from tests.reference.requests import Request, RequestState
from tests.reference.tape import Call, Event

__all__ = ["Outcome", "Request", "RequestOutcome", "simulate"]


@dataclass(frozen=True)
class RequestOutcome:
    """What became of one request; times in microseconds, -1 never.

    `status` is pending, waiting, running, finished, rejected, timed_out, unservable or held. `gaps_us` are the gaps
    between its consecutive output tokens, those of lives ended by a restart left out.
    """

    arrival_us: int
    first_scheduled_us: int
    first_token_us: int
    first_life_token_us: int
    last_token_us: int
    finish_us: int
    num_generated: int
    num_preemptions: int
    prefix_hit_tokens_first: int
    prefix_hit_tokens: int
    scheduled_tokens: int
    admission_wait_us: int
    admission_wait_end_us: int
    verified_drafts: int
    accepted_drafts: int
    status: str
    gaps_us: list[int]

    def golden(self) -> list[int]:
        """The columns of a golden case's `requests_out`."""
        return [
            self.first_scheduled_us,
            self.first_token_us,
            self.finish_us if self.status == "finished" else -1,
            self.num_preemptions,
            self.num_generated,
            self.prefix_hit_tokens_first,
            self.prefix_hit_tokens,
            self.scheduled_tokens,
            self.verified_drafts,
            self.accepted_drafts,
        ]


@dataclass(frozen=True)
class Outcome:
    """A whole run.

    `steps` are golden rows with the scheduled list written out; None if not recorded. `totals` holds the golden totals
    and the counters of the kernels by the same names, but `stop` is a word. `free_order` is the content of the free
    list from head to tail. `completion_us`, `books` (at each completion) and `backlog` (arrival time, and the
    requests then arrived and not yet done with, this one included) are what the verdicts are computed from. `calls` are
    the tape of the schedule() calls, `events_after` what happened after the last of them; equality ignores both.
    """

    steps: list[list[Any]] | None
    requests: list[RequestOutcome]
    totals: dict[str, Any]
    free_order: list[Identity | None]
    completion_us: list[int]
    books: list[Books]
    backlog: list[tuple[int, int]]
    calls: list[Call] = field(compare=False)
    events_after: list[Event] = field(compare=False)


def simulate(
    config: dict[str, Any], requests: Sequence[Request], *, record_steps: bool = True, check: bool = True
) -> Outcome:
    """Run `requests` under `config` (keys and defaults: `policies.DEFAULTS`) and return all that can be compared.

    With `check` every invariant is asserted after every step.
    """
    full = complete(config)
    driver_class = AsyncDriver if full.engine == "vllm-0.33.0-async" else Driver
    driver = driver_class(full, requests, record_steps=record_steps, check=check)
    driver.run()
    cap = driver.scheduler.running_cap
    gaps = [gap for request in driver.requests for gap in request.gaps_us]
    totals: dict[str, Any] = driver.totals | driver.scheduler.totals
    totals |= {
        "end_us": driver.t_us,
        "stop": driver.stop,
        "cap_min": cap.cap_min,
        "cap_final": cap.cap,
        "cap_steps": cap.cap_steps,
        "itl_count": len(gaps),
        "itl_sum_us": sum(gaps),
        "itl_max_us": max(gaps, default=0),
        "usable_blocks": driver.scheduler.pool.usable,
    }
    return Outcome(
        steps=driver.rows,
        requests=[_outcome(r) for r in driver.requests],
        totals=totals,
        free_order=driver.scheduler.pool.free_order(),
        completion_us=driver.completion_us,
        books=driver.books,
        backlog=driver.backlog,
        calls=driver.scheduler.tape.calls,
        events_after=driver.scheduler.tape.events,
    )


def _outcome(r: RequestState) -> RequestOutcome:
    return RequestOutcome(
        arrival_us=r.arrival_us,
        first_scheduled_us=r.first_scheduled_us,
        first_token_us=r.first_token_us,
        first_life_token_us=r.first_life_token_us,
        last_token_us=r.last_token_us,
        finish_us=r.finish_us,
        num_generated=r.generated,
        num_preemptions=r.num_preemptions,
        prefix_hit_tokens_first=r.hit_tokens_first,
        prefix_hit_tokens=r.hit_tokens_all,
        scheduled_tokens=r.scheduled_tokens,
        admission_wait_us=r.admission_wait_us,
        admission_wait_end_us=r.admission_wait_end_us,
        verified_drafts=r.verified_drafts,
        accepted_drafts=r.accepted_drafts,
        status=r.status,
        gaps_us=r.gaps_us,
    )
