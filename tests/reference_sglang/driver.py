"""The simulated clock around the scheduler, with and without overlap; rows and sums as the recordings have them."""

from dataclasses import dataclass
from typing import Any

from tests.reference_sglang.requests import Batch, Request
from tests.reference_sglang.scheduler import OutOfMemoryError, Pass, Scheduler

Row = list[Any]
OVERLAP_COLUMNS = 17
COLUMNS = 15


@dataclass
class Flight:
    """A batch on the GPU."""

    batch: Batch
    end: int
    row: Row


class Driver:
    def __init__(
        self, config: dict[str, Any], requests: list[list[int]], tree: list[tuple[int, int]] | None = None
    ) -> None:
        self.config = config
        self.scheduler = Scheduler(config)
        self.requests = [Request(i, *row[:7], bool(row[7]), tree or []) for i, row in enumerate(requests)]
        self.longest = min(config["context_length"], self.scheduler.memory.pool) - 6
        self.coming = sorted(self.requests, key=lambda r: (r.arrival, r.index))
        self.arrived: list[Request] = []
        self.rows: list[Row] = []
        self.t = 0
        self.steps = 0
        self.stop = ""

    def run(self) -> dict[str, Any]:
        flight: Flight | None = None
        while not self.must_stop():
            try:
                decided = self.scheduler.schedule(self.t)
            except OutOfMemoryError:
                self.stop = "out_of_memory"
                break
            for request in decided.aborted:
                request.finish = self.t
            new = self.start(decided, flight)
            was_idle = self.scheduler.last is None
            self.scheduler.last = decided.batch
            if self.scheduler.overlaps:
                flight, done = new, flight
            else:
                flight, done = None, new
            if done is not None:
                self.land(done)
            elif decided.batch is None:
                self.idle(decided, was_idle)
        return self.result()

    def must_stop(self) -> bool:
        while True:
            while self.coming and self.coming[0].arrival <= self.t:
                request = self.coming.pop(0)
                if request.prompt < self.longest:  # others are refused
                    self.arrived.append(request)
                    self.scheduler.arrive(request)
            horizon, max_steps = self.config["horizon_us"], self.config["max_steps"]
            if horizon is not None and self.t >= horizon:
                self.stop = "horizon"
            elif max_steps is not None and self.steps == max_steps:
                self.stop = "max_steps"
            elif self.scheduler.last is None and all(r.finished for r in self.arrived):
                if self.coming:
                    self.scheduler.ratio = self.scheduler.init_ratio
                    self.t = self.coming[0].arrival
                    continue
                self.stop = "drained"
            return self.stop != ""

    def start(self, decided: Pass, before: Flight | None) -> Flight | None:
        """Run the batch of a pass, and write the row of the pass."""
        batch = decided.batch
        if batch is None and not (decided.retracted or decided.preempted or decided.aborted):
            return None
        scheduler = self.scheduler
        row: Row = [None] * (OVERLAP_COLUMNS if scheduler.overlaps else COLUMNS)
        row[0] = self.t
        row[1] = batch.kind if batch else "-"
        row[2] = batch.row() if batch else []
        row[3] = [r.index for r in decided.retracted]
        row[4] = sorted(r.index for r in decided.preempted)
        row[5] = []
        row[6] = scheduler.ratio
        row[7] = scheduler.memory.free
        row[13] = int(scheduler.full)
        row[14] = [r.index for r in decided.aborted]
        self.rows.append(row)
        start = end = self.t
        if batch is not None:
            start = self.t if before is None else max(self.t, before.end)
            extends = sum(x.tokens for x in batch.extends)
            config = self.config
            end = start + int(config["beta0"] + config["beta1"] * extends + config["beta2"] * len(batch.decodes))
            self.steps += 1
            for extend in batch.extends:
                extend.request.prefilled += extend.tokens
        if scheduler.overlaps:
            row[15:] = [start, end]
        if batch is None:
            self.look(row)
            return None
        return Flight(batch, end, row)

    def land(self, flight: Flight) -> None:
        """A batch is done: its outputs are processed."""
        self.t = max(self.t, flight.end)
        flight.row[5] = [r.index for r in self.scheduler.process(flight.batch, flight.end)]
        self.look(flight.row)

    def look(self, row: Row) -> None:
        memory = self.scheduler.memory
        unfinished = [r for r in self.arrived if not r.finished]
        own = sum(memory.ceil(r.kv) - r.protected for r in unfinished)
        assert memory.free + memory.evictable() + memory.locked() + own == memory.pool
        assert sum(r.has_row for r in unfinished) + memory.rows == self.config["max_running_requests"]
        assert memory.free >= 0 <= memory.rows
        row[8] = memory.free
        row[9] = memory.evictable()
        row[10] = memory.locked()
        row[11] = self.config["max_running_requests"] - memory.rows
        row[12] = len(self.scheduler.queue.requests)

    def idle(self, decided: Pass, was_idle: bool) -> None:
        if all(r.finished for r in self.arrived):
            self.scheduler.ratio = self.scheduler.init_ratio
        if was_idle and not decided.put_off:
            if self.coming:
                self.t = self.coming[0].arrival
            elif not all(r.finished for r in self.arrived):
                self.stop = "livelock"  # nothing will ever change

    def result(self) -> dict[str, Any]:
        return {
            "steps": self.rows,
            "requests_out": [
                [
                    *(r.first_scheduled, r.first_token, r.finish, r.retractions, r.preemptions, r.generated),
                    *(r.first_hit, r.all_hits, r.prefilled, r.clipped_limit),
                ]
                for r in self.requests
            ],
            "totals": {
                "steps": self.steps,
                "prefill_tokens": sum(r.prefilled for r in self.requests),
                "decode_tokens": sum(len(decodes_of(row)) for row in self.rows),
                "retractions": sum(r.retractions for r in self.requests),
                "preemptions": sum(r.preemptions for r in self.requests),
                "completed": sum(r.finished for r in self.requests) - sum(len(row[14]) for row in self.rows),
                "aborted": sum(len(row[14]) for row in self.rows),
                "end_us": self.t,
                "stop": self.stop,
            },
        }


def decodes_of(row: Row) -> list[int]:
    decodes: list[int] = row[2][1] if row[1] == "M" else row[2] if row[1] == "D" else []
    return decodes


def simulate(
    config: dict[str, Any], requests: list[list[int]], tree: list[tuple[int, int]] | None = None
) -> dict[str, Any]:
    """Rows, per-request results and totals in the form of the recordings; `tree`: groups that extend one another."""
    return Driver(config, requests, tree).run()
