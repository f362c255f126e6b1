"""What serving needs to know of a GPU: memory, bandwidth, peak arithmetic."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fastsim.errors import InputError, suggestion


@dataclass(frozen=True)
class Gpu:
    """One GPU, from its data sheet.

    Attributes
    ----------
    memory_bytes
        Total memory as CUDA reports it, which is a little less than the data sheet says.
    bandwidth_bytes_per_s
        Peak memory bandwidth.
    bf16_flop_per_s, fp8_flop_per_s
        Peak dense tensor arithmetic, without sparsity; a GPU without FP8 computes in 16 bits.
    link_bytes_per_s
        To other GPUs in one direction: NVLink (or its like), else PCIe.
    """

    name: str
    memory_bytes: int
    bandwidth_bytes_per_s: float
    bf16_flop_per_s: float
    fp8_flop_per_s: float
    link_bytes_per_s: float


@cache
def _table() -> dict[str, Gpu]:
    raw = json.loads(files("fastsim.presets").joinpath("gpus.json").read_text(encoding="utf-8"))
    return {name: Gpu(name=name, **values) for name, values in raw.items()}


def gpu_names() -> list[str]:
    """Names of the GPUs known."""
    return list(_table())


def load_gpu(name: str) -> Gpu:
    """A GPU by name: `h100`, `RTX 4090`, or as CUDA calls it, `NVIDIA GeForce RTX 4090`, `NVIDIA H100 80GB HBM3`.

    Raises
    ------
    InputError
        When there is none of that name.
    """
    short = name.lower().replace("nvidia ", "").replace("geforce ", "").replace(" ", "-").replace("_", "-")
    aliases = {"4090": "rtx-4090", "3090": "rtx-3090", "5090": "rtx-5090", "a100": "a100-80gb", "a6000": "rtx-a6000"}
    aliases |= {"rtx4090": "rtx-4090", "rtx3090": "rtx-3090", "rtx5090": "rtx-5090", "h100-sxm": "h100"}
    short = aliases.get(short, short)
    if short not in _table():
        short = _contained(short) or short
    if short not in _table():
        raise InputError(f"--gpu {name}: no such preset{suggestion(short, gpu_names())}")
    return _table()[short]


def _contained(device: str) -> str | None:
    """The preset whose words are all among those of a device's name, with the most words: `a100-sxm4-80gb` has two."""
    words = set(device.split("-"))
    found = [name for name in _table() if words.issuperset(name.split("-"))]
    return max(found, key=lambda name: name.count("-"), default=None)
