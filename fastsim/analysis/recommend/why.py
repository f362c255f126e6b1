"""Why a setting: what half and double of each number would do, and what more of each resource would do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastsim.analysis.recommend.slo import MARGIN_WEIGHT, Interval, Outlook
from fastsim.analysis.recommend.space import BLOCKS, SEQS, TOKENS, Space
from fastsim.analysis.recommend.trials import Traffic, Trials
from fastsim.config import Config, resolved
from fastsim.config.derived import with_values
from fastsim.config.rules import start_fault
from fastsim.engines.step_fields import STEP_TIME

MORE = 1.25
"""How much more of a resource."""
HELPS = 0.01
"""Less gain than this of the goodput, or half of it in margin, is none."""


@dataclass(frozen=True)
class Alternative:
    """Another value of one of the two batch limits, all else as recommended."""

    key: str
    value: int
    outlook: Outlook
    gain: Interval
    """Its goodput less the recommended one's, relative to it."""

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"setting": {self.key: self.value}, "gain": self.gain.to_json()} | self.outlook.to_json()


@dataclass(frozen=True)
class Relief:
    """What a quarter more of one resource would change, all settings as recommended."""

    name: str
    text: str
    outlook: Outlook
    goodput_gain: float
    margin_gain: float

    @property
    def gain(self) -> float:
        """Both gains in one number, as a setting's worth weighs them."""
        return self.goodput_gain + MARGIN_WEIGHT * self.margin_gain

    @property
    def helps(self) -> bool:
        """Whether it is worth a mention: a percent of goodput, or of the SLO's margin five."""
        return self.goodput_gain >= HELPS or (self.goodput_gain > -HELPS and self.margin_gain >= 5 * HELPS)

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "more": self.name,
            "what": self.text,
            "goodput_gain": self.goodput_gain,
            "margin_gain": self.margin_gain,
            "meets": self.outlook.meets,
        }


def alternatives(
    space: Space,
    trials: Trials,
    traffic: Traffic,
    config: Config,
    settings: Mapping[str, Any],
    seeds: Sequence[int],
) -> list[Alternative]:
    """About half and double of each of the two batch limits, where a server would start with them."""
    tries: list[tuple[str, int]] = []
    for key in (SEQS, TOKENS):
        now = int(config.value(key))
        values = [value for knob in space.knobs for value in knob.settings.get(key, ())]
        below = [value for value in values if value < now]
        above = [value for value in values if value > now]
        for side, wanted in ((below, now / 2), (above, now * 2)):
            if side:
                tries.append((key, min(side, key=lambda value: abs(np.log(value / wanted)))))
    changed = {}
    for key, value in tries:
        other = space.with_settings({**settings, key: value})
        if start_fault(other.value) is None:
            changed[key, value] = other
    base, *found = trials.outlooks([config, *changed.values()], traffic, seeds)
    return [
        Alternative(key, value, outlook, _gain(outlook, base))
        for (key, value), outlook in zip(changed, found, strict=True)
    ]


def reliefs(trials: Trials, traffic: Traffic, config: Config, seeds: Sequence[int]) -> list[Relief]:
    """A quarter more KV memory, batch slots, token budget, compute."""
    engine, latency = config.engine, resolved(config).latency
    faster = {
        f"latency.{name}": max(getattr(latency, name) / MORE, 1.0 if name == "b0_us" else 0.0) for name in STEP_TIME
    }
    if latency.table_us is not None:
        faster["latency.table_scale"] = latency.table_scale / MORE
    seqs, tokens = round(engine.max_num_seqs * MORE), round(engine.max_num_batched_tokens * MORE)
    changes: list[tuple[str, str, dict[str, Any]]] = [
        ("KV memory", "a quarter more KV blocks", {BLOCKS: round((engine.num_gpu_blocks or 2) * MORE)}),
        ("compute", "steps a quarter faster", faster),
        ("batch slots", f"max_num_seqs {seqs}", {SEQS: seqs, TOKENS: max(engine.max_num_batched_tokens, seqs)}),
        ("token budget", f"max_num_batched_tokens {tokens}", {TOKENS: tokens}),
    ]
    configs = [with_values(config, change) for _, _, change in changes]
    base, *found = trials.outlooks([config, *configs], traffic, seeds)
    reference = max(float(base.goodput.mean()), 1e-12)
    return [
        Relief(
            name,
            text,
            outlook,
            float(outlook.goodput.mean() - base.goodput.mean()) / reference,
            outlook.worst_margin - base.worst_margin,
        )
        for (name, text, _), outlook in zip(changes, found, strict=True)
    ]


def _gain(outlook: Outlook, base: Outlook) -> Interval:
    mean = float(base.goodput.mean())
    return Interval.of((outlook.goodput - base.goodput) / mean if mean > 0 else np.full(len(base.goodput), np.nan))
