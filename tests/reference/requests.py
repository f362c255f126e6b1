"""A request as the workload gives it, and the same request while it lives in the engine."""

from dataclasses import dataclass

from tests.reference.blocks import Block, Identity


@dataclass(frozen=True)
class Request:
    """One request of the workload. A smaller priority value is more urgent; prefix_group -1 shares nothing.

    In a closed loop `arrival_us` counts only for the first `concurrency` requests; the others are sent when a client
    becomes free, plus their own `think_us`. `max_tokens` is the output limit the client declared; None stands for
    vLLM's default, all that max_model_len leaves.
    """

    arrival_us: int
    prompt_tokens: int
    output_tokens: int
    priority: int = 0
    prefix_group: int = -1
    prefix_tokens: int = 0
    max_tokens: int | None = None
    think_us: int = 0


class RequestState:
    """A live request.

    `num_tokens` (T) is prompt + generated, `num_computed` (C) the tokens whose KV is held or, in the asynchronous
    engine, being computed. `num_cached_blocks` of its blocks have been hashed.
    """

    def __init__(self, index: int, spec: Request) -> None:
        self.index = index
        self.spec = spec
        self.arrival_us = spec.arrival_us
        self.prompt = spec.prompt_tokens
        self.priority = spec.priority
        self.shared_tokens = min(spec.prefix_tokens, spec.prompt_tokens) if spec.prefix_group >= 0 else 0

        self.status = "pending"
        self.generated = 0
        self.num_tokens = spec.prompt_tokens
        self.num_computed = 0
        self.blocks: list[Block] = []
        self.num_cached_blocks = 0
        self.host_blocks = 0  # swapped out: blocks it occupies in the host pool
        self.mid_prefill = False  # the last step in which it ran sampled no token for it
        self.num_preemptions = 0
        self.bypasses = 0  # admissions that passed it by while it did not fit

        # The asynchronous engine's: batches in flight that will sample a token for it; its scheduled tokens that have
        # not come back; and those of them that were scheduled before it was preempted.
        self.placeholders = 0
        self.inflight = 0
        self.stale = 0

        # What is only reported.
        self.queued_us = 0
        self.most_computed = 0
        self.most_generated = 0
        self.first_scheduled_us = -1
        self.first_token_us = -1
        self.first_life_token_us = -1
        self.last_token_us = -1
        self.finish_us = -1
        self.hit_tokens_first = -1
        self.hit_tokens_all = 0
        self.scheduled_tokens = 0
        self.admission_wait_us = 0
        self.gaps_us: list[int] = []

    def identity(self, block_number: int, block_size: int) -> Identity:
        """What block `block_number` of this request holds, chained over everything before it."""
        if (block_number + 1) * block_size <= self.shared_tokens:
            return ("S", self.spec.prefix_group, block_number)
        return ("U", self.index, block_number)

    def receive_token(self, now: int) -> None:
        """One output token reaches the client."""
        self.generated += 1
        self.num_tokens += 1
        self.most_generated = max(self.most_generated, self.generated)
        if self.generated == 1:
            self.first_token_us = now
            if self.first_life_token_us < 0:
                self.first_life_token_us = now
        else:
            self.gaps_us.append(now - self.last_token_us)
        self.last_token_us = now

    def is_complete(self, max_model_len: int) -> bool:
        return self.num_tokens >= max_model_len or self.generated == self.spec.output_tokens
