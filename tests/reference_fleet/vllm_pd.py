"""A vLLM prefill engine and a vLLM decode engine, each with its own clock, and the loads between them."""

import heapq
import math
from collections import Counter
from dataclasses import dataclass

from tests.reference.kv_groups import ceil_div
from tests.reference.policies import complete
from tests.reference.requests import Request, RequestState
from tests.reference_fleet.vllm_pd_schedulers import DecodeScheduler, PrefillScheduler


@dataclass(frozen=True)
class Transfer:
    """A load takes `base_us` and a time for each block; `proxy_us` passes between the prefill and the decode queue."""

    base_us: int
    us_per_block: float
    proxy_us: int

    def load_us(self, blocks):
        return self.base_us + math.ceil(blocks * self.us_per_block)


class Engine:
    """One of the two. It acts again at the end of a step, or when something comes from outside.

    `step` is one schedule() call with its output. A step that schedules nothing takes no time.
    """

    def __init__(self, scheduler, config):
        self.scheduler = scheduler
        self.config = config
        self.arrivals = []
        self.loads = []  # (when it ends, request) of loads whose end was not noticed here
        self.now_us = 0
        self.again = False  # it acts at the end of its last step, whatever comes
        self.rows = []

    def next_action_us(self):
        """None: nothing will ever happen."""
        if self.again:
            return self.now_us
        outside = [us for us, *_ in (*self.arrivals, *self.loads)]
        return max(min(outside), self.now_us) if outside else None

    def push_arrival(self, us, request):
        heapq.heappush(self.arrivals, (us, request.index, request))

    def step(self):
        """Returns the finished requests and the loads that were started."""
        scheduler = self.scheduler
        start_us = self.now_us = self.next_action_us()
        while self.arrivals and self.arrivals[0][0] <= start_us:
            scheduler.add_request(heapq.heappop(self.arrivals)[2], start_us)
        known = list(self.loads)
        batch = scheduler.schedule(start_us)
        started = self.loads_started(start_us)
        end_us = batch.start_us = batch.end_us = start_us + self.step_us(batch)
        finished = scheduler.update_from_output(batch, end_us)
        ended = sorted(request for us, request in (*known, *started) if us <= end_us)
        self.loads = [(us, request) for us, request in (*known, *started) if request not in ended]
        for request in ended:
            self.notice(request)
        check_blocks(scheduler)
        empty_handed = not (batch.num_tokens or ended or started)
        self.again = bool(ended) or (scheduler.has_work() and not empty_handed)
        self.now_us = end_us
        self.write_row(batch, finished, ended)
        return finished, started

    def loads_started(self, now):
        """When the loads that this schedule() call has started will end, and whose they are."""
        return []

    def notice(self, request):
        """A load has ended."""
        raise NotImplementedError

    def columns(self, ended):
        """Of a recorded step: loads started, and the ends noticed as a load's and as a read's."""
        raise NotImplementedError

    def step_us(self, batch):
        c = self.config
        if not batch.num_tokens:
            return 0
        return int(
            c.b0_us + c.b1_us_per_prefill_token * batch.prefill_tokens + c.b2_us_per_decode_token * batch.decode_tokens
        )

    def write_row(self, batch, finished, ended):
        started, loaded, read = self.columns(ended)
        running = len(self.scheduler.running)
        self.rows.append(
            [
                batch.t_us,
                batch.end_us,
                [x for request, n in batch.scheduled.items() for x in (request.index, n)],
                started,
                [request.index for request in batch.preempted],
                [request.index for request in finished],
                loaded,
                read,
                batch.free_blocks,
                self.scheduler.pool.num_free,
                running,
                self.scheduler.num_unfinished() - running,
            ]
        )


class PrefillEngine(Engine):
    def notice(self, request):
        self.scheduler.blocks_were_read(request)

    def columns(self, ended):
        return [], [], ended


class DecodeEngine(Engine):
    def __init__(self, scheduler, config, transfer, requests):
        super().__init__(scheduler, config)
        self.transfer = transfer
        self.requests = requests

    def loads_started(self, now):
        return [
            (now + self.transfer.load_us(ceil_div(tokens, self.config.block_size)), request)
            for request, tokens in self.scheduler.started
        ]

    def notice(self, request):
        self.scheduler.load_ended(self.requests[request])

    def columns(self, ended):
        return list(self.scheduler.started), ended, []


def check_blocks(scheduler):
    """Every block is free or held by somebody, and knows by how many."""
    holders = Counter(block.block_id for request in scheduler.holders() for block in request.blocks)
    assert all(scheduler.pool.blocks[block - 1].ref_count == count for block, count in holders.items())
    assert not holders.keys() & scheduler.pool.free.keys()
    assert len(holders) + scheduler.pool.num_free == scheduler.pool.usable


class Pair:
    """`run` to the end; `prefill.rows` and `decode.rows` are the steps, `prefilled` and `decoded` the requests."""

    def __init__(self, prefill_config, decode_config, transfer, workload):
        self.transfer = transfer
        sent = [
            Request(r.arrival_us, r.prompt_tokens, 1, prefix_group=r.prefix_group, prefix_tokens=r.prefix_tokens)
            for r in workload
        ]
        self.prefilled = [RequestState(i, spec) for i, spec in enumerate(sent)]
        self.decoded = [RequestState(i, spec) for i, spec in enumerate(workload)]
        prefill, decode = complete(prefill_config), complete(decode_config)
        self.prefill = PrefillEngine(PrefillScheduler(prefill, sent), prefill)
        self.decode = DecodeEngine(DecodeScheduler(decode, workload), decode, transfer, self.decoded)
        for request in self.prefilled:
            self.prefill.push_arrival(request.arrival_us, request)

    def run(self):
        """The engine whose next action is earlier acts, the prefill engine at equal times."""
        while (engine := self.next_engine()) is not None:
            finished, started = engine.step()
            if engine is self.prefill:
                for request in finished:
                    self.hand_over(request)
            self.prefill.loads += started
        return self

    def next_engine(self):
        acting = [engine for engine in (self.prefill, self.decode) if engine.next_action_us() is not None]
        return min(acting, key=lambda engine: engine.next_action_us(), default=None)

    def hand_over(self, request):
        """The answer of the prefill engine, whose one token is thrown away, goes to the decode engine."""
        self.decode.push_arrival(request.finish_us + self.transfer.proxy_us, self.decoded[request.index])

    def golden(self):
        """The end of the prefill, the first token that the user sees, and the end of each request."""
        return [
            [first.finish_us, second.first_token_us, second.finish_us]
            for first, second in zip(self.prefilled, self.decoded, strict=True)
        ]


def engine_config(settings):
    """vLLM's settings of a recorded case by the names of the oracle."""
    config = dict(settings)
    for ours, theirs in (
        ("b0_us", "beta0"),
        ("b1_us_per_prefill_token", "beta1"),
        ("b2_us_per_decode_token", "beta2"),
    ):
        config[ours] = config.pop(theirs)
    assert config.pop("max_steps") is None
    return config


def simulate_case(case):
    """Run a recorded case."""
    workload = [
        Request(arrival, prompt, output, prefix_group=group, prefix_tokens=shared)
        for arrival, prompt, output, group, shared in case["requests"]
    ]
    configs = engine_config(case["prefill"]), engine_config(case["decode"])
    return Pair(*configs, Transfer(**case["transfer"]), workload).run()
