"""`MODEL@GPU`: a preset by one name, as `latency.preset` gives it."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from fastsim.errors import InputError, suggestion
from fastsim.presets.estimate import Estimate, estimate
from fastsim.presets.gpu import gpu_names, load_gpu
from fastsim.presets.model import is_preset, load_model, model_names

NAME = re.compile(r"(?P<model>[^@]+)@(?P<gpu>[^@]+)")
SEVERAL = re.compile(r"(?P<gpus>\d{1,3})x(?P<gpu>.+)|(?P<gpu_first>.+)x(?P<gpus_last>\d{1,3})")


def deployed_on(gpu: str, overrides: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The GPU of `4xh100` (or `h100x4`), and the overrides of a deployment with the tensor parallelism it stands for.

    Raises
    ------
    InputError
        When the overrides say another tensor parallelism.
    """
    match = SEVERAL.fullmatch(gpu.strip().lower())
    if match is None:
        return gpu, dict(overrides)
    count = int(match["gpus"] or match["gpus_last"])
    other = overrides.get("tensor_parallel", count)
    if other != count:
        raise InputError(f"gpu {gpu} with tensor_parallel = {other}, but one number of GPUs was expected")
    return match["gpu"] or match["gpu_first"], {**overrides, "tensor_parallel": count}


def gpus_of(name: str) -> int:
    """How many GPUs a preset by name stands for: 4 of `llama-3.1-70b@4xh100`."""
    match = NAME.fullmatch(name)
    return int(deployed_on(match["gpu"], {})[1].get("tensor_parallel", 1)) if match is not None else 1


@cache
def estimate_of(name: str, step_times: str = "auto") -> Estimate:
    """The estimate of a preset: `llama-3.1-8b@h100`, or `llama-3.1-70b-fp8@4xh100` with tensor parallelism.

    Raises
    ------
    InputError
        When it is no such name, model or GPU are not known, or the model does not fit.
    """
    match = NAME.fullmatch(name)
    if match is None:
        raise InputError(
            f'latency.preset = "{name}", but MODEL@GPU was expected, such as llama-3.1-8b@h100 or, with four GPUs, '
            "llama-3.1-70b@4xh100"
        )
    gpu, plan = deployed_on(match["gpu"], {"step_times": step_times})
    if gpu not in gpu_names():
        raise InputError(f'latency.preset = "{name}": {gpu} is no gpu preset{suggestion(gpu, gpu_names())}')
    if not is_preset(match["model"]):
        raise InputError(
            f'latency.preset = "{name}": {match["model"]} is no model preset{suggestion(match["model"], model_names())}'
        )
    try:
        return estimate(load_model(match["model"]), load_gpu(gpu), **plan)
    except InputError as error:
        raise InputError(f'latency.preset = "{name}": {error}') from None


def coefficients(name: str, step_times: str = "auto") -> dict[str, Any]:
    """The keys below `latency.` that a preset by name gives (`b0_us`, `table_us`, ...); see `estimate_of`."""
    return estimate_of(name, step_times).latency()
