"""A spec as one TOML file, with everything it extends and every option merged in."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastsim.config import KEYS
from fastsim.sweeps.grid.digits import Digit

SEED = "workload.seed"


def spec_text(settings: Mapping[str, Any], digits: Iterable[Digit], answer: Any = None) -> str:
    """TOML text that stands for the same grid: settings, axes, zip groups, choices, in the order of the digits.

    `answer` is the raw `[answer]` table, kept with the rows so that a report can answer the same question.
    """
    base = dict(settings)
    axes, groups, choices, seeds = [], [], [], ""
    for digit in digits:
        names = [axis.name for axis in digit.axes]
        values = digit.settings.get(SEED, ())
        if names == [SEED] and isinstance(values, range):
            base[SEED] = values.start
            seeds = f"seeds = {len(values)}"
        elif names == [SEED]:
            seeds = f"seeds = {_toml(list(values))}"
        elif any(name not in digit.settings for name in names):
            choices.append(_choice(digit))
        elif len(names) == 1:
            axes += _columns(digit)
        else:
            groups.append("\n".join(["[[sweep.zip]]", *_columns(digit)]))
    lines = [f"{key} = {_toml(value)}" for key, value in base.items()]
    blocks = ["\n".join(lines)]
    if seeds:
        blocks.append(f"[sweep]\n{seeds}")
    if axes:
        blocks.append("\n".join(["[sweep.axes]", *axes]))
    return "\n\n".join([*blocks, *groups, *choices, *_answer(answer)]) + "\n"


def _answer(answer: Any) -> list[str]:
    """The `[answer]` table as a block; it is checked where it is used, so only texts and lists of texts are known."""
    if not isinstance(answer, Mapping):
        return []
    lines = [f"{key} = {_toml(value)}" for key, value in answer.items() if isinstance(value, str | list)]
    return ["\n".join(["[answer]", *lines])]


def _columns(digit: Digit) -> list[str]:
    """The axes alone: what an axis over engines sets beside its own key follows from it."""
    return [f"{axis.name} = {_toml(list(digit.settings[axis.name]))}" for axis in digit.axes]


def _choice(digit: Digit) -> str:
    axis = digit.axes[0]
    lines = []
    for position, label in enumerate(axis.values):
        lines.append(f"[sweep.{axis.name}.{_toml(label)}]")
        given = {key: values[position] for key, values in digit.settings.items()}
        lines += [f"{key} = {_toml(value)}" for key, value in given.items() if value is not None or KEYS[key].optional]
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + "".join(_escaped(letter) for letter in value) + '"'
    if isinstance(value, Sequence):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return repr(value)


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    return f"\\u{ord(letter):04x}" if ord(letter) < 32 or ord(letter) == 127 else letter
