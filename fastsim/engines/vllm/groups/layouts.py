"""The layouts of the configurations that this process knows: a record holds the number of its own.

Groups and acceptances are lists, which a record of numbers has no room for.
"""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.config.speculation import accept_permille
from fastsim.engines.encode import Take
from fastsim.engines.vllm.group_texts import KVCacheGroup, effective_groups
from fastsim.engines.vllm.groups.codes import GroupKind
from fastsim.engines.vllm.groups.layout import Group, Layout, Speculation

PLAIN = 0
"""Number of the layout that is not one: a full-attention group and no drafts."""

_KEYS = (
    "engine.kv_cache_groups",
    "engine.disable_hybrid_kv_cache_manager",
    "engine.block_size",
    "engine.prefix_cache_retention_interval",
    "engine.enable_prefix_caching",
    "engine.max_model_len",
    "spec.method",
    "spec.num_speculative_tokens",
    "spec.acceptance",
    "spec.mean_acceptance_length",
    "spec.seed",
    "spec.draft_us",
    "spec.draft_us_per_token",
    "spec.lookahead_hashes",
    "spec.num_drafts",
)


class _Numbers:
    """Values by number, and their numbers. Equal values of one type share a number."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[tuple[type, Any], int] = {}

    def number_of(self, value: Any) -> int:
        key = (type(value), value)
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(value)
        return self._numbers[key]


_VALUES = _Numbers()
_LAYOUTS = _Numbers()
_LAYOUTS.number_of(None)  # PLAIN


def _number_of(value: Any) -> int:
    return _VALUES.number_of(value)


def layout_numbers(take: Take, count: int) -> npt.NDArray[np.int64]:
    """The number of each configuration's layout; PLAIN where it has one full-attention group and no drafts."""
    columns = {key: take(key, _number_of) for key in (_KEYS[0], "spec.method")}
    nothing = _number_of(None)
    if all((numbers == nothing).all() for numbers in columns.values()):
        return np.full(count, PLAIN, np.int64)
    numbers = np.array([np.broadcast_to(take(key, _number_of), count) for key in _KEYS])
    return np.array([_layout_number(tuple(column)) for column in numbers.T.tolist()], np.int64)


def layouts_of(numbers: npt.NDArray[np.int64]) -> list[Layout]:
    """The layouts with these numbers."""
    return [_LAYOUTS.values[number] for number in numbers.tolist()]


def number_of_layout(layout: Layout) -> int:
    """The number of a layout, which it has from now on."""
    return PLAIN if layout.is_plain else _LAYOUTS.number_of(layout)


@cache
def _layout_number(numbers: tuple[int, ...]) -> int:
    return number_of_layout(_layout(*(_VALUES.values[number] for number in numbers)))


def _layout(
    texts: tuple[str, ...] | None,
    disabled: bool,
    block_size: int,
    retention: int | None,
    caching: bool,
    max_model_len: int,
    method: str | None,
    k: int,
    acceptance: tuple[float, ...] | None,
    mean_length: float | None,
    seed: int,
    draft_us: float,
    draft_us_per_token: float,
    lookahead_hashes: bool,
    num_drafts: str,
) -> Layout:
    speculation = Speculation()
    if method is not None:
        speculation = Speculation(
            method="eagle" if method in ("eagle3", "mtp") else method,
            k=k,
            lookahead_hashes=lookahead_hashes,
            accept_permille=accept_permille(k, acceptance, mean_length),
            seed=seed,
            hashed_drafts=num_drafts == "hashed",
            draft_us=draft_us,
            draft_us_per_token=draft_us_per_token,
        )
    groups = tuple(
        _group(group, caching, max_model_len, speculation.k) for group in effective_groups(texts, disabled, block_size)
    )
    return Layout(groups, retention, speculation)


def _group(group: KVCacheGroup, caching: bool, max_model_len: int, k: int) -> Group:
    """A group as the kernels know it. Without prefix caching a state is one block, however long its request."""
    if group.kind.startswith("mamba"):
        if not caching:
            return Group(GroupKind.STATE, max_model_len, spec_blocks=k)
        return Group(GroupKind.ALIGNED, group.block_size, spec_blocks=k, checkpoint=group.kind == "mamba-checkpoint")
    return Group(GroupKind[group.kind.upper()], group.block_size, group.length)
