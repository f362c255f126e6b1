"""`fastsim check-policy`: whether a policy of your own is one, what it reads, and what that means."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fastsim.engines.policy_report import Function, PolicyReport


def command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A policy: Python functions, see engine.policy_file.")],
    quick: Annotated[bool, typer.Option("--quick", help="Only read it and try it on made-up states.")] = False,
    fields: Annotated[bool, typer.Option("--fields", help="List what functions can read, too.")] = False,
) -> int:
    """Check a policy file: its Python, its answers, what it reads; that compiled it gives the same; what it costs.

    Exits 1 if a compiled function, or a jump in time, gives another answer than it should.
    """
    from fastsim.cli.tables import wrapped
    from fastsim.engines import engines
    from fastsim.engines.contract import runtime_of

    engine = next(engine for engine in engines() if engine.takes_policies)
    report = runtime_of(engine.folder).policy_report(file, quick=quick)
    names = ", ".join(function.name for function in report.functions)
    typer.echo(wrapped(f"{report.name} is a policy: {names} (digest {report.digest})"))
    for function in report.functions:
        typer.echo("\n" + function_text(function))
    if fields:
        typer.echo("\n" + "\n".join(wrapped(f"{name}: {what}", 4) for name, what in report.fields))
    if not quick:
        typer.echo("\n" + trial_text(report))
    return 1 if report.fault else 0


def function_text(function: "Function") -> str:
    """What a function decides, what it reads, and which jumps in time that leaves."""
    from fastsim.cli.tables import wrapped

    return "\n".join(
        (
            wrapped(f"{function.name} (line {function.line}): {function.what}"),
            wrapped(f"  reads  {', '.join(function.reads) or 'nothing'}", 9),
            wrapped(f"  jumps  {function.jumps}", 9),
        )
    )


def trial_text(report: "PolicyReport") -> str:
    """How it fared, and its time beside that of the built-in rules."""
    from fastsim.cli.tables import wrapped

    if report.fault or report.cost is None:
        return wrapped(str(report.fault))
    cost = report.cost
    tried = f"{report.states:,} states a function, and stepping and jumps on {report.cases} random cases"
    return "\n".join(
        (
            wrapped(f"compiled and plain Python agree on {tried}"),
            wrapped(
                f"time: {cost.own_ms:.2f} ms a run of 300 requests ({cost.own_preemptions:,} preemptions), "
                f"{cost.built_in_ms:.2f} ms under the built-in rules in the same loop "
                f"({cost.built_in_preemptions:,})"
            ),
        )
    )
