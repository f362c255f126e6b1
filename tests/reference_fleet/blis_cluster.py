"""BLIS in cluster mode (inference-sim f90a1e3a): several of its engines behind one router, in plain Python.

The engines are those of `tests.reference_blis`. The cluster has a queue of events of its own, ordered by (time, kind,
number); at equal times its events come before the engines', and an engine's before those of one with a higher number.
"""

import heapq
import itertools
import math
from dataclasses import dataclass, field
from types import SimpleNamespace

from tests.reference_blis.metrics import aggregate
from tests.reference_blis.requests import Config
from tests.reference_blis.simulator import ARRIVAL, Simulator
from tests.reference_fleet.blis_router import Router

ARRIVES, ADMISSION, ROUTING = range(3)  # order of the cluster's events at the same microsecond
ENGINE_KEYS = (
    "total_kv_blocks",
    "block_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "long_prefill_token_threshold",
    "preemption_policy",
    "scheduler",
    "horizon_us",
)


@dataclass
class Snapshot:
    """What a router last read of an engine."""

    waiting: int = 0
    running: int = 0
    kv_use: float = 0.0
    read_us: int = 0


class Replica(Simulator):
    """An engine, and what the router knows of it: `seen` and `seen_keys` may be old, `in_flight` never is."""

    def __init__(self, number, config):
        super().__init__(config, [])
        self.number = number
        self.in_flight = set()  # until the START of a request's last step: then BLIS takes it for complete
        self.seen = Snapshot()
        self.seen_keys = set()

    @property
    def num_in_flight(self):
        return len(self.in_flight)

    @property
    def load(self):
        """A request counts twice once the snapshot has seen it."""
        return self.seen.waiting + self.seen.running + self.num_in_flight

    def send(self, now, request):
        self.requests.append(request)
        self.in_flight.add(request)
        self.schedule(now, ARRIVAL, request)

    def handle_next(self):
        """Returns the requests that the engine is done with."""
        now, kind, _, request = heapq.heappop(self.events)
        if not self.is_void(kind, request):
            self.handle(now, kind, request)
        done = {r for r in self.in_flight if r.status in ("finished", "timed_out", "unservable")}
        self.in_flight -= done
        return done

    def read(self, now):
        blocks = self.config.total_kv_blocks
        self.seen = Snapshot(len(self.waiting), len(self.running), self.cache.used / blocks, now)

    def read_cache(self):
        self.seen_keys = set(self.cache.by_key)

    def cached_blocks(self, request):
        """Leading blocks of the prompt that the replica had when its cache was last read."""
        count = 0
        for key in self.cache.prompt_keys(request):
            if key not in self.seen_keys:
                break
            count += 1
        return count


class TokenBucket:
    """Admission control: a request pays its prompt tokens, or is rejected."""

    def __init__(self, capacity, refill_rate):
        self.capacity = capacity
        self.refill_rate = refill_rate  # tokens a second
        self.tokens = capacity
        self.last_us = 0

    def admits(self, now, request):
        self.tokens = min(self.capacity, self.tokens + (now - self.last_us) * self.refill_rate / 1e6)
        self.last_us = now
        if request.prompt_tokens > self.tokens:
            return False
        self.tokens -= request.prompt_tokens
        return True


class AlwaysAdmit:
    def admits(self, now, request):
        return True


@dataclass
class Decision:
    """`seen`: [waiting, running, kv_use, in flight] of each candidate, before the decision."""

    kind: str
    request_id: str
    time_us: int
    replica: int
    seen: list = field(default_factory=list)

    def golden(self):
        return [self.kind, self.request_id, self.time_us, self.replica, self.seen]


class Cluster:
    replica_class = Replica

    def __init__(self, config, latency, requests, ties=None):
        """`config` has BLIS's flags by their names in a recorded case; `ties` as in `Router`."""
        self.config = SimpleNamespace(**config)
        engine = Config(
            **{key: config[key] for key in ENGINE_KEYS}, alpha=tuple(latency["alpha"]), beta=tuple(latency["beta"])
        )
        self.engine = engine
        self.requests = requests
        self.replicas = [self.replica_class(number, engine) for number in range(config["instances"])]
        self.router = Router(config["routing_policy"], config["routing_scorers"], engine.block_size, ties)
        if config["admission_policy"] == "token-bucket":
            self.admission = TokenBucket(config["token_bucket_capacity"], config["token_bucket_refill_rate"])
        else:
            assert config["admission_policy"] == "always-admit"
            self.admission = AlwaysAdmit()
        self.events = []
        self.order = itertools.count()
        self.cache_read_us = 0
        self.decisions = []
        self.replica_of = {}

    def schedule(self, time_us, kind, request):
        heapq.heappush(self.events, (time_us, kind, next(self.order), request))

    def run(self):
        for request in sorted(self.requests, key=lambda r: r.arrival_us):  # stable: ties in trace order
            self.schedule(request.arrival_us, ARRIVES, request)
        horizon = math.inf if self.engine.horizon_us is None else self.engine.horizon_us
        while (queue := self.next_queue()) is not None and queue.events[0][0] <= horizon:
            if queue is not self:
                done = queue.handle_next()
                self.note_done(queue.clock_us, done)
                continue
            now, kind, _, request = heapq.heappop(self.events)
            self.handlers()[kind](now, request)
        return self

    def handlers(self):
        return {ARRIVES: self.arrive, ADMISSION: self.admit, ROUTING: self.route}

    def note_done(self, now, requests):
        """An engine is done with some requests."""

    def next_queue(self):
        """Whose event is next: the cluster's own, or a replica's."""
        queues = [queue for queue in (self, *self.replicas) if queue.events]
        return min(queues, key=lambda queue: queue.events[0][0], default=None)  # the first of equals

    def arrive(self, now, request):
        self.schedule(now + self.config.admission_latency_us, ADMISSION, request)

    def admit(self, now, request):
        self.look(now)
        if self.admission.admits(now, request):
            self.schedule(now + self.config.routing_latency_us, ROUTING, request)
        else:
            request.status = "rejected"

    def look(self, now):
        """Every decision reads what is due: the numbers of each replica, and the caches of all of them."""
        for replica in self.replicas:
            if now - replica.seen.read_us >= self.config.snapshot_refresh_interval_us:
                replica.read(now)
        if now - self.cache_read_us >= self.config.cache_signal_delay_us:
            self.cache_read_us = now
            for replica in self.replicas:
                replica.read_cache()

    def route(self, now, request):
        self.look(now)
        replica, seen = self.choose(request, self.replicas)
        self.note("route", request, now, replica, seen)
        replica.send(now, request)

    def choose(self, request, candidates):
        """The replica, and what was seen of each before the choice."""
        seen = [[r.seen.waiting, r.seen.running, r.seen.kv_use, r.num_in_flight] for r in candidates]
        return self.router.choose(request, candidates), seen

    def note(self, kind, request, now, replica, seen):
        self.decisions.append(Decision(kind, request.id, now, replica.number, seen))
        self.replica_of[request] = replica.number

    # --- what is reported -----------------------------------------------------------------------------------------

    def reported(self):
        """Requests that have a row: not those rejected, or dropped because no engine can ever serve them."""
        return [r for r in self.requests if r.status not in ("rejected", "unservable", "pending")]

    def aggregate(self):
        """BLIS's metrics over all replicas; the hit rate is the plain mean of theirs."""
        replicas = self.replicas
        rates = [replica.cache.hit_rate() for replica in replicas]
        return aggregate(
            SimpleNamespace(
                requests=self.requests,
                waiting=[request for replica in replicas for request in replica.waiting],
                running=[request for replica in replicas for request in replica.running],
                clock_us=max(replica.clock_us for replica in replicas),
                injected=sum(replica.injected for replica in replicas),
                total_input_tokens=sum(replica.total_input_tokens for replica in replicas),
                total_output_tokens=sum(replica.total_output_tokens for replica in replicas),
                preemptions=sum(replica.preemptions for replica in replicas),
                allocation_failures=sum(replica.allocation_failures for replica in replicas),
                cache=SimpleNamespace(hit_rate=lambda: sum(rates) / len(rates)),
            )
        )

    def per_instance(self):
        return [aggregate(replica) for replica in self.replicas]
