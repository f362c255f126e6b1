"""Decision intervals as ranges of a spec's keys: what a run says of its knobs."""

from bisect import bisect_left
from collections.abc import Iterator
from math import ceil, floor
from typing import Any

from fastsim.config import Config
from fastsim.engines.contract import DecisionInterval
from fastsim.engines.vllm.codes import NO_LIMIT

_DIGITS = 10_000
LARGEST_POOL = 2**31 - 1
"""The most blocks that a configuration can have."""


def decision_intervals(config: Config, scalars: Any) -> tuple[DecisionInterval, ...]:
    """For each knob the values, the others as they are, with which the run would have been the same.

    Parameters
    ----------
    config
        Of the run, defaults resolved.
    scalars
        What the run left: a record of SCALARS_DTYPE. Empty where it tells no intervals.
    """
    return tuple(_ranges(config, scalars)) if scalars["intervals"] else ()


def _ranges(config: Config, scalars: Any) -> Iterator[DecisionInterval]:
    engine = config.engine
    assert engine.num_gpu_blocks is not None
    seqs, batched = engine.max_num_seqs, engine.max_num_batched_tokens
    # min(max_num_seqs, max_num_active_seqs) lies within the bounds; so the second alone may keep it below the upper one
    least, most = _bounds(scalars, "cap")
    active = engine.max_num_active_seqs
    if active is not None and active < seqs:
        least, most = active, None
    yield DecisionInterval("engine.max_num_seqs", seqs, max(least, 1), most)
    blocks = engine.num_gpu_blocks
    yield DecisionInterval("engine.num_gpu_blocks", blocks, *_pools(blocks, engine.watermark, scalars))
    yield DecisionInterval("engine.watermark", engine.watermark, *_shares(blocks, engine.watermark, scalars))
    least, most = _bounds(scalars, "budget")
    scheduled = engine.max_num_scheduled_tokens
    if scheduled is not None and scheduled < batched:
        least, most = scheduled, None
    yield DecisionInterval("engine.max_num_batched_tokens", batched, max(least, seqs), most)
    for name, is_free in (("scheduler_reserve_full_isl", "gate_free"), ("enable_prefix_caching", "caching_free")):
        value = bool(getattr(engine, name))
        other = (not value) if scalars[is_free] else value
        yield DecisionInterval(f"engine.{name}", value, min(value, other), max(value, other))


def _bounds(scalars: Any, what: str) -> tuple[int, int | None]:
    most = int(scalars[f"{what}_most"])
    return int(scalars[f"{what}_least"]), None if most == NO_LIMIT else most


def _pools(blocks: int, watermark: float, scalars: Any) -> tuple[int, int | None]:
    """Sizes of the pool within the bounds: those of usable blocks, and those of what a watermark of its size leaves."""
    least, most = _bounds(scalars, "usable")
    room_least, room_most = _bounds(scalars, "room")

    def is_within(pool: int) -> bool:
        room = pool - 1 - int(watermark * pool)
        usable_fits = least <= pool - 1 and (most is None or pool - 1 <= most)
        return usable_fits and room_least <= room and (room_most is None or room <= room_most)

    # Both grow with the pool, one block at a time or not at all: the pools within are one range
    below = bisect_left(range(1, blocks + 1), True, key=is_within) + 1
    if most is None and room_most is None:
        return below, None
    beyond = range(blocks, LARGEST_POOL + 1)
    return below, blocks + bisect_left(beyond, True, key=lambda pool: not is_within(pool)) - 1


def _shares(blocks: int, watermark: float, scalars: Any) -> tuple[float, float | None]:
    """Shares of the pool that keep as many blocks as the bounds of the room allow: four digits, rounded inwards."""
    room_least, room_most = _bounds(scalars, "room")
    kept_least = 0 if room_most is None else max(blocks - 1 - room_most, 0)
    kept_most = blocks - 1 - room_least
    least = ceil(kept_least / blocks * _DIGITS)
    least += int(least / _DIGITS * blocks) < kept_least
    if kept_most >= blocks:
        return min(least / _DIGITS, watermark), None
    most = floor((kept_most + 1) / blocks * _DIGITS)
    most -= int(most / _DIGITS * blocks) > kept_most
    return min(least / _DIGITS, watermark), max(most / _DIGITS, watermark)
