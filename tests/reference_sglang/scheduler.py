"""One pass of the scheduler, and what comes of a batch's outputs."""

from dataclasses import dataclass, field
from typing import Any

from tests.reference_sglang.admission import Admission
from tests.reference_sglang.memory import Memory
from tests.reference_sglang.queue import WaitingQueue
from tests.reference_sglang.requests import Batch, Request


class OutOfMemoryError(Exception):
    """SGLang's scheduler process would die here."""


@dataclass
class Pass:
    """What a pass decided."""

    batch: Batch | None = None
    retracted: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    aborted: list[Request] = field(default_factory=list)
    put_off: bool = False  # prefill_decode_interval did not let it prefill


class Scheduler:
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.memory = Memory(config)
        self.queue = WaitingQueue(config, self.memory)
        self.chunks = config["chunked_prefill_size"] > 0
        self.mixes = config["enable_mixed_chunk"] and self.chunks
        self.preempts = config["enable_priority_scheduling"] and not config["disable_priority_preemption"]
        self.overlaps = not config["disable_overlap_schedule"]
        self.init_ratio: float = min(config["init_new_token_ratio"] * config["schedule_conservativeness"], 1.0)
        self.min_ratio: float = min(self.init_ratio * config["min_new_token_ratio_factor"], 1.0)
        self.decay: float = (self.init_ratio - self.min_ratio) / config["new_token_ratio_decay_steps"]
        self.ratio = self.init_ratio
        self.running: list[Request] = []
        self.full = False
        self.last: Batch | None = None
        self.chunked: Request | None = None
        self.passes_since_prefill = config["prefill_decode_interval"]

    def arrive(self, request: Request) -> None:
        pool, size = self.memory.pool, self.memory.page_size
        request.limit = min(request.limit, min(self.config["context_length"], pool) - 1 - request.prompt - 1)
        request.limit = max(0, min(request.limit, pool - self.memory.ceil(request.prompt) - size - 1))
        request.clipped_limit = request.limit
        self.queue.append(request)

    def schedule(self, t: int) -> Pass:
        result = Pass()
        self.stash()
        self.merge()
        self.drop_finished()
        if self.passes_since_prefill < self.config["prefill_decode_interval"]:
            result.put_off = True
            self.passes_since_prefill += 1
        else:
            self.prefill(result)
            if result.batch is not None:
                self.passes_since_prefill = 0
        if result.batch is None and self.running:
            self.decode(result)
        for extend in result.batch.extends if result.batch else []:
            if extend.request.first_scheduled < 0:
                extend.request.first_scheduled = t
        return result

    def stash(self) -> None:
        request = self.chunked
        if request is not None and request.chunk_end is not None:
            self.memory.checkpoint(request, request.chunk_end)
            request.prefix = request.chunk_end
            request.chunk_end = None

    def merge(self) -> None:
        last = self.last
        if last is None or not last.extends:
            return
        everybody = [x.request for x in last.extends] + [request for request, _ in last.decodes]
        rest = [r for r in everybody if r is not last.chunked and r is not self.chunked and not r.finished]
        if len(rest) < len(everybody) or not self.running:
            self.full = False
        self.running += rest

    def drop_finished(self) -> None:
        rest = [r for r in self.running if not r.finished]
        if len(rest) < len(self.running):
            self.full = False
        self.running = rest

    def prefill(self, result: Pass) -> None:
        if not self.running or self.preempts:
            self.full = False
        if (self.full or not self.queue.requests) and self.chunked is None:
            return
        slots = min(self.config["max_running_requests"] - len(self.running), self.memory.rows)
        if slots <= 0 and self.chunked is None and not self.preempts:
            self.full = True
            return
        self.queue.sort()
        admission = Admission(self)
        if self.chunked is not None and admission.chunk is not None and admission.chunk <= 0:
            return  # more requests decode than a chunk has tokens: never recorded, here it waits
        if self.chunked is not None:
            admission.continue_chunk(self.chunked)
            self.chunked = admission.new_chunked
        admission.walk()
        admitted = [x.request for x in admission.admitted]
        self.queue.requests = [r for r in self.queue.requests if r not in admitted]
        for request in admission.preempted:
            self.queue.append(request)
        result.preempted = admission.preempted
        if not admitted:
            return
        self.chunked = admission.new_chunked
        batch = Batch(admission.admitted, [], self.chunked)
        self.allocate_prefill(batch)
        if self.mixes and self.running:
            self.drop_certain_ends()
            if self.running and self.decode_fits(self.running):
                batch.decodes = self.allocate_decode()
                for request, _ in batch.decodes:
                    request.tokens_at_match = request.tokens
                self.running = []
        result.batch = batch

    def allocate_prefill(self, batch: Batch) -> None:
        memory = self.memory
        tokens = sum(x.tokens for x in batch.extends)
        size = memory.page_size
        memory.evict_until(tokens if size == 1 else tokens + size * len(batch.extends))
        for extend in batch.extends:
            request = extend.request
            if not request.has_row:
                request.has_row = True
                memory.rows -= 1
            memory.free -= memory.ceil(request.kv + extend.tokens) - memory.ceil(request.kv)
            request.kv += extend.tokens
            if not extend.ends_prompt:
                request.chunk_end = request.kv
        if memory.free < 0:
            raise OutOfMemoryError

    def drop_certain_ends(self) -> bool:
        """Under overlap: those whose last token is in flight leave. Whether any did."""
        if not self.overlaps or self.last is None:
            return False
        last = self.last
        rest = [r for r in self.running if not (r.generated + 1 >= r.limit and last.gets_token(r))]
        if len(rest) == len(self.running):
            return False
        self.running = rest
        self.full = False
        return True

    def decode_fits(self, requests: list[Request]) -> bool:
        size = self.memory.page_size
        return self.memory.evict_until(size * sum(r.kv % size == 0 for r in requests))

    def decode(self, result: Pass) -> None:
        somebody_left = self.drop_certain_ends()
        if not self.running:
            return
        if self.decode_fits(self.running):
            self.ratio = max(self.ratio - self.decay, self.min_ratio)
        elif somebody_left:
            return
        else:
            self.retract(result)
        if self.running:
            result.batch = Batch([], self.allocate_decode())

    def allocate_decode(self) -> list[tuple[Request, int]]:
        memory = self.memory
        memory.evict_until(len(self.running) * memory.page_size)
        for request in self.running:
            if request.kv % memory.page_size == 0:
                memory.free -= memory.page_size
            request.kv += 1
        assert memory.free >= 0
        return [(request, request.lives) for request in self.running]

    def retract(self, result: Pass) -> None:
        by_priority = self.config["retraction_policy"] == "priority"
        self.running.sort(
            key=lambda r: (self.queue.urgency(r) if by_priority else 0, r.generated, -r.prompt), reverse=True
        )
        while len(self.running) > 1:
            request = self.running.pop()
            self.put_back(request, len(self.running))
            request.retractions += 1
            result.retracted.append(request)
            if self.decode_fits(self.running):
                break
        if not self.decode_fits(self.running):
            result.aborted = self.running
            for request in self.running:
                self.memory.release(request)
                request.finished = True
            self.running = []
        generated = sum(r.generated for r in self.running)
        expected = generated + self.config["retract_decode_steps"] * len(self.running)
        self.ratio = min(1.0, expected / (sum(r.limit for r in self.running) + 1))
        for request in result.retracted:
            self.queue.append(request)
        self.full = False

    def put_back(self, request: Request, still_running: int) -> None:
        """Free a running request, which goes back to the queue."""
        self.memory.release(request)
        self.memory.evict_until(self.config["retract_decode_steps"] * still_running)
        request.lives += 1

    def process(self, batch: Batch, end: int) -> list[Request]:
        """Outputs of a batch: who finished, in order."""
        finished = []
        for extend in batch.extends:
            request = extend.request
            if extend.lives == request.lives and extend.ends_prompt and not request.finished:
                if self.give_token(request, end):
                    finished.append(request)
                else:
                    self.memory.checkpoint(request, request.tokens - 1)
        for request, lives in batch.decodes:
            if lives == request.lives and not request.finished and self.give_token(request, end):
                finished.append(request)
        return finished

    def give_token(self, request: Request, end: int) -> bool:
        request.generated += 1
        if request.first_token < 0:
            request.first_token = end
        if not request.is_done():
            return False
        request.finished = True
        request.finish = end
        self.memory.checkpoint(request, min(request.kv, request.tokens))
        self.memory.release(request)
        return True
