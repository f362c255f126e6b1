"""KV cache groups of a model as vLLM makes them of its layers, and the bytes of a block that they share.

Layers of one kind are split into groups of equally many layers: as many as the rarer kind has, or all of the commoner
one where that is less than 1.5 times as many (vLLM 0.33.0, `get_kv_cache_groups`). All groups take blocks of one pool,
so a block has the bytes of the largest group, and a group with fewer layers leaves the rest of its blocks empty.
"""

from dataclasses import dataclass

from fastsim.presets.shapes import ModelShapes

NEARLY_EQUAL = 1.5


@dataclass(frozen=True)
class KVGroups:
    """Groups of a model's layers.

    Attributes
    ----------
    texts
        As `engine.kv_cache_groups` has them, in vLLM's order; None: all layers are one full-attention group.
    layers
        Most layers of a group: a block holds so many layers of `block_size` tokens.
    """

    texts: tuple[str, ...] | None
    layers: int
    windows: int = 0
    """How many groups have a window or a chunk."""
    full: int = 1
    """How many have full attention."""


def kv_groups(model: ModelShapes) -> KVGroups:
    """The groups that vLLM makes of a model's layers."""
    window, full = model.window_layers, model.layers - model.window_layers
    if not window:
        return KVGroups(None, model.layers)
    kind = f"{'chunked' if model.chunked else 'sliding'}:{model.window}"
    if not full:
        return KVGroups((kind,), model.layers, 1, 0)
    fewest, most = sorted((window, full))
    layers = most if most < NEARLY_EQUAL * fewest else fewest
    windows, fulls = -(-window // layers), -(-full // layers)
    texts = [_times(kind, windows), _times("full", fulls)]
    return KVGroups(tuple(texts if model.window_first else texts[::-1]), layers, windows, fulls)


def _times(kind: str, count: int) -> str:
    return kind if count == 1 else f"{kind}*{count}"
