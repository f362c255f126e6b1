"""The clock around the scheduler: arrivals, the front door, steps, stops, and what is written down."""

import heapq
from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from tests.reference.latency import table_us
from tests.reference.policies import Backpressure, is_unservable
from tests.reference.requests import Request, RequestState
from tests.reference.scheduler import Batch, Scheduler


class Clients:
    """Who sends what when: all requests at their own times, or a closed loop of `concurrency` clients.

    In a closed loop requests go out in index order. The first `concurrency` at their own `arrival_us`; each later one
    when a client becomes free (end of the step that completed its request, the step start at which its deadline was
    noticed, or `retry_after_s` after the moment it was refused) plus the later request's `think_us`, but not before its
    own `arrival_us`: so a load generator sends at a rate and has at most `concurrency` requests out. Requests that can
    never run are not sent.
    """

    def __init__(self, config: SimpleNamespace, requests: Sequence[RequestState]) -> None:
        self.retry_after_us = round(config.retry_after_s * 1e6)
        self.closed = config.concurrency is not None
        sent = requests[: config.concurrency] if self.closed else requests
        self.unsent = deque(requests[len(sent) :])
        self.pending = [(r.arrival_us, r.index, r) for r in sent]
        heapq.heapify(self.pending)

    def next_arrival_us(self) -> int | None:
        return self.pending[0][0] if self.pending else None

    def more_to_come(self) -> bool:
        return bool(self.pending)

    def pop_arrived(self, now: int) -> RequestState | None:
        """The earliest request, by (arrival, index), that has arrived by now."""
        return heapq.heappop(self.pending)[2] if self.pending and self.pending[0][0] <= now else None

    def client_is_free(self, now: int, *, refused: bool = False) -> None:
        if self.unsent:
            request = self.unsent.popleft()
            free_us = now + request.spec.think_us + (self.retry_after_us if refused else 0)
            request.arrival_us = max(request.spec.arrival_us, free_us)
            heapq.heappush(self.pending, (request.arrival_us, request.index, request))


class Books(NamedTuple):
    """Totals at the moment of a completion; recomputed tokens are booked when a life ends, or at once."""

    at_us: int
    prefill_tokens: int
    decode_tokens: int
    recomputed_tokens: int
    discarded_tokens: int
    recomputed_at_once: int


class Driver:
    """The synchronous loop: one step after another, each seen to its end before the next is scheduled."""

    scheduler_class: type[Scheduler] = Scheduler

    def __init__(
        self, config: SimpleNamespace, workload: Sequence[Request], *, record_steps: bool = True, check: bool = True
    ) -> None:
        self.config = config
        self.requests = [RequestState(i, spec) for i, spec in enumerate(workload)]
        for request in self.requests:
            if is_unservable(config, request.spec):
                request.status = "unservable"
        servable = [r for r in self.requests if r.status != "unservable"]
        self.scheduler = self.scheduler_class(config, workload)
        self.clients = Clients(config, servable)
        self.backpressure = Backpressure(config)
        self.held: deque[RequestState] = deque()
        self.in_flight: deque[Batch] = deque()
        self.completed_since_door = 0
        self.timeout_us = None if config.timeout_s is None else round(config.timeout_s * 1e6)

        self.t_us = 0
        self.stop = ""
        self.rows: list[list[Any]] | None = [] if record_steps else None
        self.check = check
        self.completion_us: list[int] = []
        self.books: list[Books] = []
        self.backlog: list[tuple[int, int]] = []
        self.arrived = self.gone = 0
        self.totals: dict[str, int] = {
            "steps": 0,
            "empty_steps": 0,
            "prefill_tokens": 0,
            "decode_tokens": 0,
            "completed": 0,
            "kv_block_us": 0,
            "kv_peak_blocks": 0,
            "running_us": 0,
            "running_peak": 0,
            "batch_tokens_peak": 0,
            "busy_us": 0,
            "waiting_peak": 0,
            "rejected": 0,
            "held": 0,
            "timed_out": 0,
            "unservable": len(self.requests) - len(servable),
            "first_arrival_us": min((us for us, _, _ in self.clients.pending), default=-1),
            "livelock_step": -1,
            "livelock_us": -1,
            "livelock_kind": 0,
        }
        self.steps_without_progress = 0
        self.best_generated = [0] * len(self.requests)
        self.last_state: Any = None

    # --- The loop ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        self._run()
        for request in self.scheduler.running:
            self.scheduler.end_life(request)

    def _run(self) -> None:
        while not self.stop:
            self.open_door()
            if not self.scheduler.num_unfinished():
                self._jump_to_next_arrival()
            elif self._may_step():
                batch = self.scheduler.schedule(self.t_us)
                batch.start_us = self.t_us
                batch.end_us = self.t_us + self.step_us(batch)
                self.t_us = batch.end_us
                self.finish_step(batch)

    def _jump_to_next_arrival(self) -> None:
        arrival = self.clients.next_arrival_us()
        if arrival is None:
            self.stop = "drained"
            return
        self.t_us = arrival
        if self.config.horizon_us is not None and arrival >= self.config.horizon_us:
            self.stop = "horizon"

    def _may_step(self) -> bool:
        if self.config.horizon_us is not None and self.t_us >= self.config.horizon_us:
            self.stop = "horizon"
        elif self._steps_begun() == self.config.max_steps:
            self.stop = "max_steps"
        return not self.stop

    def _steps_begun(self) -> int:
        return self.totals["steps"]

    def step_us(self, batch: Batch) -> int:
        """IEEE doubles, left to right, truncated. An empty step takes its time too.

        The drafter works in each step that samples a token.
        """
        c = self.config
        us = (
            c.b0_us
            + c.b1_us_per_prefill_token * batch.prefill_tokens
            + c.b2_us_per_decode_token * batch.decode_tokens
            + table_us(c, batch.prefill_tokens, batch.decode_tokens)
            + c.b3_us_per_context_token * batch.context_tokens
            + c.b6_us_per_window_token * batch.window_tokens
        )
        if batch.prefill_tokens:
            us += c.b5_us_per_prefill_step + c.b4_us_per_prefill_pair * (batch.prefill_pairs_doubled / 2)
        if c.spec_method and batch.sampling:
            drafted = c.num_speculative_tokens * len(batch.sampling)
            us += c.spec_draft_us + c.spec_draft_us_per_token * drafted
        if c.preemption_mode == "swap":
            us += c.swap_us_per_block * batch.swapped_blocks
        return int(us)

    # --- The front door ---------------------------------------------------------------------------------------------

    def open_door(self) -> None:
        """Before a step: deadlines, then those held at the door, then arrivals.

        With nothing unfinished backpressure forgets what it saw, and everybody held comes in.
        """
        self._abort_expired()
        if not self.scheduler.num_unfinished():
            self.backpressure.clear()
        places = self.completed_since_door if self.backpressure.exceeded() else len(self.held)
        for _ in range(min(places, len(self.held))):
            self.scheduler.add_request(self.held.popleft(), self.t_us)
        self.completed_since_door = 0
        while (request := self.clients.pop_arrived(self.t_us)) is not None:
            self.arrived += 1
            self._receive(request)
            self.backlog.append((request.arrival_us, self.arrived - self.gone))

    def _receive(self, request: RequestState) -> None:
        """Deadline, queue limits, backpressure, in this order. A request held and let in later is not asked again."""
        waiting = self.scheduler.waiting
        reqs, tokens = self.config.max_num_queued_reqs, self.config.max_num_queued_tokens
        if self._expired(request):
            self._time_out(request)
        elif reqs is not None and len(waiting) >= reqs:
            self._reject(request, "max_num_queued_reqs", len(waiting))
        elif tokens is not None and sum(r.prompt for r in waiting) >= tokens:
            self._reject(request, "max_num_queued_tokens", sum(r.prompt for r in waiting))
        elif not self.backpressure.exceeded():
            self.scheduler.add_request(request, self.t_us)
        elif self.config.backpressure_action == "reject":
            self._reject(request, "backpressure_threshold", sum(self.backpressure.window))
        else:
            self.scheduler.tape.note("held", request)
            request.status = "held"
            self.totals["held"] += 1
            self.held.append(request)

    def _reject(self, request: RequestState, limit: str, found: int) -> None:
        self.scheduler.tape.note("rejected", request, limit, found)
        request.status = "rejected"
        self.totals["rejected"] += 1
        self._goes(self.t_us, refused=True)

    def _expired(self, request: RequestState) -> bool:
        return self.timeout_us is not None and request.arrival_us + self.timeout_us <= self.t_us

    def _abort_expired(self) -> None:
        """By (deadline, index); deadlines are looked at only here, so a request may still finish in the step that
        passes its deadline. The moment of the abort is the deadline."""
        alive = [*self.scheduler.running, *self.scheduler.waiting, *self.held]
        for request in sorted(filter(self._expired, alive), key=lambda r: (r.arrival_us, r.index)):
            if request.status == "held":
                self.held.remove(request)
            else:
                self._abort(request)
            self._time_out(request)

    def _abort(self, request: RequestState) -> None:
        self.scheduler.abort_request(request)

    def _time_out(self, request: RequestState) -> None:
        assert self.timeout_us is not None
        request.status = "timed_out"
        request.finish_us = request.arrival_us + self.timeout_us
        self.totals["timed_out"] += 1
        self._goes(self.t_us)

    def _goes(self, now: int, *, refused: bool = False) -> None:
        """A request is done with, one way or another."""
        self.gone += 1
        if self.clients.closed:
            self.clients.client_is_free(now, refused=refused)

    # --- The end of a step -------------------------------------------------------------------------------------------

    def finish_step(self, batch: Batch) -> list[RequestState]:
        """The output of a batch is there: tokens, completions, counters, policies that watch, livelocks."""
        finished = self.scheduler.update_from_output(batch, batch.end_us)
        self._note_completions(batch)
        for request in finished:
            self.completion_us.append(request.finish_us)
            self.completed_since_door += 1
            self._goes(batch.end_us)
        self._count(batch, len(finished))
        if batch.num_tokens:
            self.scheduler.running_cap.after_step(len(batch.preempted), len(self.scheduler.running))
            self.backpressure.after_step(len(batch.preempted))
        self._write_row(batch, finished)
        if self.check:
            check_invariants(self)
        if self.config.detect_livelock and not self.stop:
            self._look_for_livelock()
        return finished

    def _note_completions(self, batch: Batch) -> None:
        """What had been scheduled, computed again and discarded at each of the completions of this step."""
        batches = [batch, *self.in_flight]
        prefill = self.totals["prefill_tokens"] + sum(b.prefill_tokens for b in batches)
        decode = self.totals["decode_tokens"] + sum(b.decode_tokens for b in batches)
        discarded = self.scheduler.totals["discarded_tokens"]
        for at_us, recomputed, at_once in self.scheduler.completions:
            self.books.append(Books(at_us, prefill, decode, recomputed, discarded, at_once))
        self.scheduler.completions.clear()

    def _count(self, batch: Batch, completed: int) -> None:
        duration = batch.end_us - batch.start_us
        assert duration >= 0
        totals = self.totals
        totals["steps"] += 1
        totals["empty_steps"] += batch.num_tokens == 0
        totals["prefill_tokens"] += batch.prefill_tokens
        totals["decode_tokens"] += batch.decode_tokens
        totals["completed"] += completed
        totals["kv_block_us"] += batch.held_blocks * duration
        totals["running_us"] += batch.running * duration
        totals["busy_us"] += duration if batch.num_tokens else 0
        for name, value in (
            ("kv_peak_blocks", batch.held_blocks),
            ("running_peak", batch.running),
            ("waiting_peak", batch.waiting),
            ("batch_tokens_peak", batch.num_tokens),
        ):
            totals[name] = max(totals[name], value)

    def _write_row(self, batch: Batch, finished: list[RequestState]) -> None:
        if self.rows is not None:
            self.rows.append(
                [
                    batch.t_us,
                    [x for request, n in batch.scheduled.items() for x in (request.index, n)],
                    [r.index for r in batch.preempted],
                    [r.index for r in finished],
                    batch.free_blocks,
                    self.scheduler.pool.num_free,
                    len(self.scheduler.running),
                    len(self.scheduler.waiting),
                    *self._batch_columns(batch),
                ]
            )
            if self.config.kv_cache_groups or self.config.spec_method:
                verified = [
                    x for request, drafts, accepted in batch.verified for x in (request.index, drafts, accepted)
                ]
                self.rows[-1] += [batch.held_by_group, verified]

    def _batch_columns(self, batch: Batch) -> list[int]:
        """When the batch ran, where that is not from its schedule() call on."""
        return []

    def tokens_in_flight(self) -> int:
        """Tokens of batches that have been scheduled but not counted yet."""
        return 0

    def state(self) -> Any:
        return (self.scheduler.state(), list(self.backpressure.window), [r.index for r in self.held])

    def _look_for_livelock(self) -> None:
        """(a) Two steps in a row ended in the same state, nobody is to arrive and no deadline will come.

        (b) For `livelock_steps` steps no request has passed its own highest G.
        """
        alive = [*self.scheduler.running, *self.scheduler.waiting]
        progress = False
        for request in self.requests:
            if request.most_generated > self.best_generated[request.index]:
                self.best_generated[request.index] = request.most_generated
                progress = True
        self.steps_without_progress = 0 if progress else self.steps_without_progress + 1
        if not alive:
            self.last_state = None
            return
        state = None if self.clients.more_to_come() or self.timeout_us is not None else self.state()
        limit = self.config.livelock_steps
        if limit is None:
            limit = max(10_000, 4 * sum(r.prompt + r.spec.output_tokens for r in alive))
        kind = 1 if state is not None and state == self.last_state else 0
        kind = kind or (2 if self.steps_without_progress >= limit else 0)
        if kind:
            self.stop = "livelock"
            self.totals["livelock_kind"] = kind
            self.totals["livelock_step"] = self.totals["steps"] - 1
            self.totals["livelock_us"] = self.t_us
        self.last_state = state


def check_invariants(driver: Driver) -> None:
    """What must hold after every step, whatever the policies."""
    scheduler, config = driver.scheduler, driver.config
    pool = scheduler.pool
    references: dict[int, int] = {}
    for request in scheduler.running:
        for block in request.blocks:
            references[block.block_id] = references.get(block.block_id, 0) + 1
    assert all(pool.blocks[i - 1].ref_count == n for i, n in references.items())
    assert all(block.ref_count == 0 for block in pool.free.values())
    assert len(references) + len(pool.free) == pool.usable, "a block is lost, or in two places"
    assert len(scheduler.running) <= config.max_num_seqs

    seen = [r.index for r in (*scheduler.running, *scheduler.waiting, *driver.held)]
    assert len(seen) == len(set(seen)), "a request is in two places"
    for request in scheduler.running:
        assert request.status == "running"
        for group, table in zip(scheduler.kv.groups, request.tables, strict=True):
            assert len(table.entries) * group.block_size >= min(request.num_computed, config.max_model_len)
            needless = max(group.skipped(request.num_computed - scheduler.in_flight(request)), 0)
            assert (
                None not in table.entries[needless // group.block_size :]
                or group.checkpoint
                or "spec_blocks" in vars(group)
            )
    for request in scheduler.waiting:
        assert request.status == "waiting"
        assert not request.blocks
        assert request.placeholders == 0
        assert (request.host_blocks > 0) == (request.num_computed > 0)
    host = sum(r.host_blocks for r in scheduler.waiting)
    assert host == scheduler.host_blocks <= config.swap_space_blocks
    for request in driver.requests:
        assert request.num_tokens == request.prompt + request.generated
        assert request.generated <= request.spec.output_tokens
    sent = sum(r.scheduled_tokens for r in driver.requests)
    assert sent == driver.totals["prefill_tokens"] + driver.totals["decode_tokens"] + driver.tokens_in_flight()
