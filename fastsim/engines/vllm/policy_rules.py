"""What holds between a policy file and the other knobs. A file is read, and checked, when a spec names one."""

from typing import Any

from fastsim.engines.vllm.group_rules import LAYOUT, is_special
from fastsim.rule import Rule

KEY = "engine.policy_file"


def _source(path: str) -> Any:
    from fastsim.engines.vllm.policy_text.source import load_policy  # here: most specs name none

    return load_policy(path)


def _is_policy(path: str | None) -> bool:
    """True; what is no policy is an InputError with a line of its own."""
    return path is None or _source(path) is not None


def _replaces(hook: str, key: str) -> Rule:
    return Rule(
        (KEY, key),
        lambda path, value: path is None or value is None or hook not in _source(path).reads,
        f"{key} = {{1}} with {KEY} = {{0}}, but one of them was expected: the file has a {hook} of its own",
    )


POLICY_RULES = (
    Rule((KEY,), _is_policy, f"{KEY} = {{0}}, but a policy was expected"),
    _replaces("victim_key", "engine.victim"),
    _replaces("queue_key", "engine.queue_order"),
    Rule(
        (KEY, "engine.slot_preempt"),
        lambda path, slot: path is None or not slot,
        f"engine.slot_preempt = {{1}} with {KEY} = {{0}}, but one of them was expected",
    ),
    Rule(
        (KEY, "engine.unservable"),
        lambda path, unservable: path is None or unservable != "spin" or not _source(path).queue_changes,
        f"engine.unservable = {{1}} with {KEY} = {{0}}, but reject was expected: the file says queue_changes = True, "
        "and then a request that can never fit need not stay the first",
    ),
    Rule(
        (KEY, *LAYOUT, "spec.method"),
        lambda path, *layout: path is None or not is_special(*layout),
        f"{KEY} = {{0}}, but none was expected with several KV cache groups, a window or spec.method",
    ),
)
