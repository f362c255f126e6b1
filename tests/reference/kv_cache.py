"""The KV cache as the scheduler sees it: a request's block tables in every group, over one pool."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import lcm
from types import SimpleNamespace

from tests.reference.blocks import Block, BlockPool, Identity
from tests.reference.kv_groups import AlignedStateGroup, Entries, Group, Moment, Row, Table, groups_of
from tests.reference.requests import RequestState
from tests.reference.speculation import Speculation


@dataclass
class Hits:
    """What the prefix cache has of a request: `tokens` of it, and the entries of each group that stand for them.

    `junction` is where another group remembers more than all of them do together; 0: nowhere.
    """

    tokens: int = 0
    entries: list[Entries] = field(default_factory=list)
    junction: int = 0

    def of(self, group: Group) -> Entries:
        return self.entries[group.number] if self.entries else []


NO_HITS = Hits()


class KVCache:
    """Every rule about blocks: lookup, the test whether a step fits, taking, evicting, hashing, freeing."""

    def __init__(self, config: SimpleNamespace, speculation: Speculation) -> None:
        self.config = config
        self.speculation = speculation
        self.pool = BlockPool(config.num_gpu_blocks, all_freed_to_tail=config.engine == "vllm-0.16.0")
        self.groups = groups_of(config)
        self.common = lcm(*(group.block_size for group in self.groups))
        for group in self.groups:
            group.common = self.common
            group.drops = speculation.drops_block
        self.classes: dict[tuple[object, ...], list[Group]] = {}
        for group in sorted(self.groups, key=lambda g: g.key()[0] != "full"):  # stable: full ones first
            self.classes.setdefault(group.key(), []).append(group)
        self.hashed_in_this_call: set[Identity] = set()

    def empty_tables(self) -> list[Table]:
        return [Table() for _ in self.groups]

    def identity(self, request: RequestState, group: Group, q: int) -> Identity:
        """Groups share nothing; the first one's contents are named as if it were alone."""
        identity = request.identity(q, group.block_size, self.speculation.hash_lookahead)
        return identity if group.number == 0 else (*identity, group.number)

    # --- Lookup -----------------------------------------------------------------------------------------------------

    def cached_prefix(self, request: RequestState) -> Hits:
        """The longest prefix that all groups together can stand for, over prompt and generated tokens.

        Full blocks only, and one token is left over. Each class may shorten what the ones before it found, and then
        they are asked again, until all agree; with two classes, the first of them full, once is enough.
        """
        if not self.config.enable_prefix_caching:
            return Hits(0, [[] for _ in self.groups])
        hit = request.num_tokens - 1
        if len(self.groups) == 1:
            (group,) = self.groups
            rows = self._find(request, [group], hit, drop=self._drops(group))
            return Hits(len(rows) * group.block_size, [_column(rows, 0)])
        found: dict[tuple[object, ...], list[Row]] = {}
        dropped: set[tuple[object, ...]] = set()
        longest = 0
        while True:
            current = hit
            for key, groups in self.classes.items():
                first = groups[0]
                b = first.block_size
                if type(first) is Group and key in found:
                    current = min(current, len(found[key]) * b)
                    continue
                drop = self._drops(first) and key not in dropped
                limit = min(current + b, request.num_tokens) if drop else current
                found[key] = self._find(request, groups, limit, drop=drop)
                length = len(found[key]) * b
                if drop:
                    dropped.add(key)
                elif length < current:
                    dropped.clear()
                current = length
                longest = max(longest, current)
            if current >= hit:
                break
            hit = current
            if len(self.classes) == 2 and type(next(iter(self.classes.values()))[0]) is Group:
                break
        entries: list[Entries] = [[] for _ in self.groups]
        for key, groups in self.classes.items():
            for place, group in enumerate(groups):
                entries[group.number] = _column(found[key], place)[: hit // group.block_size]
        return Hits(hit, entries, longest if longest > hit else 0)

    def _drops(self, group: Group) -> bool:
        return group.drops and not isinstance(group, AlignedStateGroup)

    def _find(self, request: RequestState, groups: Sequence[Group], limit: int, *, drop: bool) -> list[Row]:
        def found(q: int) -> Row:
            blocks = [self.pool.lookup(self.identity(request, group, q)) for group in groups]
            return None if None in blocks else [block for block in blocks if block is not None]

        return groups[0].find(found, limit, drop=drop)

    # --- The test ---------------------------------------------------------------------------------------------------

    def fits(
        self,
        request: RequestState,
        start: int,
        n: int,
        hits: Hits = NO_HITS,
        *,
        gate: bool = False,
        watermark: int = 0,
        leaving: Sequence[Block] = (),
    ) -> bool:
        """Are there blocks for `n` tokens on top of `start` computed ones (the gate asks it for the whole request)?"""
        for_step, for_all, free = self.needs(request, start, n, hits, gate=gate, leaving=leaving)
        return max(for_step, for_all) + watermark <= free

    def hits_state_of_this_call(self, hits: Hits) -> bool:
        """Whether a hit is a state that is being computed in this very step: nobody can start from it yet."""
        for group in self.groups:
            last = hits.of(group)[-1] if hits.of(group) else None
            if isinstance(group, AlignedStateGroup) and last and last.block_hash in self.hashed_in_this_call:
                return True
        return False

    def needs(
        self,
        request: RequestState,
        start: int,
        n: int,
        hits: Hits = NO_HITS,
        *,
        gate: bool = False,
        leaving: Sequence[Block] = (),
    ) -> tuple[int, int, int]:
        """Blocks that leave the free list for `n` tokens, and (gate) for all of the request's; those free.

        Hit blocks that nobody holds sit in the free list and are about to leave it, so they are not available for
        others. `leaving` are blocks whose holder is about to give them back.
        """
        free = self.pool.num_free + sum(block.ref_count == 1 for block in leaving)
        limit = self.config.max_model_len
        moment = self._moment(request, start, n, hits)
        evictable = sum(
            block.ref_count - (block in leaving) == 0
            for entries in hits.entries
            for block in entries
            if block is not None
        )
        slots = [self._slots(group, start + n) for group in self.groups]
        for_step = for_all = self._need(request, slots, hits, moment, capped=False) + evictable
        if gate:
            whole = min(request.num_tokens, limit)
            at_once = replace(moment, end=whole)
            for_all = self._need(request, [whole] * len(self.groups), hits, at_once, capped=True) + evictable
        return for_step, for_all, free

    def _need(self, request: RequestState, tokens: Sequence[int], hits: Hits, moment: Moment, *, capped: bool) -> int:
        return sum(
            group.need(table, hits.of(group), upto, moment, capped=capped)
            for group, table, upto in zip(self.groups, request.tables, tokens, strict=True)
        )

    def _slots(self, group: Group, tokens: int) -> int:
        """Tokens for which a group needs room: the drafter writes ahead, but not into states."""
        ahead = 0 if isinstance(group, AlignedStateGroup) else self.speculation.lookahead
        return min(tokens + ahead, int(self.config.max_model_len))

    def _moment(self, request: RequestState, start: int, n: int, hits: Hits) -> Moment:
        junction = hits.junction if hits.entries else request.junction
        return Moment(start, start + n, request.prompt, request.num_tokens, junction)

    # --- Taking and giving ------------------------------------------------------------------------------------------

    def evict(self, request: RequestState, computed: int) -> None:
        """Give back what no group needs once `computed` tokens have been computed."""
        computed = max(min(computed, self.config.max_model_len), 0)
        for group, table in zip(self.groups, request.tables, strict=True):
            self.pool.release(group.evict(table, computed))

    def take(self, request: RequestState, start: int, n: int, hits: Hits = NO_HITS) -> None:
        """Take the hits, then new blocks, group by group; hash at once what the tokens of this step will fill.

        Hashed at schedule time, so that a later request of the same step can hit it.
        """
        moment = self._moment(request, start, n, hits)
        for group, table in zip(self.groups, request.tables, strict=True):
            entries = hits.of(group)
            for block in entries:
                if block is not None:
                    self.pool.share(block)
            if entries:
                table.entries = list(entries)
                table.hashed = len(entries)
        writes = [
            group
            for group in self.groups
            if isinstance(group, AlignedStateGroup) and group._writes_checkpoint(request.tables[group.number], moment)
        ]
        for group, table in zip(self.groups, request.tables, strict=True):
            group.grow(table, self._slots(group, start + n), moment, self.pool.take)
        self.hash_blocks(request, min(start + n, request.num_tokens))
        for group in writes:
            self._write_checkpoint(request, group, moment)

    def _write_checkpoint(self, request: RequestState, group: AlignedStateGroup, moment: Moment) -> None:
        position = group.position(moment.end)
        q = position // group.block_size - 1
        block = request.tables[group.number].entries[q]
        if block is None:  # drafts span the boundary, and the table was long enough without a block for it
            return
        if group.keeps_checkpoint(position, moment.prompt, moment.junction):
            if block.block_hash is None and self.config.enable_prefix_caching:
                self._remember(block, self.identity(request, group, q))
        else:
            self.pool.forget(block)

    def hash_blocks(self, request: RequestState, tokens: int) -> None:
        """Make the full blocks among the first `tokens` findable by their content, as far as anybody may want them."""
        if not self.config.enable_prefix_caching:
            return
        known = request.num_tokens - self.speculation.hash_lookahead
        tokens = min(tokens, known)
        rounded = tokens
        if len(self.groups) > 1:
            rounded = tokens // self.common * self.common
        for group, table in zip(self.groups, request.tables, strict=True):
            upto = rounded
            if len(self.groups) > 1 and group.drops and rounded:
                upto = min(rounded + group.block_size, tokens)
            full = upto // group.block_size
            boundaries = self._boundaries(request, group)
            for q in range(table.hashed, full):
                block = table.entries[q]
                if block is not None and group.wants_hash(q, boundaries):
                    self._remember(block, self.identity(request, group, q))
            table.hashed = max(table.hashed, full)

    def _boundaries(self, request: RequestState, group: Group) -> list[int]:
        """The lengths that a later request may share: this prompt, and what was seen shared before."""
        prompt, junction, common = request.prompt, request.junction, self.common
        if self.speculation.drops_block:
            ends = [(prompt - 1) // common * common - common, prompt // common * common - common]
            ends = [max(end, 0) for end in ends]
            return ends + ([junction, junction - group.block_size] if junction > 0 else [])
        return [prompt - 1, *([junction] if junction > 0 else [])]

    def _remember(self, block: Block, identity: Identity) -> None:
        self.pool.remember(block, identity)
        self.hashed_in_this_call.add(identity)

    def free(self, request: RequestState) -> None:
        """Give everything back, group by group."""
        for table in request.tables:
            self.pool.release(table.held())
        request.tables = self.empty_tables()

    # --- Chunks -----------------------------------------------------------------------------------------------------

    def aligned(self, request: RequestState, start: int, n: int, junction: int) -> int:
        """How many of `n` tokens may be scheduled, so that states are left at block boundaries."""
        group = next((g for g in self.groups if isinstance(g, AlignedStateGroup)), None)
        whole = max(request.prompt, request.num_tokens - 1)
        if group is None or start >= whole:
            return n
        b = group.block_size
        end = start + n
        checkpoint = end >= whole and group.can_checkpoint(start, end, group.position(whole))
        if end < whole:
            most = self.config.max_num_scheduled_tokens or self.config.max_num_batched_tokens
            if self.config.long_prefill_token_threshold > 0:
                most = min(most, self.config.long_prefill_token_threshold)
            rounded = end // b * b
            if not (rounded <= start and b > most):
                end = rounded
        stops = []
        if not checkpoint:
            last = (request.num_tokens - 1) // b * b
            if group.drops:
                last = request.num_tokens // b * b - b
            stops.append(last)
            if start % b:
                stops.append(start // b * b + b)
        if start < junction < end:
            stops.append(start + (junction - start) // b * b)
        end = min([end, *(stop for stop in stops if start < stop < end)])
        return max(end - start, 0)


def _column(rows: Sequence[Row], place: int) -> Entries:
    """One group's part of the entries of its class."""
    return [None if row is None else row[place] for row in rows]
