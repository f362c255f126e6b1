"""KV pages of the oracle: objects with a holder count, and the prefix cache over them.

A page stores `block_size` token positions in every depth plane, so it costs `planes` physical blocks. Everything is
counted afresh from the objects whenever somebody asks: slow, and hard to get wrong.
"""

from collections import OrderedDict
from dataclasses import dataclass, field


@dataclass(eq=False)
class Page:
    """One page of KV, all depth planes of it."""

    holders: int = 0


@dataclass
class PagePool:
    """All pages that are alive: held by requests, or kept by the prefix cache alone."""

    num_blocks: int
    planes: int
    live: list[Page] = field(default_factory=list)
    cache: "OrderedDict[tuple[int, ...], Page]" = field(default_factory=OrderedDict)  # oldest entry first

    def unused_blocks(self) -> int:
        """Blocks on the free list."""
        return self.num_blocks - self.planes * len(self.live)

    def idle_cached_pages(self) -> list[Page]:
        """Pages that only the prefix cache keeps."""
        return [page for page in self.cache.values() if page.holders == 0]

    def free_blocks(self) -> int:
        """Blocks a claim can count on: the free list, and what eviction would free."""
        return self.unused_blocks() + self.planes * len(self.idle_cached_pages())

    def claim(self, count: int) -> list[Page] | None:
        """`count` new pages, evicting the oldest cache entries as needed; None when even that would not do.

        Eviction takes the oldest entries one after another, in use or not: one in use loses its entry and frees
        nothing.
        """
        if self.planes * count > self.free_blocks():
            return None
        while self.planes * count > self.unused_blocks():
            _, page = self.cache.popitem(last=False)
            if page.holders == 0:
                self.live.remove(page)
        pages = [Page(holders=1) for _ in range(count)]
        self.live.extend(pages)
        return pages

    def release(self, page: Page) -> None:
        """One holder less; the page dies when nobody and no cache entry keeps it."""
        page.holders -= 1
        if page.holders == 0 and all(kept is not page for kept in self.cache.values()):
            self.live.remove(page)

    def lookup(self, keys: list[tuple[int, ...]]) -> list[Page]:
        """The longest run of leading pages that are cached. Does not touch their age."""
        hits: list[Page] = []
        for key in keys:
            if key not in self.cache:
                break
            hits.append(self.cache[key])
        return hits

    def pin(self, keys: list[tuple[int, ...]], pages: list[Page]) -> None:
        """Hold pages found by `lookup`; they become the youngest entries."""
        for key, page in zip(keys, pages, strict=False):
            page.holders += 1
            self.cache.move_to_end(key)

    def register(self, key: tuple[int, ...], page: Page) -> None:
        """Enter a written page under its prefix, unless the prefix is there already."""
        if key not in self.cache:
            self.cache[key] = page
