"""Requests, batches and the identity of tokens."""

from dataclasses import dataclass, field
from typing import Any

STOP_TOKEN = ("stop",)


@dataclass(eq=False)
class Request:
    index: int
    arrival: int
    prompt: int
    output: int
    priority: int
    group: int
    shared: int  # tokens of the prompt that it shares within its group
    limit: int  # max_new_tokens; clipped on arrival
    ignore_eos: bool
    tree: list[tuple[int, int]] = field(default_factory=list)  # parent and first own position of each group
    generated: int = 0
    prefix: int = 0  # tokens computed so far, as the scheduler sees them
    kv: int = 0  # tokens with a KV slot
    protected: int = 0  # its first tokens that belong to the tree
    node: Any = None  # where its lock on the tree ends
    tokens_at_match: int = 0  # its tokens when it was last tried for admission; 0: never
    has_row: bool = False
    stamp: int = 0  # when it entered the queue
    lives: int = 0  # how often it was put back into the queue
    chunk_end: int | None = None  # end of a chunk that is not yet stashed
    finished: bool = False
    first_scheduled: int = -1
    first_token: int = -1
    finish: int = -1
    retractions: int = 0
    preemptions: int = 0
    first_hit: int = -1
    all_hits: int = 0
    prefilled: int = 0
    clipped_limit: int = 0  # 0 before it arrived

    @property
    def tokens(self) -> int:
        return self.prompt + self.generated

    def token(self, position: int) -> Any:
        if position < min(self.shared, self.prompt) and self.group >= 0:
            group = self.group
            while self.tree and self.tree[group][1] > position:
                group = self.tree[group][0]
            return (group, position)
        if not self.ignore_eos and self.output < self.limit and position == self.prompt + self.output - 1:
            return STOP_TOKEN
        return (-1, self.index, position)

    def content(self, count: int) -> list[Any]:
        """Its first `count` tokens."""
        return [self.token(position) for position in range(count)]

    def is_done(self) -> bool:
        return self.generated >= self.limit or (not self.ignore_eos and self.generated == self.output)


@dataclass
class Extend:
    """What a request gets in a prefill batch."""

    request: Request
    tokens: int
    start: int
    ends_prompt: bool
    lives: int


@dataclass
class Batch:
    extends: list[Extend] = field(default_factory=list)
    decodes: list[tuple[Request, int]] = field(default_factory=list)  # request, its lives
    chunked: Request | None = None  # in the middle of its prompt when this batch was built

    @property
    def kind(self) -> str:
        return "M" if self.extends and self.decodes else "E" if self.extends else "D"

    def gets_token(self, request: Request) -> bool:
        """Whether this batch, its result still unknown, gives `request` its next token."""
        if any(r is request and lives == r.lives for r, lives in self.decodes):
            return True
        return any(x.request is request and x.ends_prompt and x.lives == request.lives for x in self.extends)

    def row(self) -> list[Any]:
        extends = [value for x in self.extends for value in (x.request.index, x.tokens, x.start)]
        decodes = [request.index for request, _ in self.decodes]
        return [extends, decodes] if self.kind == "M" else extends or decodes
