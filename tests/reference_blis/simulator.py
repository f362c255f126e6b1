"""BLIS's event loop and its batch formation."""

import heapq
import itertools
import math

from .cache import GpuCache, TieredCache
from .metrics import aggregate, totals

ARRIVAL, QUEUED, STEP, REQUEST_LEFT, TIMEOUT = 0, 1, 3, 5, 6  # order of events at the same microsecond


def truncated(value):
    """Towards zero, as BLIS turns a float latency into ticks."""
    return math.trunc(value)


class Simulator:
    def __init__(self, config, requests):
        self.config = config
        self.requests = requests
        if config.cpu_kv_blocks:
            self.cache = TieredCache(
                config.total_kv_blocks,
                config.block_size,
                config.cpu_kv_blocks,
                config.kv_transfer_bandwidth,
                config.kv_transfer_base_latency_us,
                config.rollback_leak,
            )
        else:
            self.cache = GpuCache(config.total_kv_blocks, config.block_size, config.rollback_leak)
        self.waiting = []
        self.running = []
        self.events = []
        self.order = itertools.count()
        self.clock_us = 0
        self.step_pending = False
        self.stop = "drained"
        self.output_token_us = truncated(config.alpha[2])
        self.step_log = []
        self.livelock_step = self.livelock_us = -1
        self.self_evictions = 0
        # counters
        self.steps = self.preemptions = self.injected = self.allocation_failures = 0
        self.total_input_tokens = self.total_output_tokens = 0
        self.discarded_tokens = self.salvaged_tokens = self.recomputed_tokens = self.waiting_peak = 0
        self.books = []  # at each completion: when, and prefill, decode, recomputed and discarded tokens until then

    # --- events ---------------------------------------------------------------------------------------------------

    def schedule(self, time_us, kind, request=None):
        heapq.heappush(self.events, (time_us, kind, next(self.order), request))

    def run(self):
        horizon = math.inf if self.config.horizon_us is None else self.config.horizon_us
        for request in sorted(self.requests, key=lambda r: r.arrival_us):  # stable: ties in trace order
            self.schedule(request.arrival_us, ARRIVAL, request)
        while self.events:
            now, kind, _, request = heapq.heappop(self.events)
            if self.is_void(kind, request):
                continue  # the clock does not move for it
            if now > horizon:
                self.stop = "horizon"
                break
            if kind == STEP and self.steps == self.config.max_steps:
                self.stop = "max_steps"
                left = [time for time, kind, *_ in self.events if kind == REQUEST_LEFT and time <= horizon]
                self.clock_us = max([self.clock_us, *left])
                break
            self.handle(now, kind, request)
            if self.stop == "livelock":
                break
        if all(request.status in ("finished", "timed_out", "unservable") for request in self.requests):
            self.stop = "drained"
        for request in self.requests:
            self.end_life(request)
        return self

    def is_void(self, kind, request):
        """The deadline of a request that is done with."""
        return kind == TIMEOUT and request.status not in ("waiting", "running")

    def handle(self, now, kind, request):
        self.clock_us = now
        handlers = {ARRIVAL: self.arrive, QUEUED: self.enqueue, STEP: self.step, TIMEOUT: self.time_out}
        if kind in handlers:
            handlers[kind](now, request)

    def arrive(self, now, request):
        request.status = "waiting"
        self.injected += 1
        alpha = self.config.alpha
        self.schedule(now + truncated(alpha[0] + alpha[1] * request.prompt_tokens), QUEUED, request)

    def enqueue(self, now, request):
        config = self.config
        blocks = math.ceil(request.prompt_tokens / config.block_size)
        too_long = config.max_model_len > 0 and (
            request.prompt_tokens >= config.max_model_len
            or request.prompt_tokens + request.output_tokens > config.max_model_len
        )
        if blocks > config.total_kv_blocks or too_long:
            request.status = "unservable"
            return
        self.total_input_tokens += request.prompt_tokens
        if 0 < request.deadline_us <= now:
            request.status = "timed_out"
            request.finish_us = now
            return
        request.status = "waiting"
        request.waiting_since_us = now
        self.self_evictions = 0
        self.waiting.append(request)
        self.waiting_peak = max(self.waiting_peak, len(self.waiting))
        if request.deadline_us > 0:
            self.schedule(request.deadline_us, TIMEOUT, request)
        if not self.step_pending:
            self.schedule_step(now)

    def schedule_step(self, time_us):
        self.step_pending = True
        self.schedule(time_us, STEP)

    def time_out(self, now, request):
        self.self_evictions = 0
        if request in self.running:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        self.end_life(request)
        request.status = "timed_out"
        request.finish_us = now
        self.cache.release(request)

    # --- one step -------------------------------------------------------------------------------------------------

    def step(self, now, _):
        self.step_pending = False
        if not self.running and not self.waiting:
            return
        self.steps += 1
        self.order_queue()
        preemptions, reloads = self.preemptions, getattr(self.cache, "reloads", 0)
        admitted = self.form_batch(now)
        duration_us = self.execute(now)
        self.cache.mirror(self.running)
        self.record_step(now, duration_us)
        finished = self.complete(now, duration_us)
        if self.running or self.waiting:
            self.schedule_step(now + duration_us)
        preempted = self.preemptions - preemptions
        unchanged = (
            not admitted
            and not preempted
            and self.prefill_tokens + self.decode_tokens == 0
            and reloads == getattr(self.cache, "reloads", 0)
        )
        # A request alone, too long for the cache: it takes every block and evicts itself, over and over.
        plain_cache = not self.config.cpu_kv_blocks and not self.config.rollback_leak
        if plain_cache and preempted == 1 and not self.running and not finished:
            self.self_evictions += 1
        elif preempted or finished or len(self.running) != 1:
            self.self_evictions = 0
        stuck = not self.running and (unchanged or self.self_evictions >= 3)
        if self.waiting and stuck and not self.something_is_to_come():
            if self.livelock_step < 0:
                self.livelock_step, self.livelock_us = self.steps - 1, now
            if self.config.horizon_us is None:
                self.stop = "livelock"  # the next step would find exactly this state

    def something_is_to_come(self):
        return any(
            kind in (ARRIVAL, QUEUED) or (kind == TIMEOUT and request.status in ("waiting", "running"))
            for _, kind, _, request in self.events
        )

    def order_queue(self):
        keys = {
            "sjf": lambda r: (r.prompt_tokens, r.arrival_us, r.id),
            "priority-fcfs": lambda r: (r.priority, r.arrival_us, r.id),
            "reverse-priority": lambda r: (-r.priority, r.arrival_us, r.id),
        }
        if self.config.scheduler in keys:
            self.waiting.sort(key=keys[self.config.scheduler])

    def chunk(self, tokens, budget):
        threshold = self.config.long_prefill_token_threshold
        return min(threshold if 0 < threshold < tokens else tokens, budget)

    def form_batch(self, now):
        """Give running requests their tokens, then admit waiting ones. Returns the number of admissions."""
        self.now = now
        self.budget = self.config.max_num_batched_tokens
        for request in self.running:
            request.num_new_tokens = 0
        preempted = self.schedule_running()
        return 0 if preempted else self.schedule_waiting()

    def schedule_running(self):
        before = self.preemptions
        self.cursor = 0
        while self.cursor < len(self.running) and self.budget > 0:
            request = self.running[self.cursor]
            remaining = request.prompt_tokens - request.progress
            n = self.chunk(remaining, self.budget) if remaining > 0 else 1
            if not self.allocate_or_preempt(request, n):
                break
            self.grant(request, n)
            request.computed = request.progress + n
            self.cursor += 1
        return self.preemptions - before

    def grant(self, request, n):
        self.budget -= n
        request.num_new_tokens = n
        request.scheduled_tokens += n

    def allocate_or_preempt(self, request, n):
        while not self.cache.allocate(request, request.progress, request.progress + n):
            victim = self.victim()
            self.preempt(victim)
            if victim is request:
                return False
        return True

    def victim(self):
        if self.config.preemption_policy == "fcfs":
            return self.running[-1]
        return max(enumerate(self.running), key=lambda pair: (pair[1].priority, pair[1].arrival_us, pair[0]))[1]

    def preempt(self, victim):
        index = self.running.index(victim)
        if index < self.cursor:
            self.cursor -= 1
            self.budget += victim.num_new_tokens
            victim.scheduled_tokens -= victim.num_new_tokens
        del self.running[index]
        self.preemptions += 1
        victim.num_preemptions += 1
        self.discarded_tokens += victim.generated
        victim.status = "waiting"
        victim.waiting_since_us = self.now
        victim.highest_progress = max(victim.highest_progress, victim.progress)
        self.end_life(victim)
        victim.progress = victim.num_new_tokens = 0
        victim.ttft_us = None
        victim.itls_us = []
        victim.token_times_us = []
        self.cache.release(victim)
        self.waiting.insert(0, victim)
        self.waiting_peak = max(self.waiting_peak, len(self.waiting))

    def schedule_waiting(self):
        admitted = 0
        while len(self.running) < self.config.max_num_seqs and self.waiting and self.budget > 0:
            request = self.waiting[0]
            start, n, cached = self.admission(request)
            if not self.cache.allocate(request, start, start + n, cached):
                break
            self.waiting.pop(0)
            self.running.append(request)
            self.admit(request, start)
            self.grant(request, n)
            request.computed = start + n
            admitted += 1
        return admitted

    def admission(self, request):
        """Where an admitted request starts, how many tokens it gets, and the cached blocks before them."""
        cached = self.cache.cached_prefix(request)
        start = len(cached) * self.config.block_size
        return start, self.chunk(request.prompt_tokens - start, self.budget), cached

    def admit(self, request, hit_tokens):
        request.status = "running"
        request.scheduling_delay_us = self.now - request.arrival_us
        if self.now - request.waiting_since_us > request.admission_wait_us:
            request.admission_wait_us = self.now - request.waiting_since_us
            request.admission_wait_end_us = self.now
        request.prefix_hit_tokens += hit_tokens
        if request.first_scheduled_us < 0:
            request.first_scheduled_us = self.now
            request.prefix_hit_tokens_first = hit_tokens
        else:
            self.salvaged_tokens += hit_tokens

    def step_time(self):
        scheduled = [r for r in self.running if r.num_new_tokens > 0]
        self.prefill_tokens = sum(r.num_new_tokens for r in scheduled if r.progress < r.prompt_tokens)
        self.decode_tokens = sum(r.num_new_tokens for r in scheduled if r.progress >= r.prompt_tokens)
        b0, b1, b2 = self.config.beta
        return max(1, truncated(b0 + b1 * self.prefill_tokens + b2 * self.decode_tokens))

    def execute(self, now):
        duration_us = max(1, self.step_time() + self.cache.take_transfer_us())
        end_us = now + duration_us
        for request in self.running:
            if request.progress < request.prompt_tokens:
                first = max(request.progress, request.computed - request.num_new_tokens)
                request.recomputed += max(0, min(request.computed, request.highest_progress) - first)
                request.progress = request.computed
            elif request.num_new_tokens > 0:
                request.recomputed += request.progress < request.highest_progress
                request.progress += 1
                request.itls_us.append(duration_us + self.output_token_us)
                request.token_times_us.append(end_us)
            if request.progress == request.prompt_tokens and request.ttft_us is None:
                request.ttft_us = end_us + self.output_token_us - request.arrival_us
                request.reported_ttft_us = request.ttft_us
                request.token_times_us.append(end_us)
                if request.first_life_token_us < 0:
                    request.first_life_token_us = end_us
        return duration_us

    def complete(self, now, duration_us):
        still_running = []
        for request in self.running:
            if request.progress < request.prompt_tokens + max(request.output_tokens, 1) - 1:
                still_running.append(request)
                continue
            last_token = request.progress < request.prompt_tokens + request.output_tokens
            if last_token and not self.cache.allocate(request, request.progress, request.progress + 1):
                self.allocation_failures += 1
            self.cache.release(request)
            request.status = "finished"
            request.finish_us = now + duration_us
            self.end_life(request)
            scheduled = [sum(row[k] for row in self.step_log) for k in (2, 3)]
            self.books.append((request.finish_us, *scheduled, self.recomputed_tokens, self.discarded_tokens))
            request.reported_e2e_us = request.ttft_us + sum(request.itls_us)
            self.total_output_tokens += request.generated
            self.schedule(now + duration_us, REQUEST_LEFT, request)
        finished = len(self.running) - len(still_running)
        self.running = still_running
        return finished

    def end_life(self, request):
        """A life of `request` is over: book what it computed for a second time."""
        self.recomputed_tokens += request.recomputed
        request.recomputed = 0

    def record_step(self, now, duration_us):
        self.step_log.append(
            (now, duration_us, self.prefill_tokens, self.decode_tokens, self.cache.used, len(self.running))
        )


def simulate(config, requests):
    """Run to the end. The simulator carries the per-request results; `aggregate` and `totals` are dictionaries."""
    simulator = Simulator(config, requests).run()
    simulator.aggregate = aggregate(simulator)
    simulator.totals = totals(simulator)
    return simulator
