"""A model on a GPU as recommendations need it: the KV pool depends on the two numbers that are looked for."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from fastsim.errors import InputError
from fastsim.presets import estimate, load_gpu, load_model


@dataclass(frozen=True)
class Hardware:
    """A preset or config.json of a model, a preset of a GPU, and the block size."""

    model: str
    gpu: str
    block_size: int = 16

    def settings(self, max_num_seqs: int, max_num_batched_tokens: int) -> dict[str, Any]:
        """Pool, longest request and step times that the data sheets give."""
        return _estimated(self, max_num_seqs, max_num_batched_tokens)

    def blocks(self, max_num_seqs: int, max_num_batched_tokens: int) -> int:
        """KV blocks left beside the activations of such steps.

        Raises
        ------
        InputError
            When nothing is left.
        """
        return int(self.settings(max_num_seqs, max_num_batched_tokens)["engine.num_gpu_blocks"])


@cache
def _loaded(model: str, gpu: str) -> tuple[Any, Any]:
    return load_model(model), load_gpu(gpu)


@cache
def _estimated(hardware: Hardware, max_num_seqs: int, max_num_batched_tokens: int) -> dict[str, Any]:
    model, gpu = _loaded(hardware.model, hardware.gpu)
    return estimate(
        model,
        gpu,
        block_size=hardware.block_size,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
    ).settings()


def hardware_of(model: str | None, gpu: str | None, block_size: int) -> Hardware | None:
    """The hardware of `--model` and `--gpu`; None when neither is given.

    Raises
    ------
    InputError
        When only one is given.
    """
    if model is None and gpu is None:
        return None
    if model is None or gpu is None:
        given, other = ("--model", "--gpu") if gpu is None else ("--gpu", "--model")
        raise InputError(f"{given} {model or gpu} without {other}, but both or neither were expected")
    return Hardware(model, gpu, block_size)
