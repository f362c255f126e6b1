"""What must hold between the keys of a class of requests, and between classes and the workload's own keys."""

from collections.abc import Iterable, Sequence
from typing import Any

from fastsim.config.classes import ClassArrivalConfig
from fastsim.config.keys import CLASS_KEYS, CLASSES
from fastsim.engines import engine_of
from fastsim.rule import Rule

RATED = ("poisson", "gamma", "constant", "blis_rate")
"""Arrivals that have a rate, which a class can have a share of."""
PREFIX_TREES = "prefixes that extend one another, as conversations do"
MODULATED = ("poisson", "gamma", "constant")


def class_rules(names: Sequence[str], workload_rules: Iterable[Rule]) -> list[Rule]:
    """Rules of a configuration with these classes: those of a workload, said of each class, and a class's own."""
    if not names:
        return []
    known = {f"workload.{key}" for key in CLASS_KEYS}
    common = [rule for rule in workload_rules if known.issuperset(rule.keys)]
    out = list(_TOP)
    for name in names:
        here = f"{CLASSES}.{name}."
        out += [
            Rule(
                tuple(key.replace("workload.", here, 1) for key in rule.keys),
                rule.check,
                rule.sentence.replace("workload.", here),
            )
            for rule in common
        ]
        out += _own(here)
    return out


def _absent(key: str, none: Any) -> Rule:
    return Rule(
        (f"workload.{key}",),
        lambda value: value == none,
        f"workload.{key} = {{0}}, but none was expected with {CLASSES}: a class has its own",
    )


_TOP: tuple[Rule, ...] = (
    _absent("trace", None),
    Rule(
        ("workload.concurrency",),
        lambda clients: clients is None,
        f"workload.concurrency = {{0}}, but none was expected with {CLASSES}: arrivals of a closed loop follow its "
        "completions, and cannot be mixed with others",
    ),
    _absent("sessions.turns", 1),
    Rule(
        ("workload.arrival.kind",),
        lambda kind: kind is None or kind in RATED,
        f"workload.arrival.kind = {{0}}, but one of {', '.join(RATED)} was expected with {CLASSES}, whose shares it "
        "divides (a class may have a kind of its own)",
    ),
)


def _own(here: str) -> list[Rule]:
    arrival = here + "arrival."
    kind = arrival + "kind"
    shape = [name for name in ClassArrivalConfig.model_fields if name not in ("kind", "rate_per_s")]
    out: list[Rule] = [
        Rule(
            (kind,),
            lambda kind: kind != "closed_loop",
            f"{kind} = {{0}}, but arrivals were expected: those of a closed loop follow its completions, and cannot be "
            "mixed with others",
        ),
        Rule(
            (kind, here + "num_requests"),
            lambda kind, count: kind != "all_at_once" or count is not None,
            f"{kind} = {{0}}, but then {here}num_requests was expected: how many arrive at once",
        ),
        Rule(
            (kind, here + "trace", arrival + "rate_per_s"),
            lambda kind, trace, rate: rate is None or (kind in RATED if kind is not None else trace is None),
            f"{arrival}rate_per_s = {{2}}, but then {kind} poisson, gamma or constant was expected, because only these "
            "have a rate",
        ),
    ]
    turns = here + "sessions.turns"
    out.append(
        Rule(
            ("engine.name", turns),
            lambda engine, turns: turns == 1 or engine_of(engine).has_prefix_trees,
            f"{turns} = {{1}}, but 1 was expected: engine.name = {{0}} has no {PREFIX_TREES}",
        )
    )
    for name in shape:
        default = ClassArrivalConfig.model_fields[name].default
        out.append(
            Rule(
                (kind, arrival + name),
                lambda kind, value, default=default: kind is not None or value == default,
                f"{arrival}{name} = {{1}}, but then {kind} was expected too",
            )
        )
    for name, none in (("diurnal_amplitude", 0.0), ("surge_factor", 1.0)):
        out.append(
            Rule(
                (kind, arrival + name),
                lambda kind, value, none=none: value == none or kind in MODULATED,
                f"{arrival}{name} = {{1}}, but then {kind} poisson, gamma or constant was expected, because only these "
                "have a rate",
            )
        )
    return out
