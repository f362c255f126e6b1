"""`fastsim recommend`: which max_num_seqs and max_num_batched_tokens, how much traffic, how many GPUs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fastsim.cli import options

PROMPT_CV, OUTPUT_CV = 1.0, 0.8
"""Spread of lengths given by their mean alone: standard deviation / mean, about that of Azure's conversation trace."""
LONGEST = 5
"""Such lengths end at so many times their mean."""
LOAD_S = 180
"""A load given by its rate lasts about so long, but has at least 600 requests and at most 4,000."""


def command(
    source: Annotated[
        Path | None, typer.Argument(metavar="[SPEC.toml]", help="A spec; or use --model, --gpu and the load's options.")
    ] = None,
    sets: options.Sets = None,
    axes: options.Axes = None,
    model: options.ModelName = None,
    gpu: options.GpuName = None,
    tensor_parallel: options.TensorParallel = None,
    gpu_memory_utilization: options.Utilization = None,
    assume: options.Assume = None,
    vllm_version: options.VllmVersion = None,
    engine: options.EngineName = None,
    engines: Annotated[
        str | None,
        typer.Option("--engines", metavar="A,B", help="Which of these engines, as vllm,sglang: each with its best."),
    ] = None,
    trace: options.Trace = None,
    rate: Annotated[float | None, typer.Option("--rate", metavar="R", help="Poisson arrivals per second.")] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", metavar="N", help="So many clients, each with one request at a time.")
    ] = None,
    prompt: Annotated[
        float | None, typer.Option("--prompt-tokens", metavar="MEAN", help="Mean prompt; lognormal, cv 1, up to 5x.")
    ] = None,
    output: Annotated[
        float | None, typer.Option("--output-tokens", metavar="MEAN", help="Mean output; lognormal, cv 0.8, up to 5x.")
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
        float | None, typer.Option("--gpu-hour-price", metavar="P", help="Price of one replica for an hour.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", help="Fresh seeds that confirm the answer.")] = 8,
    workers: options.Workers = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Recommend the settings that meet an SLO with the most goodput.

    Searches max_num_seqs x max_num_batched_tokens (and every --axis) by successive halving, confirms the best with
    fresh seeds, and shows why, the margin, and what more traffic or longer outputs would do. --engines A,B does so for
    each and names the better one. Exit code 1: no setting meets the SLO.
    """
    from math import isfinite

    from fastsim.analysis.recommend.recommend import recommend
    from fastsim.cli.hardware import overrides_of, print_assumptions
    from fastsim.errors import InputError

    if price is not None and not (isfinite(price) and price > 0):
        raise InputError(f"--gpu-hour-price {price:g}, but a price above 0 was expected")
    given = {
        "slo.ttft_ms": ttft,
        "slo.tpot_ms": tpot,
        "slo.e2e_ms": e2e,
        "workload.trace": trace,
        "workload.concurrency": concurrency,
    }
    settings = {key: value for key, value in given.items() if value is not None}
    settings |= load_settings(rate, prompt, output, trace=trace is not None, concurrency=concurrency, preset=model)
    if engines is not None and engine is not None:
        raise InputError(f"--engines {engines} with --engine {engine}, but one of them was expected")
    said = merged(options.with_engine(options.with_version(sets, vllm_version), engine), settings)
    asked: dict[str, Any] = {
        "axes": axes or [],
        "model": model,
        "gpu": gpu,
        "assume": overrides_of(model, gpu, assume or [], tensor_parallel, gpu_memory_utilization),
        "vllm_version": vllm_version,
        "percentile": percentile,
        "seeds": seeds,
        "with_max_rate": with_max_rate,
        "with_min_gpus": with_min_gpus,
        "workers": workers,
    }
    if engines is not None:
        return _among_engines(source, said, engines, asked, price, as_json=as_json)
    found = recommend(source, said, **asked)
    if found.hardware is not None:
        print_assumptions(found.hardware.estimate(*found.best.numbers), found.hardware.name)
    if as_json:
        import json

        typer.echo(json.dumps(found.to_json(price)))
    else:
        from fastsim.cli.recommend_text import recommendation_text

        typer.echo(recommendation_text(found, price))
    return 0 if found.meets else 1


def _among_engines(
    source: Path | None, said: list[str], engines: str, asked: dict[str, Any], price: float | None, *, as_json: bool
) -> int:
    """The best setting of each engine, and which engine."""
    from fastsim.analysis.recommend.engines import recommend_engines
    from fastsim.cli.hardware import print_assumptions
    from fastsim.engines import full_names

    found = recommend_engines(source, full_names(engines), said, **asked)
    best = found.best
    if best.hardware is not None:
        print_assumptions(best.hardware.estimate(*best.best.numbers), best.hardware.name)
    if as_json:
        import json

        typer.echo(json.dumps(found.to_json(price)))
    else:
        from fastsim.cli.recommend_engines import rivals_text

        typer.echo(rivals_text(found, price))
    return 0 if best.meets else 1


def load_settings(
    rate: float | None,
    prompt: float | None,
    output: float | None,
    *,
    trace: bool,
    concurrency: int | None,
    preset: str | None,
) -> dict[str, Any]:
    """Settings of a load that is given by its rate and mean lengths.

    Raises
    ------
    InputError
        When a number is out of range, or a rate is given for a closed loop.
    """
    from fastsim.errors import InputError

    for name, value, most in (
        ("--rate", rate, 1e6),
        ("--prompt-tokens", prompt, 1e8),
        ("--output-tokens", output, 1e8),
    ):
        if value is not None and not 0 < value <= most:
            raise InputError(f"{name} {value:g}, but a number above 0 and up to {most:g} was expected")
    if rate is not None and concurrency is not None:
        raise InputError(f"--rate {rate:g} with --concurrency {concurrency}, but one of them was expected")
    out: dict[str, Any] = {}
    if rate is not None:
        out |= {"workload.arrival.kind": "poisson", "workload.arrival.rate_per_s": rate}
        if not trace:
            out["workload.num_requests"] = min(max(round(rate * LOAD_S), 600), 4000)
    for section, mean, spread in (("prompt", prompt, PROMPT_CV), ("output", output, OUTPUT_CV)):
        if mean is not None:
            out |= {
                f"workload.{section}.dist": "lognormal",
                f"workload.{section}.mean": mean,
                f"workload.{section}.stdev": mean * spread,
                f"workload.{section}.max": max(round(mean * LONGEST), 1),
            }
    if prompt is not None and output is not None and preset is None:
        out["engine.max_model_len"] = max(round((prompt + output) * LONGEST) + 1, 8192)
    return out


def merged(sets: Sequence[str], settings: dict[str, Any]) -> list[str]:
    """The settings as `key=value`, except those that `--set` says itself, and then `--set`'s."""
    said = {text.partition("=")[0].strip() for text in sets}
    return [*(f"{key}={value}" for key, value in settings.items() if key not in said), *sets]
