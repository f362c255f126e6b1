"""Random policies: functions over random fields, in the Python that policies are made of, and random cases for them."""

import random
from pathlib import Path
from typing import Any

from fastsim.engines.vllm.policy_text.fields import ADMIT, CAP, HOOKS, QUEUE, REQUEST, SIGNATURES, VICTIM, VIEW
from tests.reference.cases import random_case
from tests.reference.requests import Request


def random_policy(rng: random.Random) -> str:
    """The text of a policy of one to four hooks that never fails."""
    hooks = [hook for hook in HOOKS if rng.random() < 0.5] or [rng.choice(HOOKS)]
    lines = ["import math", "", f"WEIGHT = {rng.choice((1, 3, 0.5, -2))}"]
    if VICTIM in hooks and rng.random() < 0.4:
        lines += [f'victim_ties = "{rng.choice(("first", "last"))}"']
    if QUEUE in hooks and rng.random() < 0.3:
        lines += ["queue_changes = True"]
    for hook in hooks:
        lines += ["", "", *_function(rng, hook)]
    return "\n".join(lines) + "\n"


def _function(rng: random.Random, hook: str) -> list[str]:
    head = f"def {hook}({', '.join(SIGNATURES[hook].parameters)}):"
    fields = _fields(rng, hook)
    body = []
    if rng.random() < 0.3:
        body += [f"    if {_condition(rng, fields)}:", f"        return {_answer(rng, hook, fields)}"]
    if rng.random() < 0.2:
        body += ["    total = 0", "    for k in range(3):", f"        total += k * {_number(rng, fields)}"]
        fields = [*fields, "total"]
    return [head, *body, f"    return {_answer(rng, hook, fields)}"]


def _fields(rng: random.Random, hook: str) -> list[str]:
    """A few of the fields that a hook can read: few, so that jumps of every kind are allowed by some."""
    view = [f"view.{name}" for name, field in VIEW.items() if hook in field.hooks]
    request = [f"request.{name}" for name, field in REQUEST.items() if hook in field.hooks]
    chosen = rng.sample(view, rng.randint(0, 2)) + rng.sample(request, min(len(request), rng.randint(0, 3)))
    return chosen or [rng.choice(view + request)]


def _number(rng: random.Random, fields: list[str], depth: int = 0) -> str:
    if depth == 2 or rng.random() < 0.35:
        return rng.choice((*fields, *fields, str(rng.randint(0, 9)), "WEIGHT", "0.25"))
    a, b = _number(rng, fields, depth + 1), _number(rng, fields, depth + 1)
    form = rng.choice(
        (
            "({a} + {b})",
            "({a} - {b})",
            "({a} + {b} / 7)",
            "({a} // (1 + abs({b})))",
            "({a} % (3 + abs({b})))",
            "min({a}, {b})",
            "max({a}, {b}, 2)",
            "-{a}",
            "({a} if {b} > {a} else 5)",
            "math.sqrt(abs({a}))",
            "math.floor({a} / 3)",
            "int({a} * 0.3)",
            "round({a} / 4)",
            "math.log1p(abs({a}))",
        )
    )
    return form.format(a=a, b=b)


def _condition(rng: random.Random, fields: list[str]) -> str:
    a, b = _number(rng, fields), _number(rng, fields)
    condition = f"{a} {rng.choice(('<', '<=', '>', '>=', '==', '!='))} {b}"
    return (
        f"{condition} {rng.choice(('and', 'or'))} not {_number(rng, fields, 1)} > 3"
        if rng.random() < 0.2
        else condition
    )


def _answer(rng: random.Random, hook: str, fields: list[str]) -> str:
    if hook == ADMIT:
        return rng.choice(
            (_condition(rng, fields), f"{rng.choice(fields)} % {rng.randint(2, 5)} != 0", f"{_number(rng, fields)} > 4")
        )
    if hook == CAP:
        return rng.choice(
            (
                f"1 + {_number(rng, fields)} % {rng.randint(2, 6)}",
                f"view.running + ({_condition(rng, fields)})",
                "view.running + (view.free_blocks > 2)",
                f"{_number(rng, fields)}",
            )
        )
    return _number(rng, fields)


def policy_case(seed: int, folder: Path, *, family: str | None = None) -> tuple[dict[str, Any], list[Request]]:
    """A case with a policy of its own, whose file is written to the folder."""
    rng = random.Random(f"policy {seed}")
    path = folder / f"policy_{seed}.py"
    path.write_text(random_policy(rng))
    text = path.read_text()
    chosen = family or ("vllm", "policies", "async", "async-policies")[seed % 4]
    case, requests = random_case(rng, family=chosen)
    case |= {"policy_file": str(path), "slot_preempt": False}
    if f"def {VICTIM}" in text:
        case["victim"] = None
    if f"def {QUEUE}" in text:
        case["queue_order"] = None
        if "queue_changes" in text:
            case["unservable"] = "reject"
    if rng.random() < 0.5:  # crowded: many arrive at once, and take each other's blocks
        case |= {
            "max_num_seqs": 256,
            "max_num_active_seqs": None,
            "scheduler_reserve_full_isl": False,
            "watermark": 0.0,
        }
    return case, requests
