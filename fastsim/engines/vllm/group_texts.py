"""KV cache groups as a spec writes them: `full`, `sliding:128`, `chunked:8192`, `mamba`, each as often as it comes.

This file is light: it is read with the configuration, before any kernel.
"""

import re
from typing import NamedTuple

from fastsim.errors import InputError
from fastsim.model import shown

KINDS = {"full": False, "sliding": True, "chunked": True, "mamba": False, "mamba-checkpoint": False}
"""The kinds, and whether one has a length: the window, or the chunk."""
MOST_GROUPS = 64
EXPECTED = (
    "full, sliding:WINDOW, chunked:CHUNK, mamba or mamba-checkpoint was expected, with /BLOCK_SIZE where it is not "
    "engine.block_size, and *COUNT for groups that are alike (sliding:1024*5)"
)
_FORM = re.compile(r"([a-z-]+)(?::([0-9]{1,9}))?(?:/([0-9]{1,7}))?(?:\*([0-9]{1,2}))?")


class KVCacheGroup(NamedTuple):
    """One group: its kind, window or chunk (0: none), and block size (0: that of the engine), in tokens."""

    kind: str
    length: int
    block_size: int


def parsed_groups(texts: tuple[str, ...]) -> tuple[KVCacheGroup, ...]:
    """The groups that a spec names, in their order.

    Raises
    ------
    InputError
        When one is not written as expected.
    """
    groups: list[KVCacheGroup] = []
    for text in texts:
        match = _FORM.fullmatch(text)
        kind, length, block_size, count = match.groups() if match else ("", None, None, None)
        if kind not in KINDS or KINDS[kind] != bool(length and int(length)) or "0" in (block_size, count):
            raise InputError(f"engine.kv_cache_groups: {shown(text)}, but {EXPECTED}")
        groups += [KVCacheGroup(kind, int(length or 0), int(block_size or 0))] * int(count or 1)
    if not 1 <= len(groups) <= MOST_GROUPS:
        raise InputError(f"engine.kv_cache_groups: {len(groups)} groups, but 1 to {MOST_GROUPS} were expected")
    return tuple(groups)


def checked_groups(texts: tuple[str, ...]) -> tuple[str, ...]:
    """The texts themselves, if they are groups."""
    parsed_groups(texts)
    return texts


def effective_groups(texts: tuple[str, ...] | None, disabled: bool, block_size: int) -> tuple[KVCacheGroup, ...]:
    """The groups that hold: one of full attention where there are none, or the hybrid manager is off."""
    if texts is None or disabled:
        return (KVCacheGroup("full", 0, block_size),)
    return tuple(group._replace(block_size=group.block_size or block_size) for group in parsed_groups(texts))


def is_plain(groups: tuple[KVCacheGroup, ...]) -> bool:
    """Whether there is one group, of full attention."""
    return [group.kind for group in groups] == ["full"]


def held_by_group(groups: tuple[KVCacheGroup, ...], tokens: int) -> list[tuple[str, int]]:
    """Blocks that a decoding request of so many tokens holds in each group, under the group's name.

    A window keeps the blocks of the tokens that the next one still attends to; Mamba one state.
    """
    held = []
    for group in groups:
        size, kept = group.block_size, 0
        if group.kind == "sliding":
            kept = max(tokens - group.length + 1, 0) // size
        elif group.kind == "chunked":
            kept = tokens // group.length * group.length // size
        blocks = 1 if group.kind.startswith("mamba") else -(-tokens // size) - kept
        held.append((f"{group.kind}:{group.length}" if group.length else group.kind, blocks))
    return held
