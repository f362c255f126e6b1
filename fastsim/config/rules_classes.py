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


_KNOWN = frozenset(f"workload.{key}" for key in CLASS_KEYS)
INHERITED = {"prompt": "prompt.dist", "output": "output.dist", "max_tokens": "max_tokens.dist"}
"""Tables that a class takes from the workload where it leaves this key of its own open."""


def class_rules(names: Sequence[str], rules: Iterable[Rule], workload_rules: Sequence[Rule]) -> list[Rule]:
    """Rules of a configuration with these classes.

    Parameters
    ----------
    names
        Of the classes; none: `rules` as they are.
    rules
        Those of a configuration without classes. What an engine demands of a table that classes have too is demanded
        of what each class has.
    workload_rules
        Those of them that are a workload's own: they are said of each class as well.
    """
    if not names:
        return list(rules)
    out: list[Rule] = []
    for rule in rules:
        own = rule not in workload_rules and any(_inherited(key) for key in rule.keys)
        out += [_of_class(rule, f"{CLASSES}.{name}.") for name in names] if own else [rule]
    common = [rule for rule in workload_rules if _KNOWN.issuperset(rule.keys)]
    out += _TOP
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


def _inherited(key: str) -> str | None:
    """The table of a key of the workload that a class takes from it where it says nothing."""
    table = key.removeprefix("workload.").partition(".")[0]
    return table if key.startswith("workload.") and table in INHERITED else None


def _of_class(rule: Rule, here: str) -> Rule:
    """A rule about the workload's tables, said of what a class has: its own, or the workload's."""
    inherited = [table for key in rule.keys if (table := _inherited(key)) is not None]
    deciding = [f"{here}{INHERITED[table]}" for table in inherited]
    places = [k for k, key in enumerate(rule.keys) if _inherited(key) is not None]
    own = [here + rule.keys[k].removeprefix("workload.") for k in places]
    count = len(rule.keys)

    def check(*values: Any) -> bool:
        seen, dists, of_class = list(values[:count]), values[count : count + len(places)], values[count + len(places) :]
        for place, dist, value in zip(places, dists, of_class, strict=True):
            seen[place] = value if dist is not None else seen[place]
        return rule.check(*seen)

    sentence = rule.sentence
    for k, name in zip(places, own, strict=True):
        sentence = sentence.replace(rule.keys[k], name)
    return Rule((*rule.keys, *deciding, *own), check, sentence)


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
    for name, none in (("diurnal_amplitude", 0.0), ("surge_factor", 1.0), ("ramp_up_s", 0.0)):
        out.append(
            Rule(
                (kind, arrival + name),
                lambda kind, value, none=none: value == none or kind in MODULATED,
                f"{arrival}{name} = {{1}}, but then {kind} poisson, gamma or constant was expected, because only these "
                "have a rate",
            )
        )
    return out
