"""The radix tree: nodes of whole pages of tokens, with locks and times of last use."""

from typing import Any


class Node:
    def __init__(self, tokens: list[Any], parent: "Node | None", used: int) -> None:
        self.tokens = tokens
        self.parent = parent
        self.used = used
        self.locks = 0
        self.children: dict[tuple[Any, ...], Node] = {}


class RadixTree:
    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.counter = 1
        self.root = Node([], None, 0)

    def tick(self) -> int:
        self.counter += 1
        return self.counter

    def whole_pages(self, count: int) -> int:
        return count // self.page_size * self.page_size

    def first_page(self, tokens: list[Any]) -> tuple[Any, ...]:
        return tuple(tokens[: self.page_size])

    def common_pages(self, a: list[Any], b: list[Any]) -> int:
        """Tokens in the pages with which both begin."""
        size = 0
        while size < min(len(a), len(b)) and a[size : size + self.page_size] == b[size : size + self.page_size]:
            size += self.page_size
        return size

    def split(self, node: Node, size: int) -> Node:
        """Split `node` after `size` tokens; the upper half is a new node."""
        assert node.parent is not None
        upper = Node(node.tokens[:size], node.parent, self.tick())
        upper.locks = node.locks
        node.parent.children[self.first_page(node.tokens)] = upper
        node.tokens = node.tokens[size:]
        node.parent = upper
        node.used = self.tick()
        upper.children[self.first_page(node.tokens)] = node
        return upper

    def match(self, tokens: list[Any]) -> tuple[int, Node]:
        """Tokens of the longest prefix in the tree, and the node that it ends on."""
        tokens = tokens[: self.whole_pages(len(tokens))]
        node = self.root
        hit = 0
        while hit < len(tokens):
            child = node.children.get(self.first_page(tokens[hit:]))
            if child is None:
                break
            common = self.common_pages(child.tokens, tokens[hit:])
            hit += common
            if common < len(child.tokens):
                node = self.split(child, common)
                break
            node = child
        now = self.tick()
        above: Node | None = node
        while above is not None:
            above.used = now
            above = above.parent
        return hit, node

    def insert(self, tokens: list[Any]) -> tuple[int, Node]:
        """Put whole pages in: tokens that were there before, and the node on which they all end."""
        node = self.root
        node.used = self.tick()
        there = 0
        while there < len(tokens):
            child = node.children.get(self.first_page(tokens[there:]))
            if child is None:
                break
            child.used = self.tick()
            common = self.common_pages(child.tokens, tokens[there:])
            there += common
            node = child if common == len(child.tokens) else self.split(child, common)
        if there < len(tokens):
            leaf = Node(tokens[there:], node, self.tick())
            node.children[self.first_page(leaf.tokens)] = leaf
            node = leaf
        return there, node

    def lock(self, node: Node | None, change: int = 1) -> None:
        while node is not None and node is not self.root:
            node.locks += change
            assert node.locks >= 0
            node = node.parent

    def unlock(self, node: Node | None) -> None:
        self.lock(node, -1)

    def nodes(self) -> list[Node]:
        """All nodes but the root."""
        found = list(self.root.children.values())
        for node in found:
            found.extend(node.children.values())
        return found

    def evictable(self) -> int:
        return sum(len(node.tokens) for node in self.nodes() if node.locks == 0)

    def locked(self) -> int:
        return sum(len(node.tokens) for node in self.nodes() if node.locks > 0)

    def evict_one(self) -> int:
        """Remove the unlocked leaf that was not used for the longest time: its tokens, 0 if there is none."""
        leaves = [node for node in self.nodes() if not node.children and node.locks == 0]
        if not leaves:
            return 0
        leaf = min(leaves, key=lambda node: node.used)
        assert leaf.parent is not None
        del leaf.parent.children[self.first_page(leaf.tokens)]
        return len(leaf.tokens)
