"""Decision intervals in words: which settings of a run made no difference, and how far."""

from typing import TYPE_CHECKING, Any

from fastsim.cli.tables import number, table, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastsim.engines.contract import DecisionInterval


def intervals_text(intervals: "Sequence[DecisionInterval]") -> str:
    """What `fastsim run` says of the knobs that did not matter, and which others may have."""
    free = [interval for interval in intervals if not _is_fixed(interval)]
    fixed = [_name(interval) for interval in intervals if _is_fixed(interval)]
    if not free:
        return wrapped("every decision hung on each setting: no other value is known to give the same run")
    rows = [(_name(interval), _value(interval.value), _others(interval)) for interval in free]
    text = table(("setting", "here", "the same run, token for token, with"), rows, left=(0, 2))
    if fixed:
        text += "\n" + wrapped(f"no other value is known to give the same run: {', '.join(fixed)}")
    return text


def _name(interval: "DecisionInterval") -> str:
    return interval.key.removeprefix("engine.")


def _is_fixed(interval: "DecisionInterval") -> bool:
    return interval.least == interval.value == interval.most


def _others(interval: "DecisionInterval") -> str:
    """`97 or more`, `0 to 0.031`, `any`, `true or false`."""
    _, value, least, most = interval
    if isinstance(value, bool):
        return "true or false"
    if most is None:
        return f"{number(least)} or more" if least > 0 else "any"
    return f"{number(least)} to {number(most)}"


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else number(value)
