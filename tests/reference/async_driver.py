"""vLLM 0.33.0's engine core with two batches in flight: the clock around the asynchronous scheduler."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from tests.reference.async_scheduler import AsyncScheduler
from tests.reference.driver import Driver
from tests.reference.requests import Request, RequestState
from tests.reference.scheduler import Batch

SLEEP_US = 1000
"""The engine core sleeps this long after a pass that submitted nothing while it still has requests."""


class AsyncDriver(Driver):
    """One pass of the engine core after another. Step times, door, counters and policies are the synchronous driver's.

    What watches steps (running cap, backpressure, livelock, counters) sees a batch when its output is processed, with
    the preemptions of its own schedule() call. An empty batch takes no time, blocks swapped in it included.
    """

    scheduler_class = AsyncScheduler

    def __init__(
        self, config: SimpleNamespace, workload: Sequence[Request], *, record_steps: bool = True, check: bool = True
    ) -> None:
        super().__init__(config, workload, record_steps=record_steps, check=check)
        self.gpu_us = 0  # end of the last batch that was not empty
        self.somebody_finished = False  # since the last schedule() call; an aborted request counts
        self.calls = 0

    def _run(self) -> None:
        while not self.stop:
            self.make_pass()
        while self.in_flight:
            self.receive_oldest()

    def make_pass(self) -> None:
        if not (self._has_work() or self.in_flight or self.held):
            arrival = self.clients.next_arrival_us()
            if arrival is None:
                self.stop = "drained"
                return
            self.t_us = max(self.t_us, arrival)
        self.open_door()
        submitted: Batch | None = None
        if self._has_work():
            if not self._may_step():
                return
            submitted = self.submit()
        waits_for_more = (
            submitted is not None
            and len(self.in_flight) == 1
            and (submitted.num_tokens > 0 or self.scheduler.num_unfinished() > 0)
        )
        if self.in_flight and not waits_for_more:
            self.receive_oldest()
        if not (submitted and submitted.num_tokens) and self._has_work():
            self.t_us += SLEEP_US

    def _has_work(self) -> bool:
        return self.scheduler.num_unfinished() > 0 or self.somebody_finished

    def _steps_begun(self) -> int:
        return self.calls

    def submit(self) -> Batch:
        """Schedule a batch and queue it behind what the GPU still has to do."""
        self.somebody_finished = False
        self.calls += 1
        batch = self.scheduler.schedule(self.t_us)
        batch.start_us = batch.end_us = max(self.t_us, self.gpu_us)
        if batch.num_tokens:
            batch.end_us = self.gpu_us = batch.start_us + self.step_us(batch)
        self.in_flight.append(batch)
        return batch

    def receive_oldest(self) -> None:
        batch = self.in_flight.popleft()
        self.t_us = max(self.t_us, batch.end_us)
        if self.finish_step(batch):
            self.somebody_finished = True

    def _abort(self, request: RequestState) -> None:
        super()._abort(request)
        self.somebody_finished = True

    def _batch_columns(self, batch: Batch) -> list[int]:
        return [batch.start_us, batch.end_us]

    def tokens_in_flight(self) -> int:
        return sum(batch.num_tokens for batch in self.in_flight)

    def state(self) -> Any:
        alive = [*self.scheduler.running, *self.scheduler.waiting]
        return (
            super().state(),
            [(r.index, r.placeholders, r.inflight, r.stale) for r in alive],
            [[(r.index, n) for r, n in batch.scheduled.items()] for batch in self.in_flight],
            self.somebody_finished,
        )
