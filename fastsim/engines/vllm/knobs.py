"""vLLM's V1 scheduler: every knob by its own name where it has one, and the remedies on top of it.

They are the common language: another engine says which of them it reads (`Engine.reads`).
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from fastsim.engines.clock import ENDS, fits, overflow
from fastsim.engines.declaration import Engine
from fastsim.engines.vllm.group_rules import (
    GROUP_EFFECTS,
    GROUP_RULES,
    SPEC_COLUMNS,
    SPEC_KEYS,
    groups_held,
    is_plain_config,
)
from fastsim.engines.vllm.group_texts import checked_groups
from fastsim.engines.vllm.limits import NULL_BLOCKS, limits
from fastsim.engines.vllm.policies import POLICIES
from fastsim.engines.vllm.policy_rules import POLICY_RULES
from fastsim.engines.vllm.server import SERVER
from fastsim.engines.vllm.start import START_RULES
from fastsim.model import FileName, Model, Natural, Pause, Positive, a_list
from fastsim.rule import Derived, Effect, Rule

SYNC, OLD, ASYNC = "vllm-0.33.0", "vllm-0.16.0", "vllm-0.33.0-async"
NAMES = (SYNC, OLD, ASYNC)
Victim = Literal["tail", "priority", "least_computed", "most_computed", "least_generated", "most_blocks", "random"]
QueueOrder = Literal["fcfs", "priority", "sjf", "aging"]


Groups = Annotated[tuple[str, ...], a_list, AfterValidator(checked_groups)]


class VllmKnobs(Model):
    """The scheduler's knobs, below `engine.`. What is None follows other keys (`ENGINE.derived`) or means "off"."""

    # --- KV cache and batch (`SharedKnobs` has the others) ---
    max_num_scheduled_tokens: Positive | None = None
    """A second budget of tokens per step; off when none."""
    long_prefill_token_threshold: Natural = 0
    """Most tokens of one prefill in one step; 0 is off."""
    long_prefill_token_threshold_adaptive: bool = False
    """Raise the threshold to an even share of the budget when few requests are there."""
    enable_chunked_prefill: bool = True
    """Whether a prompt may be prefilled over several steps."""
    enable_prefix_caching: bool = True
    """Whether full blocks are shared and survive in the free list."""
    max_model_len: Positive = 8192
    """Most tokens of one request, prompt and output."""
    policy: Literal["fcfs", "priority"] = "fcfs"
    """vLLM's scheduling policy: sets the defaults of `queue_order` and `victim`."""
    kv_cache_groups: Groups | None = None
    """KV cache groups in vLLM's order, as in ["sliding:128", "full"]; none: one of full attention."""
    prefix_cache_retention_interval: Natural | None = 0
    """Tokens between states that windows and Mamba keep for prefix hits; 0: prompt ends only (vLLM); none: all."""
    disable_hybrid_kv_cache_manager: bool = False
    """Keep every layer's whole context: the groups become one of full attention."""
    scheduler_reserve_full_isl: bool | None = None
    """Admit a request only if all its known tokens fit. None: true, but false under vllm-0.16.0."""
    watermark: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.0
    """Share of all blocks that an admission must leave free."""
    max_num_active_seqs: Positive | None = None
    """Takes the place of `max_num_seqs` as the admission cap; off when none."""
    prefill_schedule_interval: Positive = 1
    """Least number of steps between two that prefill."""

    # --- front door ---
    max_num_queued_reqs: Positive | None = None
    """An arrival that finds this many requests waiting is rejected."""
    max_num_queued_tokens: Positive | None = None
    """An arrival that finds this many prompt tokens waiting is rejected."""

    # --- what a preemption costs ---
    preemption_mode: Literal["recompute", "restart", "swap"] = "recompute"
    """Recompute all tokens (vLLM), decode every output token again, or move blocks to the host."""
    swap_space_blocks: Natural = 0
    """Blocks of the host pool for `preemption_mode = "swap"`."""
    swap_us_per_block: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 0.0
    """Microseconds added to a step per block moved in or out."""

    # --- a policy of one's own ---
    policy_file: FileName | None = None
    """Python file of your own victim_key, queue_key, admit and cap; a path relative to the file that names it."""

    # --- who is preempted ---
    victim: Victim | None = None
    """Which running request is preempted. None: tail under fcfs, priority under priority."""
    boost_after: Natural = 0
    """A request preempted this often is protected; 0 is off."""

    # --- who is admitted ---
    queue_order: QueueOrder | None = None
    """Order of the waiting queue. None: as `policy`."""
    aging_per_s: Pause = 0.1
    """For `queue_order = "aging"`: how much a second of arrival time weighs against one priority level."""
    admission: Literal["greedy", "projected"] = "greedy"
    """Whether expected final sizes must fit as well."""
    projection: Literal["oracle", "max_tokens", "mean"] = "oracle"
    """Expected output length of `admission = "projected"`: the true one, the declared limit, or the mean."""
    overcommit: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 1.0
    """Share of the usable blocks that expected sizes may take."""
    bypass: bool = False
    """Whether requests behind one that does not fit may be admitted, within limits."""
    admission_scan_limit: Positive = 64
    """Most waiting requests looked at in one scan under `bypass`."""
    max_admission_bypasses: Positive = 8
    """How often a waiting request may be passed over under `bypass`."""
    count_restores: bool = True
    """Whether re-admission of a preempted request counts as a bypass."""
    blocked_checks_limit: bool = True
    """Whether a preempted request that does not fit checks its own limit."""
    slot_preempt: bool = False
    """Whether a more urgent request may take the slot of a less urgent one."""
    slot_preempt_preflight: bool = True
    """Whether the candidate must pass every other test before a slot is taken for it."""

    # --- how many run ---
    running_cap: Literal["fixed", "auto", "feedback"] = "fixed"
    """max_num_seqs, the KV-safe limit, or a cap steered by preemptions."""
    feedback_rule: Literal["threshold", "consecutive", "proportional"] = "threshold"
    """How `running_cap = "feedback"` falls."""
    feedback_window: Positive = 100
    """Non-empty steps over which preemptions are counted."""
    feedback_threshold: Pause = 0.1
    """Preemptions per step above which the cap falls."""
    feedback_recovery: Positive = 100
    """Non-empty steps without a preemption after which the cap rises by one."""

    # --- what is refused ---
    backpressure_threshold: Pause = 0.0
    """Preemptions per non-empty step above which arrivals are refused or held; 0 is off."""
    backpressure_window: Positive = 100
    """Non-empty steps over which preemptions are counted."""
    backpressure_action: Literal["reject", "pace"] = "reject"
    """Refuse arrivals, or let one in per completion."""
    unservable: Literal["reject", "spin"] = "reject"
    """What happens to a request that can never fit: named and counted, or vLLM's endless empty steps."""

    # --- livelock ---
    livelock_steps: Positive | None = None
    """Steps without progress that end a run. None: max(10,000, 4 x tokens of unfinished requests)."""


def default_queue_order(policy: str) -> str:
    """The queue order that a policy stands for."""
    return policy


def default_victim(policy: str) -> str:
    """The victim that a policy stands for."""
    return "priority" if policy == "priority" else "tail"


def _fits_unchunked(name: str, chunked: bool, batched: int, scheduled: int | None, max_model_len: int) -> bool:
    return name not in NAMES or chunked or min(batched, scheduled or batched) >= max_model_len


BYPASS = ("admission_scan_limit", "max_admission_bypasses", "count_restores", "blocked_checks_limit")
"""Knobs of `engine.bypass`."""

RULES = (
    Rule(
        ("engine.name", "engine.num_gpu_blocks"),
        lambda name, blocks: name not in NAMES or blocks is None or blocks >= 2,
        "engine.num_gpu_blocks = {1}, but at least 2 was expected: {0} keeps one block for itself (the null block)",
    ),
    Rule(
        (
            "engine.name",
            "engine.enable_chunked_prefill",
            "engine.max_num_batched_tokens",
            "engine.max_num_scheduled_tokens",
            "engine.max_model_len",
        ),
        _fits_unchunked,
        "engine.enable_chunked_prefill = {1} with engine.max_num_batched_tokens = {2} and "
        "engine.max_num_scheduled_tokens = {3}, but without chunks both budgets were expected to be at least "
        "engine.max_model_len = {4}",
    ),
    Rule(
        ("engine.slot_preempt", "engine.queue_order", "engine.policy"),
        lambda slot, order, policy: not slot or (order or default_queue_order(policy)) in ("priority", "aging"),
        'engine.slot_preempt = {0}, but it was expected only with engine.queue_order "priority" or "aging", '
        "not {1} (engine.policy = {2})",
    ),
    Rule(
        ("engine.preemption_mode", "engine.swap_space_blocks"),
        lambda mode, blocks: mode != "swap" or blocks >= 1,
        "engine.swap_space_blocks = {1}, but at least 1 was expected with engine.preemption_mode = {0}",
    ),
    Rule(
        ("engine.admission", "engine.projection", "workload.max_tokens.dist"),
        lambda admission, projection, dist: admission != "projected" or projection != "max_tokens" or dist is not None,
        "engine.projection = {1}, but then workload.max_tokens.dist was expected, so that requests declare a limit",
    ),
    Rule(
        ("engine.queue_order", "engine.aging_per_s"),
        lambda order, aging: order != "aging" or aging > 0,
        "engine.aging_per_s = {1}, but a number above 0 was expected with engine.queue_order = {0}",
    ),
    Rule(
        ("engine.swap_us_per_block", "engine.swap_space_blocks", *ENDS),
        lambda each_us, blocks, *ends: fits(2 * each_us * blocks, *ends),
        overflow("engine.swap_us_per_block = {0} with engine.swap_space_blocks = {1}", 2),
        monotone=True,
    ),
)


def _needs(names: str, need: str, when: Callable[[Any], bool], words: str) -> Effect:
    return Effect(tuple(f"engine.{name}" for name in names.split()), (f"engine.{need}",), when, words)


EFFECTS = (
    _needs("swap_space_blocks swap_us_per_block", "preemption_mode", lambda mode: mode == "swap", "nothing swaps"),
    _needs("projection overcommit", "admission", lambda kind: kind == "projected", "admission is greedy"),
    _needs("slot_preempt_preflight", "slot_preempt", bool, "engine.slot_preempt is off"),
    _needs("aging_per_s", "queue_order", lambda order: order == "aging", "engine.queue_order is not aging"),
    _needs(
        "feedback_rule feedback_window feedback_threshold feedback_recovery",
        "running_cap",
        lambda cap: cap == "feedback",
        "engine.running_cap is not feedback",
    ),
    _needs(
        "backpressure_window backpressure_action", "backpressure_threshold", bool, "engine.backpressure_threshold is 0"
    ),
    Effect(
        tuple(f"engine.{name}" for name in BYPASS),
        ("engine.name", "engine.bypass"),
        lambda name, bypass: bypass or name not in NAMES,
        "engine.bypass is off",
    ),
)

ENGINE = Engine(
    folder="vllm",
    names=NAMES,
    knobs=VllmKnobs,
    own_keys=SPEC_KEYS,
    reads=None,
    rules=(*RULES, *POLICY_RULES, *GROUP_RULES),
    start_rules=START_RULES,
    effects=(*EFFECTS, *GROUP_EFFECTS),
    derived=(
        Derived("engine.scheduler_reserve_full_isl", ("engine.name",), lambda name: name != OLD),
        Derived("engine.queue_order", ("engine.policy",), default_queue_order),
        Derived("engine.victim", ("engine.policy",), default_victim),
    ),
    columns=SPEC_COLUMNS,
    reserved_blocks=NULL_BLOCKS,
    limits=limits,
    is_plain=is_plain_config,
    groups_held=groups_held,
    grouped=tuple(name for name in NAMES if name != OLD),
    server=SERVER,
    policies=POLICIES,
    ends_at_max_model_len=True,
    records_steps=True,
    table_time=True,
    has_sessions=True,
    pauses=True,
    has_averages=True,
    has_flags=True,
    has_prefix_trees=True,
    takes_policies=True,
    live="vllm",
)
