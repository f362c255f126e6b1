"""What a model on a GPU gives, and everything that is assumed for it, as notes."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import typer

from fastsim.analysis.recommend.flags import deployment_flags, serve_command, serve_flags
from fastsim.cli.tables import counted, wrapped
from fastsim.config import KEYS, Config, deployed
from fastsim.config.deployment import BLOCKS, LINEAR, Hardware, hardware_of, is_given
from fastsim.config.spec import parse_value
from fastsim.engines import engine_of
from fastsim.errors import InputError
from fastsim.presets import Deployment, Estimate, estimate_of
from fastsim.sweeps.grid import Grid

GIVEN_BY_KEYS = ("block_size", "max_num_seqs", "max_num_batched_tokens")
"""What the estimate takes from the configuration."""
ELSEWHERE = {
    "step_times": "latency.source",
    "disable_hybrid_kv_cache_manager": "engine.disable_hybrid_kv_cache_manager",
}
ASSUMPTIONS = {
    item.name: ELSEWHERE.get(item.name, f"hardware.{item.name}")
    for item in fields(Deployment)
    if item.name not in GIVEN_BY_KEYS
}
"""Names that `--assume` knows, and the keys that they stand for."""
MOST_SHOWN = 8
"""Kinds of hardware of a sweep that are told one by one."""


def assumed(texts: Sequence[str]) -> dict[str, Any]:
    """Settings by key from NAME=VALUE.

    Raises
    ------
    InputError
        When a name is no assumption, or a value makes no sense.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, raw = text.partition("=")
        key = ASSUMPTIONS.get(name.strip())
        if not equals or key is None:
            raise InputError(f"--assume {text}, but NAME=VALUE was expected, with one of {', '.join(ASSUMPTIONS)}")
        found[key] = KEYS[key].validate(parse_value(raw), f"--assume {text}")
    return found


def print_hardware(written: Config) -> None:
    """What the hardware of a configuration, as it is written, or `latency.preset` gives and assumes; on stderr."""
    config = deployed(written)
    hardware = hardware_of(config.value)
    if hardware is not None:
        _print_deployment(hardware, written, config)
    elif config.latency.preset is not None:
        print_assumptions(
            estimate_of(config.latency.preset, config.latency.source),
            f"latency.preset {config.latency.preset}",
            options=False,
        )


def print_grid(grid: Grid) -> None:
    """One line on stderr for every kind of hardware that a grid holds; `fastsim run` tells all that is assumed."""
    kinds = grid.hardware()
    for hardware, blocks in list(kinds.items())[:MOST_SHOWN]:
        times = hardware.estimate(*blocks.numbers).step_times
        of_times = "linear step times from data sheets" if times is None else f"step times: {times.source}"
        pool = f"{blocks.least:,}" if blocks.least == blocks.most else f"{blocks.least:,} to {blocks.most:,}"
        typer.echo(wrapped(f"note: {hardware.name}: {pool} KV blocks, {of_times}"), err=True)
    if len(kinds) > MOST_SHOWN:
        typer.echo(f"note: and {counted(len(kinds) - MOST_SHOWN, 'other deployment')}", err=True)


def _print_deployment(hardware: Hardware, written: Config, config: Config) -> None:
    engine = config.engine
    numbers = engine.max_num_seqs, engine.max_num_batched_tokens
    found = hardware.estimate(*numbers)
    own = [key for key in hardware.taken.limits if not is_given(written, key)]
    print_assumptions(
        found,
        hardware.name,
        blocks=engine.num_gpu_blocks if is_given(written, BLOCKS) else None,
        times_given=all(is_given(written, key) for key in LINEAR),
    )
    shown = ", ".join(f"{name} {getattr(engine, name):,}" for name in GIVEN_BY_KEYS)
    whose = ""
    if own:
        whose = f"; of these {', '.join(key.removeprefix('engine.') for key in own)}: {hardware.taken.source}"
    typer.echo(wrapped(f"  - {shown}: engine.* (--set){whose}", 4), err=True)
    taken = hardware.server_settings((engine.num_gpu_blocks or 0) * engine.block_size, engine.max_model_len)
    if taken:
        print_server(hardware, {key: config.value(key) for key in taken})


def print_server(hardware: Hardware, taken: Mapping[str, Any]) -> None:
    """The command line of an engine's server with what it sets by itself, and what of the time is left out."""
    flags, _ = serve_flags(taken, hardware.engine)
    line = [serve_command(hardware.engine), *flags, *deployment_flags(dict(hardware.assumed), hardware.engine)]
    typer.echo(wrapped(f"  - the server's own choice on this GPU: {' '.join(line)}", 4), err=True)
    if not engine_of(hardware.engine).context_time:
        typer.echo(
            wrapped(f"  - b3, reading the KV cache, is left out: {hardware.engine} has no step time by context", 4),
            err=True,
        )


def print_assumptions(
    found: Estimate, name: str, *, options: bool = True, blocks: int | None = None, times_given: bool = False
) -> None:
    """The estimate in a sentence, then everything it assumes, one line each, on stderr.

    With `options` it is of a model on a GPU: the pool is used too, and `--assume` can be given. `blocks` and
    `times_given` say that the pool or the step times are given, and nothing of the estimate's.
    """
    pool = f"{found.num_gpu_blocks:,} KV blocks, " if options else ""
    if blocks is not None:
        pool = f"{blocks:,} KV blocks are given (the estimate is {found.num_gpu_blocks:,}), "
    times = (
        "step times are given"
        if times_given
        else f"{step_times_text(found)}. fastsim calibrate fits step times to a measured run"
    )
    sentence = (
        f"note: {name}: {pool}{times}. Assumed (--assume NAME=VALUE overrides what is in brackets"
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
