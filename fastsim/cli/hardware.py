"""`--model M --gpu G`: the KV pool and the step times that data sheets give, as settings."""

from collections.abc import Sequence
from pathlib import Path

import typer

from fastsim.cli.spec import read_base
from fastsim.config import KEYS
from fastsim.errors import InputError
from fastsim.presets import estimate, load_gpu, load_model


def preset_settings(source: Path | None, sets: Sequence[str], model: str | None, gpu: str | None) -> list[str]:
    """Settings for `--set`, those first that a model on a GPU gives; what `--set` says itself is left out.

    Raises
    ------
    InputError
        When only one of the two is given, one is unknown, or the model does not fit.
    """
    if model is None and gpu is None:
        return list(sets)
    if model is None or gpu is None:
        given, other = ("--model", "--gpu") if gpu is None else ("--gpu", "--model")
        raise InputError(f"{given} {model or gpu} without {other}, but both or neither were expected")
    engine = read_base(source, sets).engine
    found = estimate(
        load_model(model),
        load_gpu(gpu),
        block_size=engine.block_size,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
    )
    said = {text.partition("=")[0].strip() for text in sets}
    settings = {key: value for key, value in found.settings().items() if key not in said}
    typer.echo(
        f"note: {model} on {gpu}, estimated from data sheets: {found.num_gpu_blocks:,} KV blocks, "
        f"{found.b0_us / 1000:.2f} ms a step; fastsim calibrate fits step times to a measured run",
        err=True,
    )
    return [*(f"{key}={value}" for key, value in settings.items() if key in KEYS), *sets]
