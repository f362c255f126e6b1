"""`fastsim recommend`: which max_num_seqs and max_num_batched_tokens, how much traffic, how many GPUs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastsim.cli import options
from fastsim.cli.given import takes_hardware

if TYPE_CHECKING:
    from fastsim.analysis.recommend.hardware import Prices


@takes_hardware
def command(
    source: Annotated[
        Path | None, typer.Argument(metavar="[SPEC.toml]", help="A spec; or use --model, --gpu and the load's options.")
    ] = None,
    *,
    settings: list[str],
    axes: options.Axes = None,
    engines: Annotated[
        str | None,
        typer.Option("--engines", metavar="A,B", help="Which of these engines, as vllm,sglang: each with its best."),
    ] = None,
    ttft: Annotated[float | None, typer.Option("--ttft-ms", metavar="MS", help="SLO: time to first token.")] = None,
    tpot: Annotated[
        float | None, typer.Option("--tpot-ms", metavar="MS", help="SLO: time per output token after the first.")
    ] = None,
    e2e: Annotated[float | None, typer.Option("--e2e-ms", metavar="MS", help="SLO: arrival to last token.")] = None,
    percentile: Annotated[
        int, typer.Option("--percentile", metavar="P", help="Of the SLO: 50, 90, 95 or 99 of 100 requests meet it.")
    ] = 99,
    with_max_rate: Annotated[
        bool, typer.Option("--max-rate", help="Also find the highest rate that meets the SLO.")
    ] = False,
    with_min_gpus: Annotated[
        bool, typer.Option("--min-gpus", help="Also find how many replicas the load needs, dealt in turn.")
    ] = False,
    price: Annotated[
        str | None,
        typer.Option("--gpu-hour-price", metavar="P", help="Of one GPU: 2.5, or by GPU: l40s=0.8,h100=2.5."),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", help="Fresh seeds that confirm the answer.")] = 8,
    workers: options.Workers = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Recommend the settings that meet an SLO with the most goodput.

    Searches max_num_seqs x max_num_batched_tokens (and every --axis) by successive halving, confirms the best with
    fresh seeds, and shows why, the margin, and what more traffic or longer outputs would do. --engines A,B does so for
    each and names the better one; --axis hardware.gpu=l40s,h100 says which of them carries the load for the least
    money. Exit code 1: no setting meets the SLO.
    """
    from fastsim.analysis.recommend.hardware import Prices, recommend_hardware
    from fastsim.cli.given import merged
    from fastsim.cli.hardware import print_assumptions
    from fastsim.errors import InputError

    bounds = {"slo.ttft_ms": ttft, "slo.tpot_ms": tpot, "slo.e2e_ms": e2e}
    said = merged(settings, {key: value for key, value in bounds.items() if value is not None})
    asked: dict[str, Any] = {
        "axes": axes or [],
        "percentile": percentile,
        "seeds": seeds,
        "with_max_rate": with_max_rate,
        "with_min_gpus": with_min_gpus,
        "workers": workers,
    }
    prices = Prices.read(price)
    if engines is not None:
        names = {text.partition("=")[0].strip() for text in settings}
        if "engine.name" in names and "hardware.vllm_version" not in names:
            raise InputError(f"--engines {engines} with --engine or --set engine.name, but one of them was expected")
        return _among_engines(source, said, engines, asked, prices, as_json=as_json)
    candidates = recommend_hardware(source, said, prices=prices, **asked)
    best = candidates[0]
    found = best.found
    assert found is not None  # of several the first is one that serves; of none there is a sentence
    if found.hardware is not None:
        print_assumptions(found.hardware.estimate(*found.best.numbers), found.hardware.name)
    if as_json:
        import json

        answer = found.to_json(best.hour_price)
        if len(candidates) > 1:
            answer["hardware"] = [candidate.to_json() for candidate in candidates]
        typer.echo(json.dumps(answer))
    else:
        from fastsim.cli.recommend_text import hardware_text, recommendation_text

        text = recommendation_text(found, best.hour_price)
        typer.echo(f"{hardware_text(candidates)}\n\n{text}" if len(candidates) > 1 else text)
    return 0 if found.meets or (len(candidates) > 1 and best.replicas is not None) else 1


def _among_engines(
    source: Path | None, said: list[str], engines: str, asked: dict[str, Any], prices: "Prices", *, as_json: bool
) -> int:
    """The best setting of each engine, and which engine."""
    from fastsim.analysis.recommend.engines import recommend_engines
    from fastsim.analysis.recommend.hardware import replica_price
    from fastsim.cli.hardware import print_assumptions
    from fastsim.engines import full_names

    found = recommend_engines(source, full_names(engines), said, **asked)
    best = found.best
    if best.hardware is not None:
        print_assumptions(best.hardware.estimate(*best.best.numbers), best.hardware.name)
    price = replica_price(best.best.config, prices)
    if as_json:
        import json

        typer.echo(json.dumps(found.to_json(price)))
    else:
        from fastsim.cli.recommend_engines import rivals_text

        typer.echo(rivals_text(found, price))
    return 0 if best.meets else 1
