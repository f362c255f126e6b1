"""KV tokens: free ones, those of requests, those of the radix tree."""

from typing import Any

from tests.reference_sglang.radix import Node, RadixTree
from tests.reference_sglang.requests import Request


class Memory:
    def __init__(self, config: dict[str, Any]) -> None:
        self.page_size = config["page_size"]
        self.pool = config["max_total_tokens"] // self.page_size * self.page_size
        self.free = self.pool
        self.radix = None if config["disable_radix_cache"] else RadixTree(self.page_size)
        self.rows = config["max_running_requests"]  # free request slots

    def ceil(self, tokens: int) -> int:
        return -(-tokens // self.page_size) * self.page_size

    def evictable(self) -> int:
        return self.radix.evictable() if self.radix else 0

    def locked(self) -> int:
        return self.radix.locked() if self.radix else 0

    def available(self) -> int:
        return self.free + self.evictable()

    def evict_until(self, tokens: int) -> bool:
        """Evict until so many tokens are free, or nothing is left to evict. Whether they are."""
        while self.free < tokens and self.radix:
            evicted = self.radix.evict_one()
            if evicted == 0:
                break
            self.free += evicted
        return self.free >= tokens

    def match(self, request: Request, tokens: int) -> tuple[int, Node | None]:
        """Hit among the first `tokens` of the request."""
        return self.radix.match(request.content(tokens)) if self.radix else (0, None)

    def lock(self, node: Node | None) -> None:
        if self.radix:
            self.radix.lock(node)

    def unlock(self, node: Node | None) -> None:
        if self.radix:
            self.radix.unlock(node)

    def checkpoint(self, request: Request, tokens: int) -> None:
        """Give the whole pages of the first `tokens` tokens of a request to the tree."""
        tokens = tokens // self.page_size * self.page_size
        if self.radix is None or tokens == 0:
            return
        there, node = self.radix.insert(request.content(tokens))
        self.free += max(0, there - request.protected)  # its own copies of what was there
        prompt = request.prompt // self.page_size * self.page_size
        if 0 < prompt < tokens:
            self.radix.insert(request.content(prompt))
        self.radix.lock(node)
        self.radix.unlock(request.node)
        request.node = node
        request.protected = tokens

    def release(self, request: Request) -> None:
        """Give the request's own tokens, its lock and its slot back."""
        self.free += self.ceil(request.kv) - request.protected
        self.unlock(request.node)
        request.node = None
        request.kv = request.protected = request.prefix = 0
        request.has_row = False
        self.rows += 1
