"""vLLM 0.33.0's scheduler on both sides of a pull connector (NIXL): what it does otherwise than without one.

Sources: vllm/v1/core/sched/scheduler.py; vllm/distributed/kv_transfer/kv_connector/v1/nixl/pull_scheduler.py.
"""

from tests.reference.kv_groups import ceil_div
from tests.reference.scheduler import Scheduler, Verdict


class PrefillScheduler(Scheduler):
    """Requests come with an output limit of 1, and keep their blocks when they finish, until they have been read."""

    def __init__(self, config, workload):
        super().__init__(config, workload)
        self.unread = {}

    def has_work(self):
        return self.num_unfinished() > 0

    def holders(self):
        return [*self.running, *self.unread.values()]

    def finish(self, request, now):
        request.status = "finished"
        request.finish_us = now
        self.end_life(request)
        self.unread[request.index] = request

    def blocks_were_read(self, index):
        self._free(self.unread.pop(index))


class DecodeScheduler(Scheduler):
    """A request begins with the load of its prompt's blocks from the prefill side.

    Two queues: `holding`, of requests that have blocks because their load is under way or ready, is looked at before
    `waiting`. A load starts as soon as there are blocks for it and ends outside of all steps.
    """

    def __init__(self, config, workload):
        super().__init__(config, workload)
        self.holding = []
        self.local = set()  # requests that were preempted: they compute their prompt again here
        self.loading = set()  # loads that are under way, or whose end nobody has noticed
        self.ready = set()  # loads that were noticed, but whose blocks cannot be found by others yet
        self.started = []  # [request, tokens] of this call

    def num_unfinished(self):
        return len(self.running) + len(self.holding) + len(self.waiting)

    def has_work(self):
        """Whether anything could be scheduled; a load under way cannot."""
        return self.num_unfinished() > len(self.loading)

    def holders(self):
        return [*self.running, *self.holding]

    def schedule(self, now):
        self.started = []
        return super().schedule(now)

    def preempt_request(self, request, evictor, lacked_blocks):
        super().preempt_request(request, evictor, lacked_blocks)
        self.local.add(request)

    def load_ended(self, request):
        self.loading.remove(request)
        self.ready.add(request)

    def _schedule_waiting(self):
        """Admit in queue order until one does not fit. Who is loading steps aside, to the front of `holding`."""
        aside = []
        while self.token_budget > 0 and not self._slots_taken() and (self.holding or len(self.waiting)):
            queue = self.holding or self.waiting
            request = next(iter(queue))
            if request in self.loading or (queue is self.waiting and self._start_load(request)):
                queue.remove(request)
                aside.append(request)
            elif not (self._admit_loaded(request) if queue is self.holding else self._admit_local(request)):
                break
        self.holding[:0] = aside

    def _start_load(self, request):
        """Take blocks for the whole prompt at once, or none: False also if there is nothing to load.

        They must fit beside what running requests still need for the tokens they have (chunked prefills).
        """
        if request in self.local:
            return False
        hits = self.kv.cached_prefix(request)
        hit_blocks = hits.entries[0] if hits.entries else []
        need = ceil_div(request.prompt, self.config.block_size) - len(hit_blocks)
        need += sum(block.ref_count == 0 for block in hit_blocks)
        reserved = sum(ceil_div(r.num_tokens, self.config.block_size) - len(r.blocks) for r in self.running)
        if need + self._watermark() > self.pool.num_free - reserved:
            return False
        for block in hit_blocks:
            self.pool.share(block)
        (table,) = request.tables
        table.entries = list(hit_blocks)
        table.hashed = len(hit_blocks)
        while len(table.entries) * self.config.block_size < request.prompt:
            table.entries.append(self.pool.take())
        request.hit_tokens_first = request.hit_tokens_all = hits.tokens
        request.num_computed = request.prompt
        self.loading.add(request)
        self.started.append([request.index, request.prompt - hits.tokens])
        return True

    def _watermark(self):
        return int(self.config.watermark * self.config.num_gpu_blocks) if self.running else 0

    def _admit_loaded(self, request):
        """Run a request whose load is ready. One prompt token is computed again, to sample from."""
        if request in self.ready:
            self.ready.remove(request)
            self.kv.hash_blocks(request, request.prompt)
            request.num_computed = request.prompt - 1
        gate = self.config.scheduler_reserve_full_isl
        if not self.kv.fits(request, request.num_computed, 1, gate=gate, watermark=self._watermark()):
            return False
        self.kv.take(request, request.num_computed, 1)
        self.holding.remove(request)
        self.running.append(request)
        request.status = "running"
        request.first_scheduled_us = self.batch.t_us
        self._schedule_tokens(request, 1, 0)
        return True

    def _admit_local(self, request):
        if request not in self.local:
            return False  # its load does not fit
        plan = self.plan_admission(request)
        if plan.verdict is not Verdict.ADMIT:
            return False
        self.admit(request, plan)
        return True
