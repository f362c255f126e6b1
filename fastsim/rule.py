"""The form of what is said between keys: rules that must hold, effects that keys need, defaults that follow others.

They are written where they belong: those of an engine beside its knobs, all others in `fastsim.config`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastsim.model import shown


@dataclass(frozen=True)
class Rule:
    """`check(*values of keys)` must be true; `sentence` says so otherwise, with the values by position.

    A rule names its keys, so that a sweep checks it once for every combination of the axes involved, however large the
    grid is. `monotone`: for each key a larger number is always better, or always worse, so that a sweep need only look
    at the ends of its axes.
    """

    keys: tuple[str, ...]
    check: Callable[..., bool]
    sentence: str
    monotone: bool = False

    def fault(self, values: Sequence[Any]) -> str | None:
        """The sentence, when the values break the rule."""
        return None if self.check(*values) else self.sentence.format(*map(shown, values))


@dataclass(frozen=True)
class Effect:
    """The `keys` change something only where `when(*values of needs)` is true: a sweep warns of idle axes."""

    keys: tuple[str, ...]
    needs: tuple[str, ...]
    when: Callable[..., bool]
    sentence: str


@dataclass(frozen=True)
class Derived:
    """How a key that is None is filled: `fill(*values of needs)`."""

    key: str
    needs: tuple[str, ...]
    fill: Callable[..., Any]


def absent(engine: str, key: str, expected: Any, what: str) -> Rule:
    """A key that must be None or `expected` under an engine, which has no `what`."""
    return Rule(
        ("engine.name", key),
        lambda name, value: name != engine or value in (expected, None),
        f"{key} = {{1}}, but {shown(expected)} was expected: engine.name = {{0}} has no {what}",
    )
