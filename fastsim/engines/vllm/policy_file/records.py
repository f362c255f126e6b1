"""A policy file in the configuration record: addresses of its decisions, and what jumps may assume of them."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.engines.encode import Take
from fastsim.engines.vllm.codes import QueueOrder, Reads, Victim
from fastsim.engines.vllm.policy_text.fields import ADMIT, CAP, QUEUE, STEADY, VICTIM
from fastsim.engines.vllm.policy_text.source import PolicySource, load_policy

KEY = "engine.policy_file"
OF_HITS = frozenset({"computed_tokens", "cached_tokens", "new_tokens", "blocks"})
"""Fields of a candidate that follow from its prefix hits."""


def queue_moves(source: PolicySource) -> bool:
    """Whether the key of an arrival depends on when it is computed."""
    view = source.reads.get(QUEUE, (frozenset(), frozenset()))[0]
    return not source.queue_changes and bool(view & {"now_us", "step", "free_blocks"})


def reads_of(source: PolicySource, hook: str, *, caching: bool = False) -> Reads:
    """What jumps must know of `admit` or `cap`."""
    view, request = source.reads.get(hook, (frozenset(), frozenset()))
    if caching and request & OF_HITS:
        return Reads.HITS
    if view - STEADY - {"waiting"}:
        return Reads.STEPS
    return Reads.ARRIVALS if "waiting" in view else Reads.STEADY


@cache
def _of_file(fact: Callable[[PolicySource], int]) -> Callable[[str | None], int]:
    return lambda path: 0 if path is None else int(fact(load_policy(path)))


@cache
def _address(hook: str) -> Callable[[str | None], int]:
    def address(path: str | None) -> int:
        if path is None:
            return 0
        from fastsim.engines.vllm.policy_file.decisions import addresses  # compiles

        return addresses(path).get(hook, 0)

    return address


_FACTS: dict[str, Callable[[PolicySource], int]] = {
    "policy": lambda source: 1,
    "policy_queue_moves": queue_moves,
    "policy_queue_changes": lambda source: source.queue_changes and QUEUE in source.reads,
    "policy_cap_reads": lambda source: reads_of(source, CAP),
    "policy_admit_reads": lambda source: reads_of(source, ADMIT),
}
_ADDRESSES = {"policy_victim": VICTIM, "policy_queue": QUEUE, "policy_admit": ADMIT, "policy_cap": CAP}


def _cached_reads(source: PolicySource) -> int:
    return reads_of(source, ADMIT, caching=True)


def fill_policy(records: npt.NDArray[Any], take: Take) -> None:
    """Fill the fields of a record that a policy file decides; nothing where no configuration has one."""
    for name, fact in _FACTS.items():
        records[name] = take(KEY, _of_file(fact))
        if not records["policy"].any():
            return
    records["policy_admit_reads"] = np.where(
        records["enable_prefix_caching"] != 0, take(KEY, _of_file(_cached_reads)), records["policy_admit_reads"]
    )
    for name, hook in _ADDRESSES.items():
        records[name] = take(KEY, _address(hook))
    records["victim"][records["policy_victim"] != 0] = Victim.POLICY
    records["queue_order"][records["policy_queue"] != 0] = QueueOrder.POLICY
