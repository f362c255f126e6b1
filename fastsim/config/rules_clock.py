"""No clock may overflow: what a step takes, times the steps there may be, stays far inside int64 microseconds.

Every rule bounds one term of the step time from above, by what a step can hold at most; a horizon ends a run, so that
then only one step counts. Arrivals are bounded where they are made (`fastsim.workload`). Entries are (keys, check,
sentence), to become a `Rule` that is monotone: it need only be checked at the ends of each key's values.
"""

from collections.abc import Callable

from fastsim.config.derived import DEFAULT_LATENCY
from fastsim.config.engine_rlt import RltLatency

RuleParts = tuple[tuple[str, ...], Callable[..., bool], str]

LONGEST_STEP_US = 2.0**50
"""Of each term: 36 years. Floats are exact to the microsecond up to there, and six terms stay below 2**53."""
LONGEST_RUN_US = 2.0**58
"""Of each term: with arrivals and pauses up to 2**60 each and at most six terms, a clock stays below 2**62."""
MOST_REQUESTS = 10**8
PRESETS_STAY_BELOW = {
    "b0_us": 1e6,
    "b1_us_per_prefill_token": 1e4,
    "b2_us_per_decode_token": 1e4,
    "b3_us_per_context_token": 10.0,
}
"""What stands for a coefficient that a preset gives: none is larger."""

ENDS = ("run.max_steps", "run.horizon_s")
KV = ("engine.num_gpu_blocks", "engine.block_size")
PRESET = "latency.preset"


def _fits(step_us: float, max_steps: int, horizon_s: float | None) -> bool:
    steps = max_steps if horizon_s is None else 1
    return step_us <= LONGEST_STEP_US and step_us * steps <= LONGEST_RUN_US


def _sentence(what: str, index: int) -> str:
    return (
        f"{what}, but with run.max_steps = {{{index}}} and run.horizon_s = {{{index + 1}}} less was expected: "
        f"a run could last longer than {LONGEST_RUN_US:.3g} us, or a step than {LONGEST_STEP_US:.3g} us, "
        "and the clock overflow"
    )


def _worth(name: str, given: float | None, preset: str | None) -> float:
    """A coefficient as given, or at most as what stands for it. Those of vllm-rlt's stages come from the others."""
    if given is not None:
        return given
    return DEFAULT_LATENCY.get(name, 0.0) if preset is None else PRESETS_STAY_BELOW.get(name, 0.0)


def _fixed(name: str) -> RuleParts:
    """A time that every step takes."""

    def check(given: float | None, preset: str | None, max_steps: int, horizon_s: float | None) -> bool:
        return _fits(_worth(name, given, preset), max_steps, horizon_s)

    key = f"latency.{name}"
    return (key, PRESET, *ENDS), check, _sentence(f"{key} = {{0}}", 2)


def _per_token(name: str) -> RuleParts:
    """A time for each token of a step: at most the budget or a token a request, and what the cache has room for."""

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
        return _fits(_worth(name, given, preset) * tokens, max_steps, horizon_s)

    key, most = f"latency.{name}", ("engine.max_num_batched_tokens", "engine.max_num_seqs")
    words = f"{key} = {{0}} with {most[0]} = {{2}}, {most[1]} = {{3}} and {{4}} blocks of {{5}} tokens"
    return (key, PRESET, *most, *KV, *ENDS), check, _sentence(words, 6)


def _per_context_token(name: str) -> RuleParts:
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
        return _fits(_worth(name, given, preset) * context, max_steps, horizon_s)

    key, most = f"latency.{name}", ("engine.max_num_seqs", "engine.max_model_len")
    words = f"{key} = {{0}} with {most[0]} = {{2}}, {most[1]} = {{3}} and {{4}} blocks of {{5}} tokens"
    return (key, PRESET, *most, *KV, *ENDS), check, _sentence(words, 6)


def _swap() -> RuleParts:
    """A time for each block moved out or in."""
    keys = ("engine.swap_us_per_block", "engine.swap_space_blocks", *ENDS)
    return (
        keys,
        lambda each_us, blocks, *ends: _fits(2 * each_us * blocks, *ends),
        _sentence(f"{keys[0]} = {{0}} with {keys[1]} = {{1}}", 2),
    )


def _reload() -> RuleParts:
    """A time for each block that BLIS brings back from the CPU."""
    keys = (
        "engine.blis.kv_cpu_blocks",
        "engine.blis.kv_transfer_base_latency_us",
        "engine.blis.kv_transfer_bandwidth",
        "engine.block_size",
        "engine.num_gpu_blocks",
        *ENDS,
    )

    def check(
        cpu: int,
        base_us: int,
        tokens_per_us: float,
        size: int,
        gpu: int | None,
        max_steps: int,
        horizon_s: float | None,
    ) -> bool:
        block_us = base_us + 1 + size / tokens_per_us
        return _fits(block_us * (cpu + (gpu or 0) if cpu else 1), max_steps, horizon_s)

    words = f"{keys[1]} = {{1}} and {keys[2]} = {{2}} with {{4}} GPU and {{0}} CPU blocks of {{3}} tokens"
    return keys, check, _sentence(words, 5)


def _retries() -> RuleParts:
    """The pauses of rejected clients, which follow one another."""
    keys = (
        "workload.retry_after_s",
        "workload.concurrency",
        "workload.num_requests",
        "workload.trace",
        "run.horizon_s",
    )

    def check(pause_s: float, clients: int | None, count: int | None, trace: str | None, horizon: float | None) -> bool:
        requests = count or (300 if trace is None else MOST_REQUESTS)
        return clients is None or horizon is not None or pause_s * 1e6 * requests <= LONGEST_RUN_US

    return (
        keys,
        check,
        f"{keys[0]} = {{0}}, but with {keys[2]} = {{2}} and without {keys[4]} less was expected: "
        + (f"the pauses of rejected clients could add up to more than {LONGEST_RUN_US:.3g} us, and the clock overflow"),
    )


def _before_the_queue() -> RuleParts:
    """BLIS's time from arrival to queue, of the longest prompt there can be; the three do not grow with one another."""
    return (
        ("latency.alpha",),
        lambda alpha: max(alpha) * 2.0**31 <= LONGEST_RUN_US,
        f"latency.alpha = {{0}}, but at most {LONGEST_RUN_US / 2**31:.3g} each was expected, or the clock may overflow",
    )


RLT_FIXED = tuple(f"rlt.{name}" for name in RltLatency.model_fields if name.endswith("_us"))
RLT_PER_TOKEN = tuple(f"rlt.{name}" for name in RltLatency.model_fields if name.endswith("_us_per_token"))

CLOCK_RULES: tuple[RuleParts, ...] = (
    *map(_fixed, ("b0_us", *RLT_FIXED)),
    *map(_per_token, ("b1_us_per_prefill_token", "b2_us_per_decode_token", *RLT_PER_TOKEN)),
    _per_context_token("b3_us_per_context_token"),
    _swap(),
    _reload(),
    _before_the_queue(),
    _retries(),
)
