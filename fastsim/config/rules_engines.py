"""What BLIS and vllm-rlt do not have, and what must hold between their own keys.

Every entry is (keys, check, sentence), to become a `Rule`, or (keys, needs, when, sentence), to become an `Effect`.
"""

from collections.abc import Callable
from typing import Any

from fastsim.config.engine import EngineConfig
from fastsim.config.engine_blis import BlisKnobs
from fastsim.config.engine_rlt import RltKnobs, RltLatency
from fastsim.config.model import shown

RuleParts = tuple[tuple[str, ...], Callable[..., bool], str]
EffectParts = tuple[tuple[str, ...], tuple[str, ...], Callable[..., bool], str]

SHARED = frozenset(
    (
        "name",
        "num_gpu_blocks",
        "block_size",
        "max_num_seqs",
        "max_num_batched_tokens",
        "starvation_window_s",
        "thrash_threshold",
        "blis",
        "rlt",
    )
)
"""Fields of EngineConfig that every engine reads, and the tables of the engines themselves."""

BYPASS = ("admission_scan_limit", "max_admission_bypasses", "count_restores", "blocked_checks_limit")

ALSO = {"blis": frozenset(("long_prefill_token_threshold",)), "vllm-rlt": frozenset(("policy", *BYPASS))}
"""Fields beyond those that an engine reads."""

INSTEAD = {("blis", "max_model_len"): "engine.blis.max_model_len", ("blis", "policy"): "engine.blis.scheduler"} | {
    ("vllm-rlt", name): f"engine.rlt.{other}"
    for name, other in (
        ("watermark", "watermark_ratio"),
        ("enable_prefix_caching", "prefix_caching"),
        ("long_prefill_token_threshold", "prefill_chunk_size"),
    )
}
"""The engine's own key for what it does have."""


def _unless(engine: str, expected: Any) -> Callable[..., bool]:
    return lambda name, value: name != engine or value == expected


def _refusals(engine: str) -> list[RuleParts]:
    """One rule for every knob of vLLM that an engine does not have: it must stand at its default."""
    out: list[RuleParts] = []
    for name, field in EngineConfig.model_fields.items():
        if name in SHARED or name in ALSO[engine]:
            continue
        other = INSTEAD.get((engine, name))
        hint = f" ({other} is its own)" if other else ""
        sentence = (
            f"engine.{name} = {{1}}, but it was expected only with vLLM's engines, and {shown(field.default)} with "
            f"engine.name = {{0}}, which has no such knob{hint}"
        )
        out.append((("engine.name", f"engine.{name}"), _unless(engine, field.default), sentence))
    return out


def _absent(engine: str, key: str, expected: Any, what: str) -> RuleParts:
    return (
        ("engine.name", key),
        lambda name, value: name != engine or value in (expected, None),
        f"{key} = {{1}}, but {shown(expected)} was expected: engine.name = {{0}} has no {what}",
    )


FAMILY_RULES: tuple[RuleParts, ...] = (
    *_refusals("blis"),
    *_refusals("vllm-rlt"),
    _absent("blis", "latency.b3_us_per_context_token", 0, "step time by context"),
    _absent("vllm-rlt", "latency.b3_us_per_context_token", 0, "step time by context"),
    _absent("blis", "workload.concurrency", None, "closed loop"),
    _absent("vllm-rlt", "workload.concurrency", None, "closed loop"),
    _absent("vllm-rlt", "workload.timeout_s", None, "timeouts"),
    _absent("blis", "workload.sessions.turns", 1, "prefixes that extend one another, as conversations do"),
    _absent("vllm-rlt", "workload.sessions.turns", 1, "prefixes that extend one another, as conversations do"),
    (
        ("engine.name", "engine.rlt.wavefront", "engine.rlt.layout"),
        lambda name, wavefront, layout: name != "vllm-rlt" or not wavefront or layout == "last_exited",
        'engine.rlt.layout = {2}, but "last_exited" was expected with engine.rlt.wavefront = {1}',
    ),
    (
        ("engine.name", "engine.rlt.wavefront", "engine.rlt.prefill_chunk_size", "engine.max_num_batched_tokens"),
        lambda name, wavefront, chunk, batched: name != "vllm-rlt" or not wavefront or chunk <= batched,
        "engine.rlt.prefill_chunk_size = {2}, but with engine.rlt.wavefront = {1} at most "
        "engine.max_num_batched_tokens = {3} was expected, or a range is never scheduled",
    ),
)


def _only(engine: str, *keys: str) -> EffectParts:
    return (keys, ("engine.name",), lambda name: name == engine, f"engine.name is not {engine}")


FAMILY_EFFECTS: tuple[EffectParts, ...] = (
    _only("blis", "latency.alpha", *(f"engine.blis.{name}" for name in BlisKnobs.model_fields)),
    _only(
        "vllm-rlt",
        *(f"engine.rlt.{name}" for name in RltKnobs.model_fields),
        *(f"latency.rlt.{name}" for name in RltLatency.model_fields),
    ),
    (
        ("engine.blis.kv_transfer_bandwidth", "engine.blis.kv_transfer_base_latency_us"),
        ("engine.blis.kv_cpu_blocks",),
        lambda blocks: blocks > 0,
        "engine.blis.kv_cpu_blocks is 0",
    ),
    (
        tuple(f"engine.{name}" for name in BYPASS),
        ("engine.name", "engine.bypass"),
        lambda name, bypass: bypass or name == "vllm-rlt",
        "engine.bypass is off",
    ),
)
