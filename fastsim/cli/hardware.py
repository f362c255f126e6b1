"""`--model M --gpu G`: the KV pool and the step times that data sheets give, as settings."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer

from fastsim.analysis.recommend.flags import deployment_flags, serve_command, serve_flags
from fastsim.analysis.recommend.hardware import Hardware, check_no_preset, hardware_given
from fastsim.cli.spec import keys_given, read_base
from fastsim.cli.tables import wrapped
from fastsim.config import KEYS, Config
from fastsim.config.spec import parse_value
from fastsim.engines import engine_of
from fastsim.errors import InputError
from fastsim.presets import Deployment, Estimate, estimate_of

GIVEN_BY_KEYS = ("block_size", "max_num_seqs", "max_num_batched_tokens")
"""What the estimate takes from the configuration."""


def preset_settings(
    source: Path | None,
    sets: Sequence[str],
    model: str | None,
    gpu: str | None,
    assume: Sequence[str] = (),
    *,
    tensor_parallel: int | None = None,
    gpu_memory_utilization: float | None = None,
    vllm_version: str | None = None,
) -> list[str]:
    """Settings for `--set`, those first that a model on a GPU gives; what `--set` says itself is left out.

    Everything that is assumed is printed on stderr, with the names by which `assume` overrides it.

    Raises
    ------
    InputError
        When only one of the two is given, one is unknown, an assumption is none, or the model does not fit.
    """
    overrides = overrides_of(model, gpu, assume, tensor_parallel, gpu_memory_utilization)
    given = hardware_given(model, gpu)
    if given is None:
        return list(sets)
    base = read_base(source, sets)
    check_no_preset(base)
    hardware = Hardware.deployed(*given, base.engine.block_size, overrides, base.engine.name, vllm_version)
    known = keys_given(source, sets)
    standing = {key: value for key, value in hardware.taken.limits.items() if key not in known}
    sets = [*(f"{key}={value}" for key, value in standing.items()), *sets]
    engine = read_base(source, sets).engine
    numbers = engine.max_num_seqs, engine.max_num_batched_tokens
    found = hardware.estimate(*numbers)
    said = {text.partition("=")[0].strip() for text in sets}
    taken = hardware.server_settings(*numbers)
    settings = {key: value for key, value in (hardware.settings(*numbers) | taken).items() if key not in said}
    print_assumptions(found, f"{model} on {gpu}")
    shown = ", ".join(f"{name} {getattr(engine, name):,}" for name in GIVEN_BY_KEYS)
    whose = ""
    if standing:
        whose = f"; of these {', '.join(key.removeprefix('engine.') for key in standing)}: {hardware.taken.source}"
    typer.echo(wrapped(f"  - {shown}: engine.* (--set){whose}", 4), err=True)
    if taken:
        print_server(hardware, {key: value for key, value in settings.items() if key in taken})
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
    return [*(f"{key}={value}" for key, value in plain.items() if key in KEYS), *sets]


def print_server(hardware: Hardware, taken: Mapping[str, Any]) -> None:
    """The command line of an engine's server with what it sets by itself, and what of the time is left out."""
    flags, _ = serve_flags(taken, hardware.engine)
    line = [serve_command(hardware.engine), *flags, *deployment_flags(dict(hardware.overrides), hardware.engine)]
    typer.echo(wrapped(f"  - the server's own choice on this GPU: {' '.join(line)}", 4), err=True)
    if not engine_of(hardware.engine).context_time:
        typer.echo(
            wrapped(f"  - b3, reading the KV cache, is left out: {hardware.engine} has no step time by context", 4),
            err=True,
        )


def overrides_of(
    model: str | None,
    gpu: str | None,
    assume: Sequence[str] = (),
    tensor_parallel: int | None = None,
    gpu_memory_utilization: float | None = None,
) -> dict[str, Any]:
    """Fields of `Deployment` that the options give otherwise.

    Raises
    ------
    InputError
        When an assumption is none, or there is no hardware to assume anything of.
    """
    given = {"tensor_parallel": tensor_parallel, "gpu_memory_utilization": gpu_memory_utilization}
    overrides = {name: value for name, value in given.items() if value is not None} | _assumed(assume)
    if overrides and model is None and gpu is None:
        raise InputError(
            f"{', '.join(overrides)}: assumed of no hardware, but --model and --gpu were expected along with it"
        )
    return overrides


def print_preset(config: Config) -> None:
    """What `latency.preset` assumed, on stderr; nothing without one."""
    if config.latency.preset is not None:
        print_assumptions(
            estimate_of(config.latency.preset, config.latency.source),
            f"latency.preset {config.latency.preset}",
            options=False,
        )


def print_assumptions(found: Estimate, name: str, *, options: bool = True) -> None:
    """The estimate in a sentence, then everything it assumes, one line each, on stderr.

    With `options` it was made by `--model` and `--gpu`: the pool is used too, and `--assume` can be given.
    """
    blocks = f"{found.num_gpu_blocks:,} KV blocks, " if options else ""
    sentence = (
        f"note: {name}: {blocks}{step_times_text(found)}. fastsim calibrate fits step times to a measured run. "
        "Assumed (--assume NAME=VALUE overrides what is in brackets"
        f"{'' if options else ', with --model and --gpu instead'}):"
    )
    typer.echo(wrapped(sentence), err=True)
    for text in found.assumptions:
        typer.echo(wrapped(f"  - {text}", 4), err=True)


def step_times_text(found: Estimate) -> str:
    """Where the step times come from, what they are and what to expect of them."""
    times = found.step_times
    if times is None:
        return (
            f"linear step times from data sheets, {found.b0_us / 1000:.2f} ms a step, "
            f"{found.b1_us_per_prefill_token:.4g} us a prefill token, {found.b2_us_per_decode_token:.4g} us a decode "
            f"token, {found.b3_us_per_context_token:.3g} us a context token; TPOT is 26 % off in the median"
        )
    table = dict(zip(times.values["table_tokens"], times.values["table_us"], strict=True))
    shown = ", ".join(f"{table[tokens] / 1000:.2f} ms at {tokens:,}" for tokens in (1, 64, 2048) if tokens in table)
    where = "a shipped table of measured kernels" if times.source == "shipped" else "a table from data sheets"
    return f"step times from {where} ({shown} tokens). Expect {times.expected}"


def _assumed(texts: Sequence[str]) -> dict[str, Any]:
    """Fields of `Deployment` from NAME=VALUE."""
    kinds = {item.name: item.type for item in fields(Deployment) if item.name not in GIVEN_BY_KEYS}
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, raw = text.partition("=")
        name = name.strip()
        if not equals or name not in kinds:
            raise InputError(f"--assume {text}, but NAME=VALUE was expected, with one of {', '.join(kinds)}")
        value = parse_value(raw)
        if kinds[name] is bool:
            if not isinstance(value, bool):
                raise InputError(f"--assume {text}, but true or false was expected")
            found[name] = value
            continue
        whole = kinds[name] is int
        is_number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        is_text = kinds[name] is not int and kinds[name] is not float and "str" in str(kinds[name])
        if is_number == is_text:
            what = (
                "a dtype" if name.endswith("dtype") else "a word" if is_text else "an integer" if whole else "a number"
            )
            raise InputError(f"--assume {text}, but {what} was expected")
        found[name] = value
    return found
