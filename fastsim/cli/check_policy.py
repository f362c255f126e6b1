"""`fastsim check-policy`: whether a policy of your own is one, what it reads, and what that means."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fastsim.engines.vllm.policy_text.source import PolicySource

STATES, CASES = 10_000, 60
"""Made-up states on which compiled functions and plain Python must agree; random cases on which jumps and stepping."""


def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A policy: Python functions, see engine.policy_file.")],
    quick: Annotated[bool, typer.Option("--quick", help="Only read it and try it on made-up states.")] = False,
    fields: Annotated[bool, typer.Option("--fields", help="List what functions can read, too.")] = False,
) -> int:
    """Check a policy file: its Python, its answers, what it reads; that compiled it gives the same; what it costs.

    Exits 1 if a compiled function, or a jump in time, gives another answer than it should.
    """
    from fastsim.cli.tables import wrapped
    from fastsim.engines.vllm.policy_text.source import TRIES, load_policy

    source = load_policy(file)
    hooks = ", ".join(source.reads)
    typer.echo(wrapped(f"{source.name}: {hooks}; each answers on {TRIES} made-up states (digest {source.digest})"))
    for hook in source.reads:
        typer.echo("\n" + hook_text(source, hook))
    if fields:
        typer.echo("\n" + fields_text())
    if quick:
        return 0
    fault = compiled_fault(file, source)
    if fault:
        typer.echo(f"\n{fault}")
        return 1
    typer.echo(
        f"\ncompiled and plain Python agree on {STATES:,} states a function; stepping and jumps agree on {CASES} "
        "random cases"
    )
    typer.echo(cost_text(file))
    return 0


def compiled_fault(file: str, source: "PolicySource") -> str | None:
    """What is wrong with the compiled functions, in a sentence."""
    from fastsim.analysis.check import policy_trial
    from fastsim.engines.vllm.policy_file import trial

    for hook in source.reads:
        if found := trial.first_difference(source, hook, STATES):
            return f"{source.where(hook)}: {found}"
    if found := policy_trial.first_difference(file, set(source.reads), CASES):
        return f"{source.name}: {found}"
    return None


def hook_text(source: "PolicySource", hook: str) -> str:
    """What a function decides, what it reads, and which jumps in time that leaves."""
    from fastsim.cli.tables import wrapped
    from fastsim.engines.vllm.policy_text.fields import FIELDS, SIGNATURES

    read = [
        f"{owner}.{name}"
        for owner, names in zip(FIELDS, source.reads[hook], strict=True)
        for name in FIELDS[owner]
        if name in names
    ]
    lines = [
        wrapped(f"{hook} (line {source.lines[hook]}): {SIGNATURES[hook].what}"),
        wrapped(f"  reads  {', '.join(read) or 'nothing'}", 9),
        wrapped(f"  jumps  {jumps_text(source, hook)}", 9),
    ]
    return "\n".join(lines)


def jumps_text(source: "PolicySource", hook: str) -> str:
    """What a function's fields mean for the simulator's jumps in time."""
    from fastsim.engines.vllm.codes import Reads
    from fastsim.engines.vllm.policy_file.records import queue_moves, reads_of
    from fastsim.engines.vllm.policy_text.fields import QUEUE, VICTIM

    if hook == VICTIM:
        return "all stay: it is asked only in steps that run short of blocks"
    if hook == QUEUE:
        if source.queue_changes:
            return "keys are computed anew at every scan: none while two wait and the first of them cannot start"
        if queue_moves(source):
            return "end at arrivals, as the key depends on the moment"
        return "all stay: the key follows from the request"
    return {
        Reads.STEADY: "all stay: no jump changes the answer",
        Reads.ARRIVALS: "end at arrivals",
        Reads.STEPS: "go on, but it is asked for each of their steps, and they end at arrivals",
        Reads.HITS: "none while it refuses: prefix hits shrink as blocks are taken; without prefix caching as above",
    }[reads_of(source, hook, caching=True)]


def fields_text() -> str:
    """What functions can read."""
    from fastsim.cli.tables import wrapped
    from fastsim.engines.vllm.policy_text.fields import FIELDS

    lines = []
    for owner, fields in FIELDS.items():
        for name, field in fields.items():
            lines.append(wrapped(f"{owner}.{name}: {field.what} ({', '.join(field.hooks)})", 4))
    return "\n".join(lines)


def cost_text(file: str) -> str:
    """Its time beside that of vLLM's own rules."""
    from fastsim.analysis.check.policy_trial import cost_of
    from fastsim.cli.tables import wrapped

    cost = cost_of(file)
    return wrapped(
        f"time: {cost.own_ms:.2f} ms a run of 300 requests ({cost.own_preemptions:,} preemptions), "
        f"{cost.built_in_ms:.2f} ms under vLLM's own rules in the same loop ({cost.built_in_preemptions:,})"
    )
