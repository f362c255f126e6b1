"""What must hold between keys.

A rule names its keys, so that a sweep checks it once for every combination of the axes involved, however large the
grid is. Ranges of single keys are not here but in the models.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastsim.config.derived import default_arrival, default_queue_order
from fastsim.config.model import shown
from fastsim.config.models import Config
from fastsim.config.rules_classes import class_rules
from fastsim.config.rules_clock import CLOCK_RULES
from fastsim.config.rules_engines import FAMILY_EFFECTS, FAMILY_RULES
from fastsim.config.rules_start import START_RULES as START_PARTS
from fastsim.errors import InputError

VLLM_ENGINES = ("vllm-0.33.0", "vllm-0.16.0", "vllm-0.33.0-async")


@dataclass(frozen=True)
class Rule:
    """`check(*values of keys)` must be true; `sentence` says so otherwise, with the values by position.

    `monotone`: for each key a larger number is always better, or always worse, so that a sweep need only look at the
    ends of its axes.
    """

    keys: tuple[str, ...]
    check: Callable[..., bool]
    sentence: str
    monotone: bool = False

    def fault(self, values: Sequence[Any]) -> str | None:
        """The sentence, when the values break the rule."""
        return None if self.check(*values) else self.sentence.format(*map(shown, values))


def _fits_unchunked(chunked: bool, batched: int, scheduled: int | None, max_model_len: int) -> bool:
    return chunked or min(batched, scheduled or batched) >= max_model_len


ENGINE_RULES = (
    Rule(
        ("engine.num_gpu_blocks",),
        lambda blocks: blocks is not None,
        "engine.num_gpu_blocks is missing, but the number of KV blocks was expected (vLLM prints it at start-up, "
        "and --model with --gpu estimate it)",
    ),
    Rule(
        ("engine.name", "engine.num_gpu_blocks"),
        lambda name, blocks: name not in VLLM_ENGINES or blocks is None or blocks >= 2,
        "engine.num_gpu_blocks = {1}, but at least 2 was expected: {0} keeps one block for itself (the null block)",
    ),
    Rule(
        (
            "engine.enable_chunked_prefill",
            "engine.max_num_batched_tokens",
            "engine.max_num_scheduled_tokens",
            "engine.max_model_len",
        ),
        _fits_unchunked,
        "engine.enable_chunked_prefill = {0} with engine.max_num_batched_tokens = {1} and "
        "engine.max_num_scheduled_tokens = {2}, but without chunks both budgets were expected to be at least "
        "engine.max_model_len = {3}",
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
    *(Rule(*parts) for parts in FAMILY_RULES),
)

LENGTH_NEEDS = {
    "constant": ("mean",),
    "uniform": ("min", "max"),
    "normal": ("mean", "stdev"),
    "lognormal": ("mean", "stdev"),
    "empirical": ("values",),
}
"""What each distribution of lengths cannot do without."""


def _needs(dist: str) -> Callable[..., bool]:
    return lambda given, value: given != dist or value is not None


def _length_rules(section: str) -> list[Rule]:
    prefix = f"workload.{section}"
    rules = [
        Rule(
            (f"{prefix}.dist", f"{prefix}.{parameter}"),
            _needs(dist),
            f"{prefix}.{parameter} is missing, but it was expected with {prefix}.dist = {{0}}",
        )
        for dist, parameters in LENGTH_NEEDS.items()
        for parameter in parameters
    ]
    parameters = ("mean", "stdev", "min", "max", "values", "weights")
    rules += [
        Rule(
            (f"{prefix}.dist", f"{prefix}.{parameter}"),
            lambda dist, value: dist is not None or value is None,
            f"{prefix}.{parameter} = {{1}}, but then {prefix}.dist was expected too, for example {prefix}.dist = "
            + {"mean": '"constant"', "stdev": '"normal"', "values": '"empirical"', "weights": '"empirical"'}.get(
                parameter, '"uniform"'
            ),
        )
        for parameter in parameters
    ]
    rules += [
        Rule(
            (f"{prefix}.min", f"{prefix}.max"),
            lambda low, high: low is None or high is None or low <= high,
            f"{prefix}.min = {{0}}, but at most {prefix}.max = {{1}} was expected",
        ),
        Rule(
            (f"{prefix}.values", f"{prefix}.weights"),
            lambda values, weights: weights is None or (len(values or ()) == len(weights) and sum(weights) > 0),
            f"{prefix}.weights = {{1}}, but one weight for each of {prefix}.values = {{0}}, not all 0, was expected",
        ),
    ]
    if section != "max_tokens":
        rules.append(
            Rule(
                (f"{prefix}.dist", "workload.trace"),
                lambda dist, trace: dist != "trace" or trace is not None,
                f"{prefix}.dist = {{0}}, but then workload.trace was expected to name a file",
            )
        )
    return rules


WORKLOAD_RULES = (
    Rule(
        ("workload.arrival.kind", "workload.trace"),
        lambda kind, trace: kind != "trace" or trace is not None,
        "workload.arrival.kind = {0}, but then workload.trace was expected to name a file",
    ),
    Rule(
        ("workload.arrival.kind", "workload.concurrency"),
        lambda kind, clients: kind != "closed_loop" or clients is not None,
        "workload.arrival.kind = {0}, but then workload.concurrency was expected: the number of clients",
    ),
    *(
        Rule(
            (f"workload.{name}", "workload.trace"),
            lambda value, trace, default=default: value == default or trace is not None,
            f"workload.{name} = {{0}}, but then workload.trace was expected to name a file",
        )
        for name, default in (
            ("format", None),
            ("window_start_s", 0.0),
            ("window_end_s", None),
            ("sample_share", 1.0),
        )
    ),
    Rule(
        ("workload.window_start_s", "workload.window_end_s"),
        lambda start, end: end is None or start < end,
        "workload.window_start_s = {0}, but less than workload.window_end_s = {1} was expected",
    ),
    *_length_rules("prompt"),
    *_length_rules("output"),
    *_length_rules("max_tokens"),
    Rule(
        ("workload.priority.values", "workload.priority.shares"),
        lambda values, shares: shares is None or (len(values or ()) == len(shares) and sum(shares) > 0),
        "workload.priority.shares = {1}, but one share for each of workload.priority.values = {0}, not all 0, "
        "was expected",
    ),
    Rule(
        ("workload.prefix.groups", "workload.prefix.tokens"),
        lambda groups, tokens: not groups or tokens >= 1,
        "workload.prefix.tokens = {1}, but at least 1 was expected with workload.prefix.groups = {0}",
    ),
    *(
        Rule(
            ("workload.sessions.turns", f"workload.{name}"),
            lambda turns, value: turns == 1 or not value,
            f"workload.{name} = {{1}}, but none was expected with workload.sessions.turns = {{0}}: conversations make "
            "their own",
        )
        for name in ("trace", "concurrency", "prefix.groups")
    ),
    *(
        Rule(
            ("workload.arrival.kind", "workload.trace", "workload.concurrency", f"workload.arrival.{name}"),
            lambda kind, trace, clients, value, none=none: (
                value == none or (kind or default_arrival(trace, clients)) in ("poisson", "gamma", "constant")
            ),
            f"workload.arrival.{name} = {{3}}, but then workload.arrival.kind poisson, gamma or constant was expected, "
            "because only these have a rate",
        )
        for name, none in (("diurnal_amplitude", 0.0), ("surge_factor", 1.0))
    ),
    Rule(
        ("workload.think.mean_s", "workload.concurrency"),
        lambda mean_s, clients: mean_s == 0 or clients is not None,
        "workload.think.mean_s = {0}, but then workload.concurrency was expected: only clients of a closed loop think",
    ),
)

RUN_RULES = (
    Rule(
        ("metrics.warmup_s", "run.horizon_s"),
        lambda warmup, horizon: horizon is None or warmup < horizon,
        "metrics.warmup_s = {0}, but less than run.horizon_s = {1} was expected",
    ),
    *(Rule(*parts, monotone=True) for parts in CLOCK_RULES),
)

RULES: tuple[Rule, ...] = (*ENGINE_RULES, *WORKLOAD_RULES, *RUN_RULES)

START_RULES: tuple[Rule, ...] = tuple(Rule(*parts) for parts in START_PARTS)
"""What vLLM refuses at its start. A grid may hold such configurations: they become rows of status `refused`."""
START_KEYS = tuple(dict.fromkeys(key for rule in START_RULES for key in rule.keys))


def start_fault(value_of: Callable[[str], Any]) -> str | None:
    """Why no server starts with a configuration, whose values by key these are; None: one does."""
    faults = (rule.fault([value_of(key) for key in rule.keys]) for rule in START_RULES)
    return next((fault for fault in faults if fault), None)


def rules_of_classes(names: Sequence[str]) -> list[Rule]:
    """The rules of classes of requests with these names."""
    return [Rule(*parts) for parts in class_rules(names, WORKLOAD_RULES)]


def check_rules(config: Config, source: str = "configuration", rules: Sequence[Rule] = RULES) -> None:
    """Refuse a configuration whose keys contradict each other; rules of the classes that it has come on top.

    Raises
    ------
    InputError
            The first rule that does not hold, as a sentence; with all rules, also what vLLM refuses at its start.
    """
    for rule in (*rules, *rules_of_classes(config.workload.classes.names)):
        if fault := rule.fault([config.value(key) for key in rule.keys]):
            raise InputError(f"{source}: {fault}")
    if rules is RULES and (fault := start_fault(config.value)):
        raise InputError(f"{source}: {fault}")


@dataclass(frozen=True)
class Effect:
    """The `keys` change something only where `when(*values of needs)` is true: a sweep warns of idle axes."""

    keys: tuple[str, ...]
    needs: tuple[str, ...]
    when: Callable[..., bool]
    sentence: str


def _engine(names: str, need: str, when: Callable[[Any], bool], words: str) -> Effect:
    return Effect(tuple(f"engine.{name}" for name in names.split()), (f"engine.{need}",), when, words)


def _arrival(name: str, kinds: tuple[str, ...]) -> Effect:
    return Effect(
        (f"workload.arrival.{name}",),
        ("workload.arrival.kind", "workload.trace", "workload.concurrency"),
        lambda kind, trace, clients: (kind or default_arrival(trace, clients)) in kinds,
        f"it matters only with workload.arrival.kind {' or '.join(kinds)}",
    )


EFFECTS: tuple[Effect, ...] = (
    _engine("swap_space_blocks swap_us_per_block", "preemption_mode", lambda mode: mode == "swap", "nothing swaps"),
    _engine("projection overcommit", "admission", lambda kind: kind == "projected", "admission is greedy"),
    _engine("slot_preempt_preflight", "slot_preempt", bool, "engine.slot_preempt is off"),
    _engine("aging_per_s", "queue_order", lambda order: order == "aging", "engine.queue_order is not aging"),
    _engine(
        "feedback_rule feedback_window feedback_threshold feedback_recovery",
        "running_cap",
        lambda cap: cap == "feedback",
        "engine.running_cap is not feedback",
    ),
    _engine(
        "backpressure_window backpressure_action", "backpressure_threshold", bool, "engine.backpressure_threshold is 0"
    ),
    Effect(
        ("workload.arrival.diurnal_period_s",),
        ("workload.arrival.diurnal_amplitude",),
        bool,
        "workload.arrival.diurnal_amplitude is 0",
    ),
    Effect(
        ("workload.arrival.surge_start_s", "workload.arrival.surge_duration_s", "workload.arrival.surge_every_s"),
        ("workload.arrival.surge_factor",),
        lambda factor: factor > 1,
        "workload.arrival.surge_factor is 1",
    ),
    Effect(
        ("workload.sessions.gap_s", "workload.sessions.max_prompt_tokens"),
        ("workload.sessions.turns",),
        lambda turns: turns > 1,
        "workload.sessions.turns is 1",
    ),
    _arrival("rate_per_s", ("poisson", "gamma", "constant", "blis_rate")),
    _arrival("cv", ("gamma",)),
    _arrival("spike_requests", ("spikes",)),
    _arrival("spike_interval_s", ("spikes",)),
    *(Effect(*parts) for parts in FAMILY_EFFECTS),
)
