"""Options that every verb with a load takes: engine, hardware and requests, as settings of one list."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from itertools import chain
from typing import Annotated, Any, TypeVar

import typer

from fastsim.cli import options

PROMPT_CV, OUTPUT_CV = 1.0, 0.8
"""Spread of lengths given by their mean alone: standard deviation / mean, about that of Azure's conversation trace."""
LONGEST = 5
"""Such lengths end at so many times their mean."""
LOAD_S = 180
"""A load given by its rate lasts about so long, but has at least 600 requests and at most 4,000."""

Returned = TypeVar("Returned")


def takes_hardware(command: Callable[..., Returned]) -> Callable[..., Returned]:
    """A verb whose `settings` are made of options: `--set`, and what they say of requests, engine and hardware."""
    return _extended(command, _load_settings, _hardware_settings)


def takes_load(command: Callable[..., Returned]) -> Callable[..., Returned]:
    """A verb whose `settings` are made of options: `--set`, and what they say of the requests alone."""
    return _extended(command, _load_settings)


def _extended(command: Callable[..., Returned], *makers: Callable[..., list[str]]) -> Callable[..., Returned]:
    """The verb with the makers' options in the place of `settings`, which each adds to."""
    options_of = [
        [each for each in signature(maker, eval_str=True).parameters.values() if each.name != "settings"]
        for maker in makers
    ]
    parameters: list[Parameter] = []
    for own in signature(command, eval_str=True).parameters.values():
        parameters += chain(*options_of) if own.name == "settings" else [own]
    parameters = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters]

    @wraps(command)
    def verb(**given: Any) -> Returned:
        settings: list[str] = []
        for maker, its_options in zip(makers, options_of, strict=True):
            settings = maker(settings=settings, **{each.name: given.pop(each.name) for each in its_options})
        return command(settings=settings, **given)

    verb.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    verb.__annotations__ = {each.name: each.annotation for each in parameters}
    return verb


def _load_settings(
    settings: Sequence[str],
    sets: options.Sets = None,
    trace: options.Trace = None,
    rate: Annotated[float | None, typer.Option("--rate", metavar="R", help="Poisson arrivals per second.")] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            metavar="N",
            parser=options.integer,
            help="So many clients, each with one request at a time; with --rate: at most so many out.",
        ),
    ] = None,
    prompt: Annotated[
        float | None, typer.Option("--prompt-tokens", metavar="MEAN", help="Mean prompt; lognormal, cv 1, up to 5x.")
    ] = None,
    output: Annotated[
        float | None, typer.Option("--output-tokens", metavar="MEAN", help="Mean output; lognormal, cv 0.8, up to 5x.")
    ] = None,
) -> list[str]:
    load = {} if trace is None else {"workload.trace": str(trace)}
    load |= load_settings(rate, prompt, output, trace=trace is not None, concurrency=concurrency)
    return merged([*settings, *(sets or [])], load)


def _hardware_settings(
    settings: Sequence[str],
    model: options.ModelName = None,
    gpu: options.GpuName = None,
    tensor_parallel: options.TensorParallel = None,
    gpu_memory_utilization: options.Utilization = None,
    assume: options.Assume = None,
    vllm_version: options.VllmVersion = None,
    engine: options.EngineName = None,
) -> list[str]:
    from fastsim.cli.hardware import assumed

    hardware = {
        "hardware.model": model,
        "hardware.gpu": gpu,
        "hardware.tensor_parallel": tensor_parallel,
        "hardware.gpu_memory_utilization": gpu_memory_utilization,
    }
    given = {key: value for key, value in hardware.items() if value is not None}
    said = options.with_engine(options.with_version(settings, vllm_version), engine)
    return merged(said, assumed(assume or []) | given | ({} if model is not None else _long_enough(settings)))


def _long_enough(settings: Sequence[str]) -> dict[str, int]:
    """Without a model, requests may be as long as options make them."""
    said = {key.strip(): value for key, _, value in (text.partition("=") for text in settings)}
    longest = [said.get(f"workload.{section}.max") for section in ("prompt", "output")]
    if None in longest or not all(str(value).strip().isdigit() for value in longest):
        return {}
    return {"engine.max_model_len": max(sum(int(str(value)) for value in longest) + 1, 8192)}


def load_settings(
    rate: float | None, prompt: float | None, output: float | None, *, trace: bool, concurrency: int | None
) -> dict[str, Any]:
    """Settings of a load that is given by its rate, its clients (both: the most requests that are out), and lengths.

    Raises
    ------
    InputError
        When a number is out of range.
    """
    from fastsim.errors import InputError

    for name, value, most in (
        ("--rate", rate, 1e6),
        ("--prompt-tokens", prompt, 1e8),
        ("--output-tokens", output, 1e8),
    ):
        if value is not None and not 0 < value <= most:
            raise InputError(f"{name} {value:g}, but a number above 0 and up to {most:g} was expected")
    out: dict[str, Any] = {}
    if concurrency is not None:
        out["workload.concurrency"] = concurrency
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
    return out


def merged(sets: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """The settings as `key=value`, except those that `--set` says itself, and then `--set`'s."""
    said = {text.partition("=")[0].strip() for text in sets}
    given = {key: str(value).lower() if isinstance(value, bool) else value for key, value in settings.items()}
    return [*(f"{key}={value}" for key, value in given.items() if key not in said), *sets]
