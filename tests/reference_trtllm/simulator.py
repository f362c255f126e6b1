"""The executor's loop: arrivals, capacity scheduler, micro-batch scheduler, one step, outputs."""

from tests.reference_trtllm.capacity import schedule_capacity
from tests.reference_trtllm.micro_batch import schedule_micro_batch
from tests.reference_trtllm.requests import Request, Settings, Step


class Simulator:
    """One run. Everything it leaves is on the requests, on `steps`, and in the attributes below."""

    def __init__(self, settings: Settings, requests: list[Request]) -> None:
        self.settings = settings
        self.requests = requests
        self.now_us = 0
        self.free = settings.num_blocks
        self.active: list[Request] = []
        self.steps: list[Step] = []
        self.stop = ""
        self.busy_us = self.kv_block_us = self.running_us = self.waiting_peak = 0
        self.gaps: list[int] = []
        for request in requests:
            request.limit = max(min(request.declared, settings.longest - request.prompt), 0)
            request.context = request.prompt
        own = requests[: settings.clients] if settings.clients else requests
        self.coming = list(own)
        self.later = list(requests[len(own) :])

    def _send_next(self, at_us: int) -> None:
        if self.later:
            request = self.later.pop(0)
            request.arrival_us = at_us
            self.coming.append(request)

    def run(self) -> str:
        """Run to the end; why it ended."""
        while not self.stop:
            self._arrive()
            if self.settings.horizon_us is not None and self.now_us >= self.settings.horizon_us:
                self.stop = "horizon"
            elif self.settings.max_steps is not None and len(self.steps) >= self.settings.max_steps:
                self.stop = "max_steps"
            elif self.active:
                self._iterate()
            elif self.coming:
                self.now_us = min(each.arrival_us for each in self.coming)
            else:
                self.stop = "drained"
        return self.stop

    def _arrive(self) -> None:
        while here := [each for each in self.coming if each.arrival_us <= self.now_us]:
            request = min(here, key=lambda each: (each.arrival_us, each.index))
            self.coming.remove(request)
            if request.prompt >= self.settings.longest or request.prompt > self.settings.longest_input:
                request.status = "unservable"
                if self.settings.clients:
                    self._send_next(request.arrival_us)
                continue
            request.status = "active"
            request.waits_since_us = request.arrival_us
            self.active.append(request)
            self._note_waiting()

    def _note_waiting(self) -> None:
        waiting = sum(not each.started for each in self.active)
        self.waiting_peak = max(self.waiting_peak, waiting)

    def _iterate(self) -> None:
        fitting, paused = schedule_capacity(self.settings, self.active, self.free)
        for request in paused:
            self._pause(request)
        context, generation = schedule_micro_batch(self.settings, fitting)
        for request, chunk in context:
            self._start_chunk(request, chunk)
        for request in generation:
            grown = self.settings.blocks(request.in_kv + 1)
            self.free -= grown - request.blocks
            request.blocks = grown
            request.scheduled += 1
            request.recomputed += request.in_kv < request.most_computed
        assert self.free >= 0
        assert self.free + sum(each.blocks for each in self.active) == self.settings.num_blocks
        tokens = sum(chunk for _, chunk in context)
        assert tokens + len(generation) > 0
        assert tokens + len(generation) <= self.settings.max_num_tokens
        took = int(self.settings.beta0 + self.settings.beta1 * tokens + self.settings.beta2 * len(generation))
        held = self.settings.num_blocks - self.free
        started = sum(each.started for each in self.active)
        assert started <= self.settings.max_batch_size
        self.busy_us += took
        self.kv_block_us += held * took
        self.running_us += started * took
        self.steps.append(
            Step(
                self.now_us,
                tuple((request.index, chunk) for request, chunk in context),
                tuple(request.index for request in generation),
                tuple(request.index for request in paused),
                self.free,
                len(self.active),
            )
        )
        self.now_us += took
        for request, chunk in context:
            request.computed += chunk
            request.in_kv = request.computed
            request.most_computed = max(request.most_computed, request.in_kv)
            if request.computed == request.context:
                self._give_token(request)
        for request in generation:
            request.in_kv += 1
            request.most_computed = max(request.most_computed, request.in_kv)
            self._give_token(request)

    def _start_chunk(self, request: Request, chunk: int) -> None:
        if not request.started:
            request.blocks = self.settings.blocks(request.context)
            self.free -= request.blocks
            if request.first_scheduled_us is None:
                request.first_scheduled_us = self.now_us
            waited = self.now_us - request.waits_since_us
            if waited > request.longest_wait[0]:
                request.longest_wait = (waited, self.now_us)
        request.scheduled += chunk
        request.recomputed += max(min(request.most_computed, request.computed + chunk) - request.computed, 0)

    def _pause(self, request: Request) -> None:
        self.free += request.blocks
        kept = min(self.settings.longest_input, request.prompt + request.generated)
        request.lost += request.prompt + request.generated - kept
        request.generated = kept - request.prompt
        request.context = kept
        request.blocks = request.computed = request.in_kv = 0
        request.pauses += 1
        request.waits_since_us = self.now_us
        self._note_waiting()

    def _give_token(self, request: Request) -> None:
        if request.token_times_us:
            self.gaps.append(self.now_us - request.token_times_us[-1])
        request.token_times_us.append(self.now_us)
        request.generated += 1
        if request.generated < request.target:
            return
        request.finish_us = self.now_us
        request.status = "finished"
        self.free += request.blocks
        request.blocks = 0
        self.active.remove(request)
        if self.settings.clients:
            self._send_next(self.now_us)
