"""One prefill pass: budgets, the chunked request, the queue, preemption for slots."""

from typing import TYPE_CHECKING

from tests.reference_sglang.requests import Extend, Request

if TYPE_CHECKING:
    from tests.reference_sglang.scheduler import Scheduler

CONTINUE, OTHER, NO_TOKEN = "continue", "other", "no token"


class Admission:
    def __init__(self, scheduler: "Scheduler") -> None:
        self.s = scheduler
        self.config = scheduler.config
        self.memory = scheduler.memory
        self.page_size = self.memory.page_size
        self.clip = self.config["clip_max_new_tokens"]
        mixed = len(scheduler.running) if scheduler.mixes else 0
        self.max_input = self.config["max_prefill_tokens"] - mixed
        self.chunk = self.config["chunked_prefill_size"] - mixed if scheduler.chunks else None
        self.taken = mixed
        future = 0.0
        for request in scheduler.running:
            future += self.term(request)
        self.reserved = mixed + future
        self.admitted: list[Extend] = []
        self.preempted: list[Request] = []
        self.new_chunked: Request | None = None
        self.continued = False
        self.ends: list[tuple[float, int]] | None = None  # the exact test's (tokens left, tokens held)

    def ratio(self, request: Request) -> float:
        return 1.0 if request.ignore_eos else self.s.ratio

    def term(self, request: Request) -> float:
        """What a running request may still generate."""
        return min(request.limit - request.generated, self.clip) * self.ratio(request)

    @property
    def rest(self) -> float:
        return self.memory.available() - self.reserved

    @property
    def now(self) -> int:
        return self.memory.available() - self.taken

    def state(self) -> str:
        if self.rest <= 0 or self.now <= 0:
            return NO_TOKEN
        if self.max_input <= 0 or (self.chunk is not None and self.chunk <= 0):
            return OTHER
        return CONTINUE

    def admit(self, request: Request, tokens: int, reserve: int) -> None:
        ceil = self.memory.ceil(tokens)
        self.reserved += ceil + self.page_size + reserve
        self.taken += ceil + self.page_size
        self.max_input -= ceil
        if self.chunk is not None:
            self.chunk -= ceil
        ends_prompt = request.prefix + tokens == request.tokens
        self.admitted.append(Extend(request, tokens, request.prefix, ends_prompt, request.lives))

    def continue_chunk(self, request: Request) -> None:
        assert self.chunk is not None
        limit = min(self.chunk, int(self.rest))
        if limit <= 0:
            limit = self.chunk
        left = request.tokens - request.prefix
        tokens = min(left, limit)
        self.admit(request, tokens, min(request.limit, self.clip) if tokens == left else 0)
        self.new_chunked = request if tokens < left else None
        self.continued = True

    def slots(self) -> int:
        return min(
            self.config["max_running_requests"] - len(self.s.running), self.memory.rows + (1 if self.continued else 0)
        )

    def walk(self) -> None:
        """Admit from the queue, in order, until somebody does not fit."""
        for request in self.s.queue.requests:
            if self.state() == OTHER:
                return
            if len(self.admitted) >= self.slots():
                self.s.full = True
            if self.s.full and not (self.s.preempts and self.preempt_for(request)):
                return
            hit, node = self.memory.match(request, request.tokens - 1)
            request.prefix = hit
            request.tokens_at_match = request.tokens
            most = self.config["prefill_max_requests"]
            if most is not None and len(self.admitted) >= most:
                return
            if request.ignore_eos and self.memory.radix is None:
                result = self.try_exactly(request)
            else:
                self.memory.lock(node)
                result = self.try_one(request)
                if result == CONTINUE:
                    request.node = node
                else:
                    self.memory.unlock(node)
            if result == CONTINUE:
                request.kv = request.protected = hit
                request.all_hits += hit
                if request.first_hit < 0:
                    request.first_hit = hit
                result = self.state()
            if result != CONTINUE:
                if result == NO_TOKEN:
                    self.s.full = bool(self.admitted or self.s.running)
                return

    def try_one(self, request: Request) -> str:
        tokens = request.tokens - request.prefix
        future = min(max(request.limit - request.generated, 0), self.clip)
        if not tokens + future + self.page_size < self.rest:
            return NO_TOKEN
        ceil = self.memory.ceil(tokens)
        if self.chunk is None:
            if self.admitted and ceil >= self.max_input:
                return OTHER
        elif ceil > self.chunk:
            size = self.page_size
            tokens = (request.prefix + self.chunk // size * size) // size * size - request.prefix
            if tokens <= 0:
                return OTHER
            self.admit(request, tokens, 0)
            self.new_chunked = request
            return CONTINUE
        self.admit(request, tokens, min(request.limit, self.clip))
        return CONTINUE

    def try_exactly(self, request: Request) -> str:
        """Walk through the ends of all requests in the order in which they come."""
        tokens = request.tokens - request.prefix
        need = self.memory.ceil(tokens) + self.page_size
        if need > min(self.now, self.rest):
            return NO_TOKEN
        if self.ends is None:
            everybody = [request, *self.s.running, *(x.request for x in self.admitted)]
            self.ends = sorted((e for e in map(self.end_of, everybody) if e[0] > 0), key=lambda e: e[0])
        else:
            end = self.end_of(request)
            if end[0] > 0:
                later = [k for k, other in enumerate(self.ends) if other[0] >= end[0]]
                at = later[0] if later else max(len(self.ends) - 1, 0)
                self.ends.insert(at, end)
        left_now = self.now - need
        freed = 0
        for k, (left, held) in enumerate(self.ends):
            alive = len(self.ends) - k
            if left_now + freed - left * alive <= alive:
                return NO_TOKEN
            freed += held
        if self.chunk is None or tokens <= self.chunk:
            self.admit(request, tokens, min(request.limit, self.clip))
        elif self.chunk <= 0:
            return OTHER
        else:
            self.admit(request, self.chunk, 0)
            self.new_chunked = request
        return CONTINUE

    def end_of(self, request: Request) -> tuple[float, int]:
        return request.limit * self.ratio(request) - request.generated, request.tokens

    def preempt_for(self, request: Request) -> bool:
        """Take the slots of less urgent requests until `request` fits."""
        urgency = self.s.queue.urgency
        candidates = [r for r in self.s.running if not r.finished]
        candidates.sort(key=lambda r: (urgency(r), -r.stamp))
        need = request.tokens_at_match - request.prefix + min(request.limit, self.clip) - self.rest
        victims: list[Request] = []
        for candidate in candidates:
            if urgency(request) - urgency(candidate) <= self.config["priority_scheduling_preemption_threshold"]:
                break
            victims.append(candidate)
            need -= self.term(candidate)
            if need <= 0:
                break
        if not victims or need > 0:
            return False
        left = len(self.s.running)
        for victim in [r for r in self.s.running if r in victims]:
            self.reserved -= self.term(victim)
            left -= 1
            self.s.put_back(victim, left)
            victim.preemptions += 1
        self.s.running = [r for r in self.s.running if r not in victims]
        self.preempted += sorted(victims, key=lambda r: r.index)
        return True
