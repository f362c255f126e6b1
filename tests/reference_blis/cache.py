"""BLIS's KV cache in plain Python: blocks as objects, dictionaries for the maps, OrderedDict for both LRU lists.

Block contents are symbolic. A full block's key is interned from (key of the block before it in the same table, what
its tokens are), which distinguishes exactly what BLIS's chained hash distinguishes, without any token ids.
"""

import math
from collections import OrderedDict


class Block:
    def __init__(self, number):
        self.number = number
        self.references = 0
        self.key = None  # None: never full, or recycled
        self.tokens = 0
        self.content = None  # what the tokens in it are: (whose, first position)


class Chain:
    """Interns chained keys: the same predecessor and the same content give the same small integer."""

    def __init__(self):
        self._numbers = {}

    def key(self, previous, content):
        return self._numbers.setdefault((previous, content), len(self._numbers))


class GpuCache:
    """The single-tier cache. `tables[request]` is the list of its blocks; absent: the request has no table."""

    def __init__(self, num_blocks, block_size, rollback_leak=False):
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.rollback_leak = rollback_leak
        self.free = OrderedDict()  # released blocks, head first; behind the untouched ones, which are taken first
        self.untouched = num_blocks
        self.by_key = {}
        self.tables = {}
        self.chain = Chain()
        self.hits = 0
        self.misses = 0

    @property
    def num_free(self):
        return self.untouched + len(self.free)

    @property
    def used(self):
        return self.num_blocks - self.num_free

    def content(self, request, position):
        """What the block starting at `position` holds: shared if it lies inside the shared prefix as a whole."""
        if request.prefix_group and position + self.block_size <= request.prefix_tokens:
            return ("group", request.prefix_group, position)
        return ("request", request.index, position)

    def prompt_keys(self, request):
        key = None
        for first in range(0, request.prompt_tokens - self.block_size + 1, self.block_size):
            key = self.chain.key(key, self.content(request, first))
            yield key

    def cached_prefix(self, request):
        """Blocks of the longest cached prefix of the prompt. Changes nothing."""
        blocks = []
        for key in self.prompt_keys(request):
            if key not in self.by_key:
                break
            blocks.append(self.by_key[key])
        return blocks

    def claim(self, request, blocks):
        table = self.tables.setdefault(request, [])
        for block in blocks:
            block.references += 1
            self.free.pop(block.number, None)
            table.append(block)
            self.hits += 1

    def recycle_head(self):
        """Take the head of the free list for new content. Its key leaves the map, whoever owns the entry (quirk C)."""
        if self.untouched:
            self.untouched -= 1
            return Block(self.untouched)
        _, block = self.free.popitem(last=False)
        if block.key is not None:
            self.by_key.pop(block.key, None)
        block.key, block.tokens, block.content = None, 0, None
        return block

    def register(self, table, index):
        block = table[index]
        block.key = self.chain.key(table[index - 1].key if index else None, block.content)
        self.by_key[block.key] = block

    def allocate(self, request, start, end, cached=()):
        """Room for tokens start..end-1 of `request`, all or nothing. `cached`: prefix blocks to claim first."""
        if end > request.prompt_tokens:
            return self._allocate_decode(request, start)
        table = self.tables.get(request, [])
        to_claim = list(cached)[len(table) :]
        room = self.block_size - table[-1].tokens if table else 0
        new_blocks = math.ceil(max(end - start - room, 0) / self.block_size)
        if new_blocks + sum(block.references == 0 for block in to_claim) > self.num_free:
            return False
        if end > start:  # nothing to compute: nothing is claimed either (quirk B)
            if to_claim:
                self.claim(request, to_claim)
            self._write(request, start, end)
        return True

    def _allocate_decode(self, request, position):
        table = self.tables.get(request)
        if (not table or table[-1].tokens == self.block_size) and self.num_free == 0:
            if self.rollback_leak:
                self.tables.pop(request, None)  # its blocks keep their references: nobody will ever release them
            return False
        self._write(request, position, position + 1)
        return True

    def _write(self, request, start, end):
        table = self.tables.setdefault(request, [])
        prefill = end <= request.prompt_tokens
        while start < end:
            fresh = not table or table[-1].tokens == self.block_size
            if fresh:
                block = self.recycle_head()
                block.references = 1
                block.content = self.content(request, start)
                table.append(block)
                self.misses += 1
            taken = min(end - start, self.block_size - table[-1].tokens)
            table[-1].tokens += taken
            start += taken
            # A block gets its key when it becomes full; a decode block that is born full (block size 1) never does.
            if table[-1].tokens == self.block_size and (prefill or not fresh):
                self.register(table, len(table) - 1)

    def release(self, request):
        for block in reversed(self.tables.pop(request, [])):
            block.references -= 1
            if block.references == 0:
                self.free[block.number] = block

    # What only the tiered cache has.
    def mirror(self, running):
        pass

    def take_transfer_us(self):
        return 0

    def hit_rate(self):
        total = self.hits + self.misses
        return self.hits / total if total else 0.0


class TieredCache(GpuCache):
    """The GPU cache with a CPU LRU behind it."""

    def __init__(self, num_blocks, block_size, cpu_blocks, bandwidth, base_latency_us, rollback_leak=False):
        super().__init__(num_blocks, block_size, rollback_leak)
        self.cpu = OrderedDict()  # key -> None, least recently used first
        self.cpu_blocks = cpu_blocks
        self.block_transfer_us = base_latency_us + math.ceil(block_size / bandwidth)
        self.transfer_us = 0
        self.failures = 0
        self.reloads = 0

    def allocate(self, request, start, end, cached=()):
        reloaded = False
        if end <= request.prompt_tokens or not self.tables.get(request):
            reloaded = self.reload(request, cached)
        if reloaded:
            hits = self.cached_prefix(request)
            if len(hits) * self.block_size > start:
                table = self.tables.get(request, [])
                self.claim(request, hits[len(table) : math.ceil(end / self.block_size)])
                if len(hits) * self.block_size >= end:
                    return True
                start, cached = len(hits) * self.block_size, ()
        allocated = super().allocate(request, start, end, cached)  # `cached` may be stale by now (quirk D)
        if not allocated and not reloaded:
            self.failures += 1
        return allocated

    def reload(self, request, cached):
        """Bring prompt blocks back from the CPU, past what is cached or owned already, to the tail of the free list."""
        owned = self.tables.get(request, [])
        known = owned if len(owned) > len(cached) else cached
        key = known[-1].key if known else None
        reloads, most = 0, self.num_free  # no free block is taken twice
        for index in range(len(known), request.prompt_tokens // self.block_size):
            content = self.content(request, index * self.block_size)
            key = self.chain.key(key, content)
            if key in self.by_key:
                continue
            if key not in self.cpu or reloads == most:
                break
            block = self.recycle_head()
            block.key, block.tokens, block.content = key, self.block_size, content
            self.by_key[key] = block
            self.free[block.number] = block
            self.cpu.move_to_end(key)
            self.transfer_us += self.block_transfer_us
            reloads += 1
        self.reloads += reloads
        return reloads > 0

    def mirror(self, running):
        for request in running:
            for block in self.tables.get(request, []):
                if block.key is None:
                    continue
                if block.key in self.cpu:
                    self.cpu.move_to_end(block.key)
                    continue
                if len(self.cpu) == self.cpu_blocks:
                    self.cpu.popitem(last=False)
                self.cpu[block.key] = None

    def take_transfer_us(self):
        taken, self.transfer_us = self.transfer_us, 0
        return taken

    def hit_rate(self):
        total = self.hits + self.misses + self.failures
        return self.hits / total if total else 0.0
