"""What a run is made of: settings, requests, and what a step did."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """One configuration; names are TensorRT-LLM's."""

    num_blocks: int
    tokens_per_block: int
    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int
    capacity_scheduler_policy: str = "GUARANTEED_NO_EVICT"
    context_chunking_policy: str | None = "FIRST_COME_FIRST_SERVED"
    chunk_unit: int = 16
    beta0: float = 5752.71
    beta1: float = 17.25
    beta2: float = 6.0
    horizon_us: int | None = None
    max_steps: int | None = None
    clients: int = 0

    @property
    def longest(self) -> int:
        """Most tokens of a request: what the server is told, and what its cache holds."""
        return min(self.max_seq_len, self.num_blocks * self.tokens_per_block)

    @property
    def longest_input(self) -> int:
        """Longest context: without chunks it must fit in one step."""
        return self.max_num_tokens if self.context_chunking_policy is None else self.longest

    def blocks(self, tokens: int) -> int:
        """Blocks for so many tokens."""
        whole, rest = divmod(tokens, self.tokens_per_block)
        return whole + (rest > 0)


@dataclass(eq=False)
class Request:
    """A request with its live state. `context` are the tokens to compute before it can generate."""

    index: int
    arrival_us: int
    prompt: int
    output: int
    declared: int
    limit: int = 0
    context: int = 0
    computed: int = 0
    in_kv: int = 0
    generated: int = 0
    blocks: int = 0
    most_computed: int = 0
    status: str = "pending"
    pauses: int = 0
    first_scheduled_us: int | None = None
    token_times_us: list[int] = field(default_factory=list)
    finish_us: int | None = None
    scheduled: int = 0
    recomputed: int = 0
    lost: int = 0
    waits_since_us: int = 0
    longest_wait: tuple[int, int] = (0, 0)

    @property
    def started(self) -> bool:
        """It holds KV: it generates, or is past the first chunk of its context."""
        return self.blocks > 0

    @property
    def generates(self) -> bool:
        """All of its context is computed."""
        return self.started and self.computed == self.context

    @property
    def target(self) -> int:
        """Tokens at which it ends."""
        return min(self.output, self.limit)


@dataclass(frozen=True)
class Step:
    """What an iteration decided: who runs with how many tokens, who was paused, blocks free after it was scheduled."""

    t_us: int
    context: tuple[tuple[int, int], ...]
    generation: tuple[int, ...]
    paused: tuple[int, ...]
    free_blocks: int
    active: int
