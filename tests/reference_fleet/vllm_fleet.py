"""A fleet of plain-Python vLLM engines behind a router that looks at them.

At a decision a router sees each engine as it was when the last of its steps that has begun began, arrivals let in; or,
if that step has ended by then, as it is. A request in flight was sent and is not done with, as far as can be seen.
"""

import heapq
from typing import NamedTuple

from tests.reference.async_driver import AsyncDriver
from tests.reference.driver import Driver
from tests.reference.policies import complete
from tests.reference_fleet.load import argmin
from tests.reference_fleet.vllm_dp import VllmDataParallel


class Seen(NamedTuple):
    waiting: int
    running: int
    kv_use: float
    gone: int


class Replica:
    """A driver that rests: `advance(t)` makes all steps that begin before t (None: all there are)."""

    def __init__(self, config, workload):
        super().__init__(config, workload, record_steps=False, check=False)
        self.clients.pending.clear()
        self.clients.more_to_come = lambda: bool(self.clients.pending) or self.more_is_sent
        self.more_is_sent = True
        self.totals["first_arrival_us"] = -1
        self.totals["unservable"] = 0
        self.seen_at_begin = None

    def send(self, i):
        """Returns whether the request is in flight by that."""
        request = self.requests[i]
        if request.status == "unservable":
            self.totals["unservable"] += 1
            return False
        heapq.heappush(self.clients.pending, (request.arrival_us, i, request))
        if self.totals["first_arrival_us"] < 0:
            self.totals["first_arrival_us"] = request.arrival_us
        return True

    def open_door(self):
        super().open_door()
        self.seen_at_begin = self.counts()

    def counts(self):
        totals, pool = self.totals, self.scheduler.pool
        gone = totals["completed"] + totals["rejected"] + totals["timed_out"]
        kv_use = (pool.usable - pool.num_free) / max(pool.usable, 1)
        return Seen(len(self.scheduler.waiting), len(self.scheduler.running), kv_use, gone)

    def look(self, now_us):
        return self.counts() if self.t_us <= now_us or self.stop else self.seen_at_begin

    def advance(self, until_us):
        self.more_is_sent = until_us is not None
        while not self.stop and (until_us is None or self.t_us < until_us):
            if self.is_idle():
                arrival_us = self.clients.next_arrival_us()
                if arrival_us is None and until_us is not None:
                    break
                if arrival_us is not None and until_us is not None and max(arrival_us, self.t_us) >= until_us:
                    self.wait_for(arrival_us)
                    break
            self.go_on()
        if self.stop:
            while self.in_flight:
                self.receive_oldest()


class SyncReplica(Replica, Driver):
    def is_idle(self):
        return not self.scheduler.num_unfinished() and not self.held

    def wait_for(self, arrival_us):
        self._jump_to_next_arrival()

    def go_on(self):
        self.open_door()
        if not self.scheduler.num_unfinished():
            self._jump_to_next_arrival()
        elif self._may_step():
            batch = self.scheduler.schedule(self.t_us)
            batch.start_us = self.t_us
            batch.end_us = self.t_us + self.step_us(batch)
            self.t_us = batch.end_us
            self.finish_step(batch)


class AsyncReplica(Replica, AsyncDriver):
    def is_idle(self):
        return not (self._has_work() or self.in_flight or self.held)

    def wait_for(self, arrival_us):
        self.t_us = max(self.t_us, arrival_us)

    def go_on(self):
        self.make_pass()


def two_of(draws, replicas):
    """Two different replicas from two uniform draws: one of all, and one of the others."""
    first = int(draws[0] * replicas)
    others = [k for k in range(replicas) if k != first]
    return first, others[int(draws[1] * (replicas - 1))]


def simulate_fleet(config, requests, replicas, router, draws, refresh_us=0):
    """Run `requests` over so many engines of `config`; `draws[i]` are two uniform draws of request i.

    Returns who served each request, and the drivers.
    """
    full = complete(config)
    kind = AsyncReplica if full.engine.endswith("-async") else SyncReplica
    engines = [kind(full, requests) for _ in range(replicas)]
    sent = [0] * replicas
    balancer = VllmDataParallel(replicas)
    last_snapshot_us = -1
    served_by = [-1] * len(requests)

    def in_flight(k, now_us):
        engines[k].advance(now_us)
        return sent[k] - engines[k].look(now_us).gone

    for i in sorted(range(len(requests)), key=lambda i: (requests[i].arrival_us, i)):
        now_us = requests[i].arrival_us
        if router == "power_of_two":
            first, second = two_of(draws[i], replicas)
            chosen = second if in_flight(second, now_us) < in_flight(first, now_us) else first
        elif router == "least_loaded":
            chosen = argmin([in_flight(k, now_us) for k in range(replicas)])
        else:
            snapshot_us = now_us // refresh_us * refresh_us if refresh_us else now_us
            if snapshot_us > last_snapshot_us or not refresh_us:
                for engine in engines:
                    engine.advance(snapshot_us)
                looks = [engine.look(snapshot_us) for engine in engines]
                balancer.snapshot([[seen.waiting, seen.running, seen.kv_use] for seen in looks])
                last_snapshot_us = snapshot_us
            balancer.in_flight.counts = [in_flight(k, now_us) for k in range(replicas)]
            chosen = balancer.route(i)
        served_by[i] = chosen
        sent[chosen] += engines[chosen].send(i)
    for engine in engines:
        engine.advance(None)
        for request in engine.scheduler.running:
            engine.scheduler.end_life(request)
    return served_by, engines
