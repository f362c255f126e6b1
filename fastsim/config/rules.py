"""What must hold between keys, and which keys are idle: the workload's and the run's own, and every engine's.

Ranges of single keys are not here but in the models, rules between an engine's keys in its `knobs.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fastsim.config.deployment import HARDWARE, VERSION
from fastsim.config.derived import default_arrival, deployed
from fastsim.config.fleet import BLIND_ROUTERS
from fastsim.config.models import Config
from fastsim.config.rules_classes import PREFIX_TREES, class_rules
from fastsim.engines import engine_of, engines
from fastsim.engines.clock import BEYOND_LINEAR, LINEAR_RULES, LONGEST_RUN_US, TABLE_RULES
from fastsim.engines.declaration import DEFAULT_ENGINE, Engine
from fastsim.engines.vllm.knobs import VllmKnobs
from fastsim.errors import InputError
from fastsim.model import shown
from fastsim.rule import Effect as Effect
from fastsim.rule import Rule as Rule
from fastsim.rule import absent

MOST_REQUESTS = 10**8
"""Of a trace."""


def _refusals(engine: Engine) -> Iterator[Rule]:
    """One rule for every knob of vLLM that an engine does not read: it must stand at its default."""
    if engine.reads is None:
        return
    for name, field in VllmKnobs.model_fields.items():
        if name in engine.reads:
            continue
        other = engine.instead.get(name)
        hint = f" ({other} is its own)" if other else ""
        yield Rule(
            ("engine.name", f"engine.{name}"),
            lambda name, value, default=field.default: name not in engine.names or value == default,
            f"engine.{name} = {{1}}, but it was expected only with vLLM's engines, and {shown(field.default)} with "
            f"engine.name = {{0}}, which has no such knob{hint}",
        )


ENGINE_RULES = (
    Rule(
        ("engine.num_gpu_blocks",),
        lambda blocks: blocks is not None,
        "engine.num_gpu_blocks is missing, but the number of KV blocks was expected (vLLM prints it at start-up, "
        "and hardware.model with hardware.gpu give an estimate)",
    ),
    *(rule for engine in engines() for rule in (*engine.rules, *_refusals(engine))),
    *LINEAR_RULES,
    *TABLE_RULES,
    *(
        absent(name, f"latency.{key}", nothing, what)
        for engine in engines()
        if not engine.table_time
        for name in engine.names
        for key, (nothing, what) in BEYOND_LINEAR.items()
    ),
    Rule(
        ("engine.name", "workload.sessions.turns"),
        lambda name, turns: turns == 1 or engine_of(name).has_prefix_trees,
        f"workload.sessions.turns = {{1}}, but 1 was expected: engine.name = {{0}} has no {PREFIX_TREES}",
    ),
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
        ("workload.arrival.kind", "workload.trace", "workload.concurrency", "workload.arrival.ramp_up_s"),
        lambda kind, trace, clients, ramp: (
            ramp == 0 or (kind or default_arrival(trace, clients)) in ("poisson", "gamma", "constant", "closed_loop")
        ),
        "workload.arrival.ramp_up_s = {3}, but then workload.arrival.kind poisson, gamma, constant or closed_loop was "
        "expected: the others have no rate that could grow",
    ),
    Rule(
        ("workload.arrival.ramp_up_s", "workload.arrival.diurnal_amplitude", "workload.arrival.surge_factor"),
        lambda ramp, amplitude, surge: ramp == 0 or (amplitude == 0 and surge == 1),
        "workload.arrival.ramp_up_s = {0} with diurnal_amplitude = {1} and surge_factor = {2}, but a ramp alone, or "
        "swings and surges, were expected",
    ),
    Rule(
        ("workload.think.mean_s", "workload.concurrency"),
        lambda mean_s, clients: mean_s == 0 or clients is not None,
        "workload.think.mean_s = {0}, but then workload.concurrency was expected: only clients of a closed loop think",
    ),
)


def _pauses_fit(
    pause_s: float, clients: int | None, count: int | None, trace: str | None, horizon_s: float | None
) -> bool:
    """Whether the pauses of rejected clients, which follow one another, leave the clock far from its end."""
    requests = count or (300 if trace is None else MOST_REQUESTS)
    return clients is None or horizon_s is not None or pause_s * 1e6 * requests <= LONGEST_RUN_US


RUN_RULES = (
    Rule(
        ("metrics.warmup_s", "run.horizon_s"),
        lambda warmup, horizon: horizon is None or warmup < horizon,
        "metrics.warmup_s = {0}, but less than run.horizon_s = {1} was expected",
    ),
    Rule(
        (
            "workload.retry_after_s",
            "workload.concurrency",
            "workload.num_requests",
            "workload.trace",
            "run.horizon_s",
        ),
        _pauses_fit,
        "workload.retry_after_s = {0}, but with workload.num_requests = {2} and without run.horizon_s less was "
        f"expected: the pauses of rejected clients could add up to more than {LONGEST_RUN_US:.3g} us, and the clock "
        "overflow",
        monotone=True,
    ),
)

FLEET_RULES = (
    Rule(
        ("fleet.replicas", "workload.concurrency"),
        lambda replicas, clients: replicas == 1 or clients is None,
        "workload.concurrency = {1}, but none was expected with fleet.replicas = {0}: a fleet takes arrivals that do "
        "not wait for answers",
    ),
    *(
        Rule(
            ("fleet.replicas", "fleet.router", key),
            lambda replicas, router, value, holds=holds: replicas == 1 or router in BLIND_ROUTERS or holds(value),
            f"fleet.router = {{1}}, but {' or '.join(BLIND_ROUTERS)} was expected with {key} = {{2}}: {why}",
        )
        for key, holds, why in (
            ("engine.name", lambda name: engine_of(name).pauses, "its replicas cannot be looked at while they run"),
            ("engine.kv_cache_groups", lambda groups: groups is None, "with groups they cannot be looked at"),
            ("spec.method", lambda method: method is None, "with drafts they cannot be looked at"),
            ("engine.preemption_mode", lambda mode: mode != "restart", "whose gaps are counted when all is done"),
            ("engine.policy_file", lambda path: path is None, "its functions know of one engine"),
        )
    ),
)

_NAMED = ("hardware.model", "hardware.gpu")
HARDWARE_RULES = (
    Rule(
        _NAMED,
        lambda model, gpu: (model is None) == (gpu is None),
        "hardware.model = {0} with hardware.gpu = {1}, but both or neither were expected",
    ),
    *(
        Rule(
            (key, "hardware.model"),
            lambda value, model: value is None or model is not None,
            f"{key} = {{0}}, but hardware.model and hardware.gpu were expected along with it",
        )
        for key in HARDWARE
        if key not in (*_NAMED, VERSION)
    ),
    Rule(
        ("engine.name", VERSION),
        lambda name, version: version is None or name in engine_of(DEFAULT_ENGINE).names,
        f"{VERSION} = {{1}} with engine.name = {{0}}, but one of them was expected: the other engines are not vLLM",
    ),
    Rule(
        ("latency.preset", "hardware.model"),
        lambda preset, model: preset is None or model is None,
        "latency.preset = {0} with hardware.model = {1}, but one of them was expected: both give step times",
    ),
)

RULES: tuple[Rule, ...] = (*HARDWARE_RULES, *ENGINE_RULES, *WORKLOAD_RULES, *RUN_RULES, *FLEET_RULES)

START_RULES: tuple[Rule, ...] = tuple(rule for engine in engines() for rule in engine.start_rules)
"""What servers refuse at their start. A grid may hold such configurations: they become rows of status `refused`."""
START_KEYS = tuple(dict.fromkeys(key for rule in START_RULES for key in rule.keys))


def start_fault(value_of: Callable[[str], Any]) -> str | None:
    """Why no server starts with a configuration, whose values by key these are; None: one does."""
    faults = (rule.fault([value_of(key) for key in rule.keys]) for rule in START_RULES)
    return next((fault for fault in faults if fault), None)


def rules_with_classes(names: Sequence[str], rules: Sequence[Rule] = RULES) -> list[Rule]:
    """The rules of a configuration with classes of requests of these names."""
    return class_rules(names, rules, WORKLOAD_RULES)


def check_rules(config: Config, source: str = "configuration", rules: Sequence[Rule] = RULES) -> None:
    """Refuse a configuration whose keys contradict each other; rules of the classes that it has are among them.

    Raises
    ------
    InputError
        The first rule that does not hold, as a sentence; with all rules, also what a server refuses at its start.
    """
    config = deployed(config)
    for rule in rules_with_classes(config.workload.classes.names, rules):
        if fault := rule.fault([config.value(key) for key in rule.keys]):
            raise InputError(f"{source}: {fault}")
    if rules is RULES and (fault := start_fault(config.value)):
        raise InputError(f"{source}: {fault}")


def _arrival(name: str, kinds: tuple[str, ...]) -> Effect:
    return Effect(
        (f"workload.arrival.{name}",),
        ("workload.arrival.kind", "workload.trace", "workload.concurrency"),
        lambda kind, trace, clients: (kind or default_arrival(trace, clients)) in kinds,
        f"it matters only with workload.arrival.kind {' or '.join(kinds)}",
    )


def _own(engine: Engine) -> Effect:
    """An engine's own keys matter only under it."""
    words = f"engine.name is not {' or '.join(engine.names)}"
    return Effect(engine.keys, ("engine.name",), lambda name: name in engine.names, words)


EFFECTS: tuple[Effect, ...] = (
    *(effect for engine in engines() for effect in (*([_own(engine)] if engine.keys else ()), *engine.effects)),
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
    Effect(("fleet.router",), ("fleet.replicas",), lambda replicas: replicas > 1, "fleet.replicas is 1"),
    Effect(
        ("fleet.refresh_ms",),
        ("fleet.replicas", "fleet.router"),
        lambda replicas, router: replicas > 1 and router == "vllm_dp",
        "it matters only with fleet.router vllm_dp and several replicas",
    ),
    _arrival("rate_per_s", ("poisson", "gamma", "constant", "blis_rate")),
    _arrival("cv", ("gamma",)),
    _arrival("spike_requests", ("spikes",)),
    _arrival("spike_interval_s", ("spikes",)),
)
