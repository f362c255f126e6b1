"""vLLM 0.33.0's AsyncScheduler: the rules that change when a batch is scheduled before the last one's output is known.

A token that a batch in flight may sample counts as a placeholder, drafts included, so a running request is at most
L = T + placeholders long; C includes tokens in flight. At a schedule() call at most one batch is in flight.
"""

from tests.reference.requests import RequestState
from tests.reference.scheduler import Batch, Scheduler


class AsyncScheduler(Scheduler):
    """Everything not overridden here is the synchronous scheduler's."""

    def length(self, request: RequestState) -> int:
        return request.num_tokens + request.placeholders

    def last_token_in_flight(self, request: RequestState) -> bool:
        """It will finish by its output limit; it still holds its blocks and its slot, and may be a victim."""
        return (
            request.placeholders > 0
            and request.num_computed + 2 - request.placeholders >= request.prompt + request.spec.output_tokens
        )

    def in_flight(self, request: RequestState) -> int:
        return request.inflight

    def on_preempt(self, request: RequestState) -> None:
        """All that is in flight for it becomes stale; its blocks are free although a batch still uses them.

        Under `preemption_mode = "swap"` the copy to the host is taken to run behind the batch in flight, so the KV
        of tokens in flight is kept like the rest.
        """
        request.stale = request.inflight
        request.placeholders = 0

    def _after_schedule(self, batch: Batch) -> None:
        super()._after_schedule(batch)
        for request, n in batch.scheduled.items():
            request.inflight += n
            if request in batch.sampling:
                request.placeholders += 1 + batch.drafts.get(request, 0)
                request.drafts = self.speculation.k

    def update_from_output(self, batch: Batch, now: int) -> list[RequestState]:
        """As the synchronous one, but the request may have been preempted, or its client gone, in the meantime.

        A preempted request still receives the token that was in flight, and may finish by it while it waits. Under
        `preemption_mode = "restart"` that token belongs to the life that is over: it is discarded.
        """
        finished: list[RequestState] = []
        for request, n in batch.scheduled.items():
            if request.status in ("timed_out", "finished"):
                continue  # with drafts, one batch more may have been scheduled than was needed
            request.inflight -= n
            is_stale = request.stale > 0
            if is_stale:
                request.stale -= n
            if request not in batch.sampling:
                if not is_stale:
                    self.note_computed(request)
                continue
            if is_stale and self.config.preemption_mode == "restart":
                self.totals["discarded_tokens"] += 1
                continue
            drafts = batch.drafts.get(request, 0)
            accepted = self.verify_drafts(batch, request, drafts)
            delivered = self.deliver(request, accepted + 1, now)
            if not is_stale:
                request.num_computed -= drafts - accepted + (accepted + 1 - delivered)
                request.placeholders -= drafts + 1
                self.kv.hash_blocks(request, request.num_computed - request.inflight)
                self.note_computed(request)
            if request.is_complete(self.config.max_model_len):
                self.finish(request, now)
                finished.append(request)
        self.leave(finished)
        return finished
