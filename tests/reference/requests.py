"""A request as the workload gives it, and the same request while it lives in the engine."""

from dataclasses import dataclass

from tests.reference.blocks import Block, Identity
from tests.reference.kv_groups import Table


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
    engine, being computed. `tables` are its block tables, one for each KV cache group, while it runs. `drafts` wait
    to be verified.
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
        self.tables: list[Table] = []
        self.junction = 0  # where, at its last lookup, some group remembered more than all of them
        self.drafts = 0
        self.host_blocks = 0  # swapped out: blocks it occupies in the host pool
        self.mid_prefill = False  # the last step in which it ran sampled no token for it
        self.num_preemptions = 0
        self.bypasses = 0  # admissions that passed it by while it did not fit

        # The asynchronous engine's: tokens that batches in flight may sample for it; its scheduled tokens that have
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
        self.verified_drafts = 0
        self.accepted_drafts = 0
        self.admission_wait_us = 0
        self.admission_wait_end_us = 0
        self.recomputed_tokens = 0  # of its present life
        self.gaps_us: list[int] = []

    @property
    def blocks(self) -> list[Block]:
        """All blocks it holds."""
        return [block for table in self.tables for block in table.held()]

    def identity(self, block_number: int, block_size: int, lookahead: int = 0) -> Identity:
        """What block `block_number` of this request holds, chained over everything before it.

        With `lookahead` the hash covers so many tokens behind the block, too.
        """
        if (block_number + 1) * block_size + lookahead <= self.shared_tokens:
            return ("S", self.spec.prefix_group, block_number)
        return ("U", self.index, block_number)

    def receive_tokens(self, count: int, now: int) -> None:
        """Output tokens reach the client, in one piece."""
        if self.generated == 0:
            self.first_token_us = now
            if self.first_life_token_us < 0:
                self.first_life_token_us = now
        else:
            self.gaps_us.append(now - self.last_token_us)
        self.generated += count
        self.num_tokens += count
        self.most_generated = max(self.most_generated, self.generated)
        self.last_token_us = now

    def tokens_left(self, max_model_len: int) -> int:
        """Output tokens until it is complete."""
        return min(self.spec.output_tokens - self.generated, max_model_len - self.num_tokens)

    def is_complete(self, max_model_len: int) -> bool:
        return self.num_tokens >= max_model_len or self.generated == self.spec.output_tokens
