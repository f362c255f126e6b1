"""`fastsim compare`: what an axis changes, by paired differences with 95 % intervals."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastsim.cli import options
from fastsim.cli.given import takes_hardware

if TYPE_CHECKING:
    import polars as pl


@takes_hardware
def command(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="DIR | SPEC.toml...", help="A sweep's folder; or a spec (see --engines), or several."),
    ],
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="AXIS", help="The axis whose values are compared.", show_default=False),
    ] = None,
    other: Annotated[
        str | None,
        typer.Option("--with", metavar="AXIS", help="Does what --by changes depend on this axis?", show_default=False),
    ] = None,
    aims: Annotated[
        str | None,
        typer.Option(
            "--pareto",
            metavar="M1,M2",
            help="The settings that none beats in both metrics; 'least M' or 'most M' says which way.",
            show_default=False,
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="M",
            help="A result column; give several. `fastsim columns` lists them.",
            show_default="throughput, TTFT, TPOT, E2E, preemptions, recomputed share",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="VALUE", help="What is compared with.", show_default="the first value"),
    ] = None,
    other_baseline: Annotated[
        str | None,
        typer.Option("--with-baseline", metavar="VALUE", help="The same for --with.", show_default="the first value"),
    ] = None,
    for_each: Annotated[
        list[str] | None,
        typer.Option("--for-each", metavar="AXIS", help="Compare apart for each value.", show_default=False),
    ] = None,
    gpu_hour_price: Annotated[
        float | None,
        typer.Option(
            "--gpu-hour-price",
            metavar="PRICE",
            help="Adds the metric cost_per_million_output_tokens.",
            show_default=False,
        ),
    ] = None,
    gpus: Annotated[
        int,
        typer.Option(
            "--gpus", metavar="N", parser=options.integer, help="GPUs an engine runs on (tensor parallel size)."
        ),
    ] = 1,
    engines: Annotated[
        str | None,
        typer.Option(
            "--engines", metavar="A,B", help="Run the spec under each: vllm,sglang. The same requests and step times."
        ),
    ] = None,
    *,
    settings: list[str],
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            metavar="N",
            parser=options.integer,
            help="Draws of the requests of a spec.",
            show_default="the spec's, or 10",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Keep the rows of the specs here.", show_default=False)
    ] = None,
    workers: options.Workers = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects, one a row of the tables.")] = False,
) -> int:
    """Compare the values of one axis of a sweep, or find the settings that no other one beats.

    Of a folder, its rows; a spec is run first. `fastsim compare spec.toml --engines vllm,sglang` and `fastsim compare
    a.toml b.toml` compare engines, or specs, on the same requests.

    Rows that agree in all other axes are pairs: the same requests, so what they share cancels. Each seed gives one
    difference; intervals are over seeds (bootstrap, corrected for few seeds and skewness). A difference counts when its
    interval excludes 0. --with B asks whether the effect of --by depends on B. --pareto M1,M2 takes the settings of all
    axes, or those of --by, each averaged over all others.
    """
    from fastsim.analysis.compare.metrics import DEFAULT_METRICS
    from fastsim.analysis.cost import COST, Price
    from fastsim.cli.compare_specs import rows_of
    from fastsim.cli.compare_text import compare_text
    from fastsim.errors import InputError
    from fastsim.sweeps.store.contents import read_contents

    price = None if gpu_hour_price is None else Price(gpu_hour_price, gpus)
    if price is None and gpus != 1:
        raise InputError(f"--gpus {gpus} without --gpu-hour-price, but a price was expected with it")
    given = {
        "--engines": engines,
        "--set and the like": settings or None,
        "--seeds": seeds,
        "--out": out,
        "--workers": workers,
    }
    if len(sources) == 1 and sources[0].is_dir():
        for name, value in given.items():
            if value is not None:
                raise InputError(f"{name} with {sources[0]}, but a spec was expected with it: those rows are there")
        where: AbstractContextManager[tuple[Path, str | None]] = nullcontext((sources[0], None))
    else:
        if aims is None and len(by or []) != 1 and (by or (len(sources) == 1 and engines is None)):
            raise InputError(NO_AXIS)
        where = rows_of(sources, engines, settings, seeds, out, workers)
    with where as (folder, told_apart):
        found = read_contents(folder)
        rows, of = found.scan(), found.extent()
        for note in found.notes():
            typer.echo(f"note: {note}", err=True)
        axes = by or ([told_apart] if told_apart and aims is None else None)
        wanted = metrics or [*([COST] if price else []), *DEFAULT_METRICS]
        apart = for_each or []
        if aims is not None:
            _refuse_beside_pareto({"--metric": metrics, "--with": other, "--baseline": baseline})
            from fastsim.analysis.compare.pareto import mixed_loads, pareto, read_aims
            from fastsim.cli.compare_pareto import pareto_text

            parsed = read_aims(aims.split(","))
            table = pareto(rows, parsed, axes or [], apart, price)
            text = "" if as_json else pareto_text(table, parsed, apart, mixed_loads(rows, apart), of)
        elif axes is None or len(axes) > 1:
            raise InputError(NO_AXIS)
        elif other is not None:
            from fastsim.analysis.compare.interaction import interaction
            from fastsim.cli.compare_interaction import interaction_text

            table = interaction(rows, axes[0], other, wanted, baseline, other_baseline, apart, price)
            text = "" if as_json else interaction_text(table, axes[0], other, apart, of)
        elif other_baseline is not None:
            raise InputError("--with-baseline without --with, but the axis it is a value of was expected")
        else:
            from fastsim.analysis.compare.paired import compare

            table = compare(rows, axes[0], wanted, baseline, apart, price)
            text = "" if as_json else compare_text(table, axes[0], apart, of)
        if as_json:
            typer.echo(_json(table))
            return 0
        typer.echo(text)
        if price is not None:
            from fastsim.cli.tables import wrapped

            typer.echo(wrapped(f"{price}."))
        return 0


NO_AXIS = "fastsim compare: one --by AXIS was expected (several, or none, only with --pareto M1,M2)"


def _refuse_beside_pareto(given: dict[str, Any]) -> None:
    from fastsim.errors import InputError

    for name, value in given.items():
        if value is not None:
            raise InputError(
                f"{name} has no meaning with --pareto, but --by, --for-each or --json was expected with it"
            )


def _json(table: "pl.DataFrame") -> str:
    """Rows as JSON; what is infinite is null."""
    import json

    import polars as pl
    import polars.selectors as cs

    floats = cs.float()
    plain = table.with_columns(pl.when(floats.is_finite()).then(floats))
    return json.dumps(plain.to_dicts(), indent=1)
