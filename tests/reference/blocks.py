"""KV blocks as real objects, and the pool that hands them out."""

from collections import OrderedDict

Identity = tuple[str, int, int] | tuple[str, int, int, int]
"""What a full block holds: ("S", group, b), block b of a shared prefix, or ("U", i, b), block b of request i alone.

A fourth number is the KV cache group whose block it is; the first group's contents have none.
"""


class Block:
    """One KV block: a number, how many requests hold it, and what its content is known by."""

    __slots__ = ("block_hash", "block_id", "ref_count")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_count = 0
        self.block_hash: Identity | None = None


class BlockPool:
    """The free list and the prefix cache, over blocks 1..num_gpu_blocks-1 (block 0 is vLLM's null block).

    A block in the free list may still carry a hash: it is found again until somebody else is given the block.
    A hash may be carried by several blocks (two requests computed the same content in the same step, or after an
    eviction); they are not merged, and the one that was inserted first is found.
    """

    def __init__(self, num_gpu_blocks: int, *, all_freed_to_tail: bool) -> None:
        self.blocks = [Block(i) for i in range(1, num_gpu_blocks)]
        self.usable = len(self.blocks)
        self.free: OrderedDict[int, Block] = OrderedDict((block.block_id, block) for block in self.blocks)
        self.cached: dict[Identity, dict[int, Block]] = {}
        self.all_freed_to_tail = all_freed_to_tail

    @property
    def num_free(self) -> int:
        return len(self.free)

    def lookup(self, identity: Identity) -> Block | None:
        """The oldest-inserted block that carries this hash and has not been handed out again since."""
        holders = self.cached.get(identity)
        return next(iter(holders.values())) if holders else None

    def share(self, block: Block) -> None:
        """One more request holds this cached block; it leaves the free list if nobody did."""
        if block.ref_count == 0:
            del self.free[block.block_id]
        block.ref_count += 1

    def take(self) -> Block:
        """The block at the head of the free list, whose old content is forgotten."""
        _, block = self.free.popitem(last=False)
        self.forget(block)
        block.ref_count = 1
        return block

    def forget(self, block: Block) -> None:
        """A block can no longer be found by its content."""
        if block.block_hash is not None:
            holders = self.cached[block.block_hash]
            del holders[block.block_id]
            if not holders:
                del self.cached[block.block_hash]
            block.block_hash = None

    def remember(self, block: Block, identity: Identity) -> None:
        """A block has become full: it can be found by its content from now on."""
        block.block_hash = identity
        self.cached.setdefault(identity, {})[block.block_id] = block

    def release(self, blocks: list[Block]) -> None:
        """Give back a request's blocks, last block first.

        vLLM 0.33.0 puts those without a hash at the head of the free list (in that order, so the request's last block
        comes first) and those with a hash at its tail; vLLM 0.16.0 appends all of them at the tail.
        """
        to_head: list[Block] = []
        for block in reversed(blocks):
            block.ref_count -= 1
            if block.ref_count > 0:
                continue
            if block.block_hash is None and not self.all_freed_to_tail:
                to_head.append(block)
            else:
                self.free[block.block_id] = block
        for block in reversed(to_head):
            self.free[block.block_id] = block
            self.free.move_to_end(block.block_id, last=False)

    def free_order(self) -> list[Identity | None]:
        """The content of the free blocks from head to tail; None for a block without a hash."""
        return [block.block_hash for block in self.free.values()]
