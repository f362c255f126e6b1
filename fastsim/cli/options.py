"""Options and arguments that several verbs share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer


def integer(text: str | int) -> int:
    """An integer, or an error that names what was given."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text}, but an integer was expected") from None


Spec = Annotated[Path, typer.Argument(metavar="SPEC.toml", help="The spec: settings, and a [sweep] table.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a key, as engine.max_num_seqs=64.", show_default=False),
]
Axes = Annotated[
    list[str] | None,
    typer.Option("--axis", metavar="KEY=V1,V2,...", help="Sweep a key over these values.", show_default=False),
]
VllmVersion = Annotated[
    str | None,
    typer.Option("--vllm-version", metavar="X.Y.Z", help="Rules and defaults of this vLLM: sets engine.name."),
]
EngineName = Annotated[
    str | None,
    typer.Option("--engine", metavar="NAME", help="Scheduler: sets engine.name; sglang stands for sglang-0.5.23."),
]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A sweep's folder.")]
Source = Annotated[
    Path | None,
    typer.Argument(metavar="[SPEC.toml | SWEEP_DIR]", help="A spec, or a sweep's folder (with --config-id)."),
]
ConfigId = Annotated[
    int | None,
    typer.Option("--config-id", metavar="N", parser=integer, help="Configuration N of the spec's or folder's sweep."),
]
Trace = Annotated[Path | None, typer.Option("--trace", metavar="FILE", help="Requests from this file: workload.trace.")]
ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="M", help="KV pool, step times and the server's defaults of this model on --gpu."),
]
GpuName = Annotated[
    str | None, typer.Option("--gpu", metavar="G", help="See --model; 4xh100 (or h100x4): with tensor parallelism.")
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", metavar="N", parser=integer, help="Worker processes.", show_default="one a core"),
]
TensorParallel = Annotated[
    int | None,
    typer.Option("--tensor-parallel", metavar="N", parser=integer, help="GPUs that share each layer [1]."),
]
Utilization = Annotated[
    float | None,
    typer.Option(
        "--gpu-memory-utilization",
        metavar="SHARE",
        help="Share of the memory that the server may take [its own default].",
    ),
]
Assume = Annotated[
    list[str] | None,
    typer.Option(
        "--assume",
        metavar="NAME=VALUE",
        help="Assume otherwise of --model on --gpu, as kv_dtype=fp8; the notes name what is assumed.",
        show_default=False,
    ),
]


def with_version(sets: Sequence[str] | None, version: str | None) -> list[str]:
    """Settings for `--set`, those first that a vLLM version stands for; what `--set` says itself is left out.

    Raises
    ------
    InputError
        When there is no such version, or `--set` names an engine that is not vLLM's.
    """
    if version is None:
        return list(sets or [])
    from fastsim.config.deployment import release_settings
    from fastsim.config.spec import parse_value
    from fastsim.engines import engine_of
    from fastsim.errors import InputError

    said = {name.strip(): value for name, _, value in (text.partition("=") for text in sets or [])}
    release = release_settings(version)
    engine = parse_value(said.get("engine.name", release["engine.name"]))
    if engine not in engine_of(release["engine.name"]).names:
        raise InputError(f"--vllm-version {version} with --set engine.name={engine}, but one of them was expected")
    release = {"hardware.vllm_version": f'"{version}"', **release}
    settings = {key: str(value).lower() for key, value in release.items() if key not in said}
    return [*(f"{key}={value}" for key, value in settings.items()), *(sets or [])]


def with_engine(sets: Sequence[str], engine: str | None) -> list[str]:
    """Settings for `--set`, the engine first: one of the values of `engine.name`, or the folder of an engine's kernels.

    Raises
    ------
    InputError
        When there is no such engine, or `--set` names another.
    """
    if engine is None:
        return list(sets)
    from fastsim.config.spec import parse_value
    from fastsim.engines import full_name
    from fastsim.errors import InputError

    name = full_name(engine)
    for text in sets:
        key, _, value = text.partition("=")
        if key.strip() == "engine.name" and parse_value(value) != name:
            raise InputError(f"--engine {engine} with --set {text}, but one of them was expected")
    return [f"engine.name={name}", *(text for text in sets if text.partition("=")[0].strip() != "engine.name")]
