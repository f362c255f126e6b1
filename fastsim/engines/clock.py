"""No clock may overflow: what a step takes, times the steps there may be, stays far inside int64 microseconds.

Every rule bounds one term of the step time from above, by what a step can hold at most; a horizon ends a run, so that
then only one step counts. Arrivals are bounded where they are made (`fastsim.workload`). The rules are monotone: each
need only be checked at the ends of each key's values. Those of the linear model (b0 to b3) hold for every engine; an
engine with times of its own makes rules for them with the functions here.
"""

from itertools import pairwise
from typing import Any

from fastsim.rule import Rule

DEFAULT_LATENCY = {
    "b0_us": 5752.71,
    "b1_us_per_prefill_token": 17.25,
    "b2_us_per_decode_token": 6.0,
    "b3_us_per_context_token": 0.0,
}
"""Step times of the discussion that founded the project, in microseconds."""

BESIDE_A_TABLE = {"b0_us": 1.0} | dict.fromkeys(list(DEFAULT_LATENCY)[1:], 0.0)
"""What stands for coefficients that are not given where a table is."""

NO_TERM: dict[str, Any] = {
    "b4_us_per_prefill_pair": 0.0,
    "b5_us_per_prefill_step": 0.0,
    "b6_us_per_window_token": 0.0,
    "window_tokens": 0,
    "table_tokens": None,
    "table_us": None,
    "frontend_us": 0.0,
}
"""What stands for the further terms of the step time where nothing gives them."""

LARGEST_PAIRS = 2.0**60
"""Doubled, their number must stay an int64."""

LONGEST_STEP_US = 2.0**50
"""Of each term: 36 years. Floats are exact to the microsecond up to there, and ten terms stay below 2**54."""
LONGEST_RUN_US = 2.0**58
"""Of each term: with arrivals and pauses up to 2**60 each and at most six terms, a clock stays below 2**62."""
PRESETS_STAY_BELOW = {
    "b0_us": 1e6,
    "b1_us_per_prefill_token": 1e4,
    "b2_us_per_decode_token": 1e4,
    "b3_us_per_context_token": 10.0,
    "b4_us_per_prefill_pair": 1.0,
    "b5_us_per_prefill_step": 1e6,
    "b6_us_per_window_token": 10.0,
}
"""What stands for a coefficient that a preset gives: none is larger."""

ENDS = ("run.max_steps", "run.horizon_s")
KV = ("engine.num_gpu_blocks", "engine.block_size")
PRESET = "latency.preset"


def fits(step_us: float, max_steps: int, horizon_s: float | None) -> bool:
    """Whether a term of the step time leaves the clock far from its end."""
    steps = max_steps if horizon_s is None else 1
    return step_us <= LONGEST_STEP_US and step_us * steps <= LONGEST_RUN_US


def overflow(what: str, index: int) -> str:
    """The sentence of a rule whose values from number `index` on are `ENDS`."""
    return (
        f"{what}, but with run.max_steps = {{{index}}} and run.horizon_s = {{{index + 1}}} less was expected: "
        f"a run could last longer than {LONGEST_RUN_US:.3g} us, or a step than {LONGEST_STEP_US:.3g} us, "
        "and the clock overflow"
    )


def _worth(name: str, given: float | None, preset: str | None) -> float:
    """A coefficient as given, or at most as what stands for it. Other keys take theirs from the linear model."""
    if given is not None:
        return given
    return DEFAULT_LATENCY.get(name, 0.0) if preset is None else PRESETS_STAY_BELOW.get(name, 0.0)


def fixed_time(name: str) -> Rule:
    """A time that every step takes: the key `latency.<name>`."""

    def check(given: float | None, preset: str | None, max_steps: int, horizon_s: float | None) -> bool:
        return fits(_worth(name, given, preset), max_steps, horizon_s)

    key = f"latency.{name}"
    return Rule((key, PRESET, *ENDS), check, overflow(f"{key} = {{0}}", 2), monotone=True)


def time_per_token(name: str) -> Rule:
    """A time for each token of a step, the key `latency.<name>`.

    There are at most as many as the budget or a token a request, and as the cache has room for.
    """

    def check(
        given: float | None,
        preset: str | None,
        batched: int,
        seqs: int,
        blocks: int | None,
        size: int,
        max_steps: int,
        horizon_s: float | None,
    ) -> bool:
        tokens = min(max(batched, seqs), (blocks or 0) * size)
        return fits(_worth(name, given, preset) * tokens, max_steps, horizon_s)

    key, most = f"latency.{name}", ("engine.max_num_batched_tokens", "engine.max_num_seqs")
    words = f"{key} = {{0}} with {most[0]} = {{2}}, {most[1]} = {{3}} and {{4}} blocks of {{5}} tokens"
    return Rule((key, PRESET, *most, *KV, *ENDS), check, overflow(words, 6), monotone=True)


def _time_per_context_token(name: str) -> Rule:
    """A time for each token computed before: of every running request (it has a block of its own) its longest."""

    def check(
        given: float | None,
        preset: str | None,
        seqs: int,
        length: int,
        blocks: int | None,
        size: int,
        max_steps: int,
        horizon_s: float | None,
    ) -> bool:
        context = min(seqs, blocks or 0) * min(length, (blocks or 0) * size)
        return fits(_worth(name, given, preset) * context, max_steps, horizon_s)

    key, most = f"latency.{name}", ("engine.max_num_seqs", "engine.max_model_len")
    words = f"{key} = {{0}} with {most[0]} = {{2}}, {most[1]} = {{3}} and {{4}} blocks of {{5}} tokens"
    return Rule((key, PRESET, *most, *KV, *ENDS), check, overflow(words, 6), monotone=True)


def _time_by_table() -> Rule:
    """The table's time for the most tokens a step can hold."""

    def check(
        tokens: tuple[int, ...] | None,
        us: tuple[float, ...] | None,
        scale: float,
        batched: int,
        seqs: int,
        blocks: int | None,
        size: int,
        max_steps: int,
        horizon_s: float | None,
    ) -> bool:
        if tokens is None or us is None or len(tokens) != len(us):
            return True  # another rule's fault
        most = max(min(max(batched, seqs), (blocks or 0) * size) + 16, tokens[-1])
        slope = (us[-1] - us[-2]) / max(tokens[-1] - tokens[-2], 1) if len(us) > 1 else 0.0
        return fits((us[-1] + slope * (most - tokens[-1])) * scale, max_steps, horizon_s)

    most = ("engine.max_num_batched_tokens", "engine.max_num_seqs")
    keys = ("latency.table_tokens", "latency.table_us", "latency.table_scale", *most, *KV, *ENDS)
    words = f"{keys[1]} = {{1}} with {keys[0]} = {{0}} and {keys[2]} = {{2}}"
    return Rule(keys, check, overflow(words, 7), monotone=True)


def _time_per_pair(name: str) -> Rule:
    """A time for each pair of a prefill token and one before it."""

    def check(
        given: float | None,
        preset: str | None,
        batched: int,
        length: int,
        blocks: int | None,
        size: int,
        max_steps: int,
        horizon_s: float | None,
    ) -> bool:
        each_us = _worth(name, given, preset)
        pairs = float(min(batched, (blocks or 0) * size)) * length
        return each_us == 0.0 or (pairs <= LARGEST_PAIRS and fits(each_us * pairs, max_steps, horizon_s))

    key, most = f"latency.{name}", ("engine.max_num_batched_tokens", "engine.max_model_len")
    words = f"{key} = {{0}} with {most[0]} = {{2}}, {most[1]} = {{3}} and {{4}} blocks of {{5}} tokens"
    return Rule((key, PRESET, *most, *KV, *ENDS), check, overflow(words, 6), monotone=True)


TABLE_RULES = (
    Rule(
        ("latency.table_tokens", "latency.table_us"),
        lambda tokens, us: (tokens is None) == (us is None) and len(tokens or ()) == len(us or ()),
        "latency.table_us = {1}, but a time for each of latency.table_tokens = {0} was expected",
    ),
    Rule(
        ("latency.table_tokens",),
        lambda tokens: all(a < b for a, b in pairwise(tokens or ())),
        "latency.table_tokens = {0}, but rising numbers were expected",
    ),
    Rule(
        ("latency.table_us",),
        lambda us: all(a <= b for a, b in pairwise(us or ())),
        "latency.table_us = {0}, but times that never fall were expected: more tokens take no less time",
    ),
    Rule(
        ("latency.table_tokens", "latency.table_scale", "latency.preset"),
        lambda tokens, scale, preset: scale == 1.0 or tokens is not None or preset is not None,
        "latency.table_scale = {1}, but then a table was expected: latency.table_tokens or latency.preset",
    ),
    fixed_time("b5_us_per_prefill_step"),
    _time_per_context_token("b6_us_per_window_token"),
    _time_per_pair("b4_us_per_prefill_pair"),
    _time_by_table(),
)
"""Of the table and the terms beside it."""

BEYOND_LINEAR = {
    "b4_us_per_prefill_pair": (0, "attention of prefills in its step time"),
    "b5_us_per_prefill_step": (0, "fixed time of prefills"),
    "b6_us_per_window_token": (0, "sliding windows in its step time"),
    "window_tokens": (0, "sliding windows in its step time"),
    "table_tokens": (None, "table of step times"),
    "table_us": (None, "table of step times"),
    "table_scale": (1.0, "table of step times"),
}
"""What keys below `latency.` must be under an engine whose step time is linear, and what it lacks."""

LINEAR_RULES = (
    fixed_time("b0_us"),
    time_per_token("b1_us_per_prefill_token"),
    time_per_token("b2_us_per_decode_token"),
    _time_per_context_token("b3_us_per_context_token"),
)
"""Of the step times that every engine shares."""
