"""What holds between KV cache groups, speculation and the other knobs."""

from math import lcm

from fastsim.engines.declaration import OwnColumn
from fastsim.engines.limits import Value
from fastsim.engines.vllm.group_texts import effective_groups, held_by_group, is_plain
from fastsim.rule import Effect, Rule

SPEC_KEYS = tuple(
    f"spec.{name}"
    for name in (
        "method",
        "num_speculative_tokens",
        "acceptance",
        "mean_acceptance_length",
        "seed",
        "draft_us",
        "draft_us_per_token",
        "lookahead_hashes",
        "num_drafts",
    )
)

SPEC_COLUMNS = (
    OwnColumn("draft_tokens", "tokens", "drafts verified, with spec.method", "none"),
    OwnColumn("accepted_tokens", "tokens", "drafts accepted, with spec.method", "more"),
    OwnColumn("draft_acceptance_rate", "share", "drafts accepted of those verified, with spec.method", "more"),
    OwnColumn("mean_acceptance_length", "tokens", "tokens delivered per verification, with spec.method", "more"),
    OwnColumn("output_tokens_per_step", "tokens", "tokens delivered per non-empty step, with spec.method", "more"),
)

Texts = tuple[str, ...] | None
LAYOUT = ("engine.kv_cache_groups", "engine.disable_hybrid_kv_cache_manager", "engine.block_size")


def is_special(texts: Texts, disabled: bool, block_size: int, method: str | None) -> bool:
    """Whether a configuration has groups, or drafts."""
    return method is not None or not is_plain(effective_groups(texts, disabled, block_size))


def is_plain_config(value: Value) -> bool:
    """Whether a configuration has one full-attention group and no drafts."""
    return not is_special(*(value(key) for key in (*LAYOUT, "spec.method")))


def groups_held(value: Value, tokens: int) -> list[tuple[str, int]]:
    """Name of each KV cache group, and blocks that a request of so many tokens holds in it; none of one full group."""
    groups = effective_groups(*(value(key) for key in LAYOUT))
    return [] if is_plain(groups) else held_by_group(groups, tokens)


def _special_only_if(key: str, allowed: tuple[object, ...], sentence: str) -> Rule:
    return Rule(
        (key, *LAYOUT, "spec.method"),
        lambda value, *layout: value in allowed or not is_special(*layout),
        sentence + " with several KV cache groups, a window or spec.method",
    )


def _is_multiple(texts: Texts, disabled: bool, block_size: int, retention: int | None) -> bool:
    groups = effective_groups(texts, disabled, block_size)
    return not retention or retention % lcm(*(group.block_size for group in groups)) == 0


def _equal_sizes(texts: Texts, disabled: bool, block_size: int, caching: bool) -> bool:
    groups = effective_groups(texts, disabled, block_size)
    needs = any(group.kind in ("chunked", "mamba", "mamba-checkpoint") for group in groups)
    return not (caching and needs) or len({group.block_size for group in groups}) == 1


def _has_chunks(texts: Texts, disabled: bool, block_size: int) -> bool:
    return any(group.kind == "chunked" for group in effective_groups(texts, disabled, block_size))


GROUP_RULES = (
    _special_only_if(
        "engine.name",
        ("vllm-0.33.0", "vllm-0.33.0-async"),
        'engine.name = {0}, but "vllm-0.33.0" or "vllm-0.33.0-async" was expected',
    ),
    _special_only_if(
        "engine.preemption_mode", ("recompute",), 'engine.preemption_mode = {0}, but "recompute" was expected'
    ),
    Rule(
        ("engine.slot_preempt", "engine.slot_preempt_preflight", *LAYOUT, "spec.method"),
        lambda slot, preflight, *layout: not slot or preflight or not is_special(*layout),
        "engine.slot_preempt_preflight = {1}, but true was expected with several KV cache groups, a window or "
        "spec.method",
    ),
    Rule(
        (*LAYOUT, "engine.prefix_cache_retention_interval"),
        _is_multiple,
        "engine.prefix_cache_retention_interval = {3}, but a multiple of every group's block size was expected",
    ),
    Rule(
        (*LAYOUT, "engine.enable_prefix_caching"),
        _equal_sizes,
        "engine.kv_cache_groups = {0}, but equal block sizes were expected: chunked and mamba groups with prefix "
        "caching know no others",
    ),
    Rule(
        ("spec.method", "spec.lookahead_hashes", *LAYOUT),
        lambda method, hashes, *layout: hashes or method not in ("eagle", "eagle3", "mtp") or not _has_chunks(*layout),
        "spec.lookahead_hashes = {1}, but true was expected with spec.method = {0} and chunked groups (vLLM turns the "
        "hybrid manager off: engine.disable_hybrid_kv_cache_manager)",
    ),
    Rule(
        ("spec.method", "spec.num_speculative_tokens", "engine.long_prefill_token_threshold"),
        lambda method, k, threshold: method is None or threshold == 0 or threshold > k,
        "engine.long_prefill_token_threshold = {2}, but 0 or more than spec.num_speculative_tokens = {1} was expected: "
        "vLLM fails when it cuts a decode",
    ),
    Rule(
        ("spec.method", "spec.num_drafts", "engine.name"),
        lambda method, drafts, name: method is None or drafts == "fixed" or not name.endswith("-async"),
        'spec.num_drafts = {1}, but "fixed" was expected with engine.name = {2}: it schedules k drafts before it knows',
    ),
    Rule(
        ("spec.method", "spec.num_speculative_tokens", "spec.acceptance"),
        lambda method, k, shares: method is None or shares is None or len(shares) in (1, k),
        "spec.acceptance = {2}, but one number, or one for each of spec.num_speculative_tokens = {1} was expected",
    ),
    Rule(
        ("spec.method", "spec.num_speculative_tokens", "spec.mean_acceptance_length"),
        lambda method, k, mean: method is None or mean is None or mean <= k + 1,
        "spec.mean_acceptance_length = {2}, but at most 1 + spec.num_speculative_tokens = 1 + {1} was expected",
    ),
    Rule(
        ("spec.method", "spec.acceptance", "spec.mean_acceptance_length"),
        lambda method, shares, mean: method is None or shares is None or mean is None,
        "spec.mean_acceptance_length = {2}, but none was expected beside spec.acceptance = {1}",
    ),
)

GROUP_EFFECTS = (
    Effect(SPEC_KEYS[1:], ("spec.method",), lambda method: method is not None, "spec.method is none"),
    Effect(
        ("engine.prefix_cache_retention_interval", "engine.disable_hybrid_kv_cache_manager"),
        ("engine.kv_cache_groups",),
        lambda groups: groups is not None,
        "engine.kv_cache_groups is none",
    ),
)
