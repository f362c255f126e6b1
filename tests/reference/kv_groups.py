"""The kinds of KV cache groups: what a group keeps, what it asks the pool for, what of it can be found again.

A request has one block table for each group. Its entries are blocks, or None where the group no longer needs (or never
had) one. All groups take their blocks from one pool.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tests.reference.blocks import Block

Entries = list[Block | None]
Row = list[Block] | None
"""An entry of all groups of a class: a block of each, or None where no block is needed."""
Find = Callable[[int], Row]
"""`find(q)`: the blocks that hold block number q of a request, one for each group of a class; None if any has none."""


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@dataclass
class Table:
    """One request's block table in one group. Its first `hashed` entries have been offered for hashing."""

    entries: Entries = field(default_factory=list)
    hashed: int = 0
    allocated: bool = False  # state-space groups: has taken blocks since its admission

    def held(self) -> list[Block]:
        return [block for block in self.entries if block is not None]


@dataclass(frozen=True)
class Moment:
    """What a group may look at when it is asked for blocks: C and C + n, and the request's P, T and junction."""

    start: int
    end: int
    prompt: int
    length: int
    junction: int


class Group:
    """A full-attention group, and what the other kinds have in common with it."""

    checkpoint = False

    def __init__(self, number: int, spec: dict[str, Any], config: SimpleNamespace) -> None:
        self.number = number
        self.block_size: int = spec["block_size"]
        self.retention: int | None = config.prefix_cache_retention_interval
        in_flight = 2 if config.engine.endswith("-async") else 1
        self.most_scheduled = in_flight * config.max_num_batched_tokens
        self.max_model_len: int = config.max_model_len
        self.drops = False  # it loses the last block of a hit (EAGLE without lookahead hashes)
        self.common = config.block_size  # least common multiple of the block sizes

    def key(self) -> tuple[Any, ...]:
        """Groups of equal key form a class."""
        return ("full", self.block_size)

    def skipped(self, computed: int) -> int:
        """Leading tokens that are no longer needed once `computed` have been computed."""
        return 0

    def admission_cap(self) -> int | None:
        """Blocks at most asked for by the gate."""
        return None

    def most_blocks(self, tokens: int) -> int:
        """Blocks at most held by a request of so many tokens."""
        blocks = ceil_div(tokens, self.block_size)
        cap = self.admission_cap()
        return blocks if cap is None else min(blocks, cap)

    def held_blocks(self, computed: int, slots: int) -> int:
        """Blocks held by a request with `computed` tokens that has room for `slots`."""
        return ceil_div(slots, self.block_size) - max(self.skipped(computed), 0) // self.block_size

    # --- Blocks ---

    def need(self, table: Table, hits: Entries, tokens: int, moment: Moment, *, capped: bool) -> int:
        required = ceil_div(tokens, self.block_size)
        cap = self.admission_cap()
        if capped and cap is not None:
            required = min(required, cap)
        return max(required - len(hits) - len(table.entries), 0)

    def grow(self, table: Table, tokens: int, moment: Moment, take: Callable[[], Block]) -> None:
        """Append new blocks until `tokens` fit."""
        for _ in range(ceil_div(tokens, self.block_size) - len(table.entries)):
            table.entries.append(take())

    def evict(self, table: Table, computed: int) -> list[Block]:
        """Remove and return, in the order of the table, the blocks that are no longer needed."""
        leading = max(min(self.skipped(computed) // self.block_size, len(table.entries)), 0)
        gone = [block for block in table.entries[:leading] if block is not None]
        table.entries[:leading] = [None] * leading
        return gone

    # --- Lookup ---

    def find(self, found: Find, limit: int, *, drop: bool) -> list[Row]:
        """The longest reusable entries within `limit` tokens."""
        hits: list[Row] = []
        while (len(hits) + 1) * self.block_size <= limit and (blocks := found(len(hits))) is not None:
            hits.append(blocks)
        if drop and hits:
            hits.pop()
        self.shorten(hits)
        return hits

    def shorten(self, hits: list[Row]) -> None:
        """Drop entries until their length is a multiple of what all groups have in common."""
        while len(hits) * self.block_size % self.common:
            hits.pop()

    # --- Hashing ---

    def wants_hash(self, q: int, boundaries: Sequence[int]) -> bool:
        """Whether entry q can be of use to a later request."""
        return True


class SlidingGroup(Group):
    """The last `window` tokens, the one being computed included."""

    def __init__(self, number: int, spec: dict[str, Any], config: SimpleNamespace) -> None:
        super().__init__(number, spec, config)
        self.window: int = spec["window"]
        self.run = ceil_div(self.window - 1, self.block_size)

    def key(self) -> tuple[Any, ...]:
        return ("sliding", self.block_size, self.window)

    def skipped(self, computed: int) -> int:
        return max(0, computed - self.window + 1)

    def admission_cap(self) -> int:
        return ceil_div(min(self.window - 1 + self.most_scheduled, self.max_model_len), self.block_size) + 1

    def find(self, found: Find, limit: int, *, drop: bool) -> list[Row]:
        """From the end backwards: the first run long enough, else the run that reaches the start."""
        needed = self.run + drop
        run: list[Row] = []
        hits: list[Row] = []
        for q in range(limit // self.block_size - 1, -1, -1):
            blocks = found(q)
            if blocks is None:
                run = []
                continue
            end = (q + (0 if drop else 1)) * self.block_size
            if not run and end % self.common:
                continue
            run.insert(0, blocks)
            if len(run) >= needed:
                hits = [None] * q + run
                break
        else:
            hits = list(run)
            self.shorten(hits)
        if drop and hits:
            hits.pop()
            self.shorten(hits)
        return hits

    def wants_hash(self, q: int, boundaries: Sequence[int]) -> bool:
        needed = self.run + self.drops
        if self.retention != 0:
            period = (self.retention or self.common) // self.block_size
            if needed >= period or (q >= self.drops and (q - self.drops) % period >= period - needed):
                return True
        if self.retention is None:
            return False
        for p in boundaries:
            end = p // self.common * self.common // self.block_size + self.drops
            if end - needed <= q < end:
                return True
        return False


class ChunkedGroup(Group):
    """The tokens since the last multiple of `chunk`."""

    def __init__(self, number: int, spec: dict[str, Any], config: SimpleNamespace) -> None:
        super().__init__(number, spec, config)
        self.chunk: int = spec["chunk"]

    def key(self) -> tuple[Any, ...]:
        return ("chunked", self.block_size, self.chunk)

    def skipped(self, computed: int) -> int:
        return computed // self.chunk * self.chunk

    def admission_cap(self) -> int:
        return ceil_div(min(self.chunk + self.most_scheduled, self.max_model_len), self.block_size)

    def find(self, found: Find, limit: int, *, drop: bool) -> list[Row]:
        """Entries before the chunk of the last token need not be there."""
        hits: list[Row] = [None] * (limit // self.chunk * self.chunk // self.block_size)
        while (len(hits) + 1) * self.block_size <= limit and (blocks := found(len(hits))) is not None:
            hits.append(blocks)
        return hits


class StateGroup(Group):
    """A state-space group without prefix caching ("none"): one state for the whole life, and the speculative ones."""

    def __init__(self, number: int, spec: dict[str, Any], config: SimpleNamespace) -> None:
        super().__init__(number, spec, config)
        self.spec_blocks: int = spec.get("spec_blocks", 0)

    def key(self) -> tuple[Any, ...]:
        return ("none", self.block_size, self.spec_blocks)

    def skipped(self, computed: int) -> int:
        return computed - 1

    def most_blocks(self, tokens: int) -> int:
        return ceil_div(tokens, self.block_size) + self.spec_blocks

    def held_blocks(self, computed: int, slots: int) -> int:
        return 1 + self.spec_blocks

    def need(self, table: Table, hits: Entries, tokens: int, moment: Moment, *, capped: bool) -> int:
        return super().need(table, hits, tokens + self.spec_blocks * self.block_size, moment, capped=capped)

    def grow(self, table: Table, tokens: int, moment: Moment, take: Callable[[], Block]) -> None:
        super().grow(table, tokens + self.spec_blocks * self.block_size, moment, take)


class AlignedStateGroup(StateGroup):
    """A state-space group with prefix caching ("align"): the running state, and states at block boundaries."""

    def __init__(self, number: int, spec: dict[str, Any], config: SimpleNamespace) -> None:
        super().__init__(number, spec, config)
        self.checkpoint: bool = spec.get("checkpoint", False)

    def key(self) -> tuple[Any, ...]:
        return ("align", self.block_size, self.spec_blocks, self.checkpoint)

    def most_blocks(self, tokens: int) -> int:
        """The running state and the one before it."""
        return min(ceil_div(tokens, self.block_size), 2) + self.spec_blocks

    def need(self, table: Table, hits: Entries, tokens: int, moment: Moment, *, capped: bool) -> int:
        """`tokens` without lookahead. It may be negative: then it lowers what the groups ask for together."""
        new = ceil_div(tokens, self.block_size) + self.spec_blocks - len(hits) - len(table.entries)
        if new > 0:
            new = min(new, 1 + (0 if table.allocated else self.spec_blocks))
        return new + self._writes_checkpoint(table, moment)

    def grow(self, table: Table, tokens: int, moment: Moment, take: Callable[[], Block]) -> None:
        entries = table.entries
        required = ceil_div(moment.end, self.block_size) + self.spec_blocks
        if required > len(entries):
            before = len(entries)
            padded = required - self.spec_blocks - 1 - self._writes_checkpoint(table, moment)
            entries += [None] * (padded - before)
            if table.allocated:
                for q in range(before - self.spec_blocks, before):
                    if q < padded:
                        entries.append(entries[q])
                        entries[q] = None
            entries += [take() for _ in range(required - len(entries))]
        table.allocated = True

    # --- Checkpoints: the state at the last block boundary, written from inside a chunk ---

    def position(self, tokens: int) -> int:
        """The last block boundary before the last of `tokens`."""
        return max((tokens - 1) // self.block_size * self.block_size, 0)

    def can_checkpoint(self, start: int, end: int, position: int) -> bool:
        b = self.block_size
        return (
            self.checkpoint
            and start % b == 0
            and ceil_div(end, b) - 2 > (start - 1) // b
            and start + b <= position
            and start < position < end
        )

    def _writes_checkpoint(self, table: Table, moment: Moment) -> bool:
        whole = max(moment.prompt, moment.length - 1) if self.retention == 0 else 0
        if moment.end < whole or not self.can_checkpoint(moment.start, moment.end, self.position(moment.end)):
            return False
        i = ceil_div(moment.end, self.block_size) - 2
        size = len(table.entries)
        if i < 0:
            return False
        moved = table.allocated and size - self.spec_blocks <= i < size
        return i >= size or table.entries[i] is None or moved

    def keeps_checkpoint(self, position: int, prompt: int, junction: int) -> bool:
        if self.retention is None or position == self.position(prompt) or position == junction:
            return True
        blocks = self.retention // self.block_size
        return blocks > 0 and position // self.block_size % blocks == 0

    # --- Lookup and hashing ---

    def find(self, found: Find, limit: int, *, drop: bool) -> list[Row]:
        """One state is enough: that at the highest boundary."""
        for q in range(limit // self.block_size - 1, -1, -1):
            blocks = found(q)
            if blocks is not None and (q + 1) * self.block_size % self.common == 0:
                return [None] * q + [blocks]
        return []

    def wants_hash(self, q: int, boundaries: Sequence[int]) -> bool:
        if self.retention is None:
            return True
        if self.retention > 0:
            blocks = self.retention // self.block_size
            if blocks <= 1 or (q + 1) % blocks == 0:
                return True
        return any(q == p // self.common * self.common // self.block_size - 1 for p in boundaries)


KINDS: dict[str, type[Group]] = {
    "full": Group,
    "sliding": SlidingGroup,
    "chunked": ChunkedGroup,
    "none": StateGroup,
    "align": AlignedStateGroup,
}


def groups_of(config: SimpleNamespace) -> list[Group]:
    """The groups of a configuration; null stands for one full-attention group."""
    specs = config.kv_cache_groups or [{"kind": "full", "block_size": config.block_size}]
    return [
        KINDS[spec["mode"] if spec["kind"] == "mamba" else spec["kind"]](number, spec, config)
        for number, spec in enumerate(specs)
    ]


def most_blocks(config: SimpleNamespace, tokens: int) -> int:
    """Blocks at most held by a request of so many tokens, drafts and what the drafter writes ahead included."""
    if config.spec_method:
        k = config.num_speculative_tokens
        ahead = k if config.spec_method == "ngram" else 2 * k
        tokens = min(tokens + ahead, config.max_model_len)
    return sum(group.most_blocks(tokens) for group in groups_of(config))


def least_blocks(config: SimpleNamespace, prompt: int, total: int) -> int:
    """Blocks without which a request cannot run, even alone and with nothing cached.

    Those of the gate, of each chunk of its prompt, and of the step that computes its last token but one. (How long it
    is in the steps before depends on which drafts are right.)
    """
    groups = groups_of(config)
    limit = config.max_model_len
    ahead = config.num_speculative_tokens if config.spec_method in ("draft_model", "eagle") else 0
    chunk = min(config.max_num_scheduled_tokens or prompt, config.max_num_batched_tokens)
    least = 0
    if config.scheduler_reserve_full_isl:
        least = sum(min(group.most_blocks(min(prompt, limit)), group.held_blocks(0, prompt)) for group in groups)
    moments = [(start, min(start + chunk, prompt)) for start in range(0, prompt, chunk)] + [(total - 2, total - 1)]
    for computed, end in moments:
        slots = min(end + ahead, limit)
        least = max(least, sum(group.held_blocks(computed, slots) for group in groups))
    return least
