"""One spec under several engines: what each of them reads of it, said in its own words.

Requests, pool, batch limits and step times are common to all. A knob that an engine lacks stands at its default there
and its own knob for the same thing says it; step times have only those terms that every one of the engines has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastsim.config.models import Config
from fastsim.engines import engine_of
from fastsim.engines.vllm.knobs import VllmKnobs
from fastsim.model import shown

CONTEXT_TIME = "latency.b3_us_per_context_token"


@dataclass(frozen=True)
class Across:
    """Settings for each of some engines, so that one spec runs under all of them.

    Attributes
    ----------
    settings
        By key, one value for each engine; `engine.name` is the first.
    notes
        What is not said under some engine because it lacks the knob, one sentence each.
    """

    settings: dict[str, list[Any]]
    notes: list[str] = field(default_factory=list)

    def of(self, place: int) -> dict[str, Any]:
        """The settings of one of the engines."""
        return {key: values[place] for key, values in self.settings.items()}


def across(base: Config, names: Sequence[str], fixed: Sequence[str] = ()) -> Across:
    """What makes a spec run under each of some engines.

    Parameters
    ----------
    base
        What the spec says.
    names
        Values of `engine.name`.
    fixed
        Keys that are decided elsewhere (another axis), and stay as they are.
    """
    notes: list[str] = []
    found = [_under(base, name, notes) for name in names]
    known = base.latency.preset is not None or base.hardware.model is not None or "hardware.model" in fixed
    common = _common_times(base, names, notes, known=known)
    keys = dict.fromkeys(key for settings in found for key in settings)
    settings = {"engine.name": list(names)}
    settings |= {key: [each.get(key, base.value(key)) for each in found] for key in keys if key not in fixed}
    settings |= {key: [value] * len(names) for key, value in common.items() if key not in fixed}
    return Across(settings, notes)


def _under(base: Config, name: str, notes: list[str]) -> dict[str, Any]:
    """Settings of one engine: its words for vLLM's knobs, and these at their defaults."""
    engine = engine_of(name)
    if engine.reads is None:
        return {}
    settings: dict[str, Any] = {} if base.hardware.vllm_version is None else {"hardware.vllm_version": None}
    for knob, described in VllmKnobs.model_fields.items():
        key = f"engine.{knob}"
        value = base.value(key)
        if knob in engine.reads or value == described.default:
            continue
        settings[key] = described.default
        own = engine.says.get(knob, {}).get(value)
        if own is not None:
            settings.setdefault(*own)
            continue
        other = engine.instead.get(knob)
        hint = f", whose own is {other}" if other else ""
        notes.append(f"{key} = {shown(value)} is not read under {name}{hint}")
    return settings


def _common_times(base: Config, names: Sequence[str], notes: list[str], *, known: bool) -> dict[str, Any]:
    """Step times that all of the engines have: linear if one of them knows no other, without terms that one lacks.

    `known`: whether a preset or the hardware gives them.
    """
    times = base.latency
    settings: dict[str, Any] = {}
    linear = [name for name in names if not engine_of(name).table_time]
    if linear and len(linear) < len(names) and known and times.source != "linear":
        settings["latency.source"] = "linear"
        whose = "the hardware" if times.preset is None else "latency.preset"
        notes.append(f"step times of {whose} are linear under all engines, as {linear[0]} has no others")
    without = [name for name in names if not engine_of(name).context_time]
    has_context = times.b3_us_per_context_token is None and known
    if without and len(without) < len(names) and (has_context or times.b3_us_per_context_token):
        settings[CONTEXT_TIME] = 0.0
        notes.append(f"{CONTEXT_TIME} = 0 under all engines, as {without[0]} has none")
    return settings
