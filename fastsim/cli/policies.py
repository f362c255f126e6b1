"""`fastsim policies`: every policy that a sweep can turn, what it is, where it comes from, and its knobs."""

from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fastsim.engines.declaration import PolicyRow


VERDICTS = ("livelock_steps", "starvation_window_s", "starvation_overtakes", "thrash_threshold")


@cache
def policies() -> "tuple[PolicyRow, ...]":
    """All of them, by what they decide."""
    from fastsim.engines import engines
    from fastsim.engines.declaration import PolicyRow

    each = engines()
    return (
        *(policy for engine in each for policy in engine.own_policies()),
        PolicyRow(
            "verdicts",
            "engine.thrash_threshold=0.1",
            "From when on a run is called livelocked, starved, or thrashing.",
            "fastsim",
            tuple(f"engine.{name}" for name in VERDICTS),
        ),
        PolicyRow(
            "engine",
            "engine.name=vllm-0.16.0",
            "Whose rules hold: two vLLM releases, one with asynchronous scheduling, or another engine.",
            f"vLLM 0.16.0, vLLM 0.33.0; {'; '.join(engine.title for engine in each if engine.table)}",
            ("engine.name",),
        ),
    )


def command(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Only policies whose name contains this.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects.")] = False,
) -> int:
    """List the policies: what each is, where it comes from, how to turn it on, and its knobs."""
    from fastsim.errors import InputError

    found = [policy for policy in policies() if name is None or name.lower() in policy.name.lower()]
    if not found:
        raise InputError(f"no policy contains {name!r}; known are {', '.join(policy.name for policy in policies())}")
    if as_json:
        import json

        typer.echo(json.dumps([policy_object(policy) for policy in found], indent=1))
    elif name is None:
        typer.echo(overview(found))
    else:
        typer.echo("\n\n".join(details(policy) for policy in found))
    return 0


def policy_object(policy: "PolicyRow") -> dict[str, object]:
    """A policy with its knobs' types, defaults and meanings."""
    from fastsim.config import KEYS

    knobs = [
        {"key": knob, "default": KEYS[knob].default, "accepts": KEYS[knob].describe(), "meaning": KEYS[knob].summary}
        for knob in policy.knobs
    ]
    return asdict(policy) | {"knobs": knobs}


def overview(chosen: "list[PolicyRow]") -> str:
    """One row a policy, its cells wrapped."""
    from textwrap import wrap

    widths = (19, 36, 21)
    lines = [_columns(("policy", "what it is", "from"), widths)]
    for policy in chosen:
        knobs = " ".join(knob.rpartition(".")[2] if knob.startswith("engine.") else knob for knob in policy.knobs)
        what = [*wrap(policy.what, widths[1]), *wrap("· " + knobs.replace(" ", ", "), widths[1])]
        cells = [wrap(policy.name, widths[0]), what, wrap(policy.origin, widths[2])]
        height = max(map(len, cells))
        rows = zip(*(cell + [""] * (height - len(cell)) for cell in cells), strict=True)
        lines += ["", *(_columns(row, widths) for row in rows)]
    lines += ["", "· knobs: keys below engine., each an axis of a sweep; `fastsim policies NAME`", "  explains them."]
    return "\n".join(lines)


def details(policy: "PolicyRow") -> str:
    """One policy with what its knobs mean."""
    from fastsim.cli.tables import number, wrapped
    from fastsim.config import KEYS

    lines = [wrapped(f"{policy.name}: {policy.what}"), wrapped(f"  from     {policy.origin}", 11)]
    lines.append(f"  turn on  --set {policy.turn_on}")
    for knob in policy.knobs:
        key = KEYS[knob]
        lines.append(wrapped(f"  {knob} = {number(key.default) if key.default is not None else 'none'}", 4))
        lines.append(wrapped(f"      {key.summary} Accepts {key.describe()}.", 6))
    return "\n".join(lines)


def _columns(cells: "tuple[str, ...]", widths: tuple[int, ...]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
