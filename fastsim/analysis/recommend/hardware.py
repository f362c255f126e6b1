"""A model on a GPU as recommendations need it: the KV pool depends on the two batch limits that are looked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from fastsim.config import Config
from fastsim.engines import engine_of, server_of
from fastsim.engines.declaration import DEFAULT_ENGINE, Taken
from fastsim.errors import InputError
from fastsim.presets import Estimate, deployed_on, estimate, load_gpu, load_model

CONTEXT_TIME = "latency.b3_us_per_context_token"


@dataclass(frozen=True)
class Hardware:
    """A preset or config.json of a model, a preset of a GPU, the block size, and what else is not as assumed.

    `overrides` are fields of `Deployment` and their values, as `("tensor_parallel", 4)`; `release` is that of the
    engine's server, None for the newest known. `rivals` are the engines that it is compared with: step times have only
    what all of them have.
    """

    model: str
    gpu: str
    block_size: int = 16
    overrides: tuple[tuple[str, Any], ...] = ()
    engine: str = DEFAULT_ENGINE
    release: str | None = None
    rivals: tuple[str, ...] = ()

    @classmethod
    def deployed(
        cls,
        model: str,
        gpu: str,
        block_size: int,
        overrides: Mapping[str, Any],
        engine: str = DEFAULT_ENGINE,
        release: str | None = None,
        rivals: Sequence[str] = (),
    ) -> "Hardware":
        """A model on a GPU, or on several as `4xh100`, served by an engine with what its server takes by itself.

        Raises
        ------
        InputError
            When the overrides say another number of GPUs, or the release is none.
        """
        gpu, known = deployed_on(gpu, overrides)
        bare = cls(model, gpu, block_size, tuple(known.items()), engine, release, tuple(rivals))
        return replace(bare, overrides=tuple(sorted({**bare.taken.deployment, **known}.items())))

    def all_have(self, ability: str) -> bool:
        """Whether the engine, and all that it is compared with, has an ability, an attribute of `Engine`."""
        return all(getattr(engine_of(name), ability) for name in (self.engine, *self.rivals))

    @property
    def gpus(self) -> int:
        """How many GPUs share each layer."""
        return int(dict(self.overrides).get("tensor_parallel", 1))

    @property
    def taken(self) -> Taken:
        """What the engine's server takes from this GPU when nobody says otherwise."""
        return server_of(self.engine).of_gpu(self.release, self.gpu, load_gpu(self.gpu).memory_bytes, self.gpus)

    def estimate(self, max_num_seqs: int, max_num_batched_tokens: int) -> Estimate:
        """What the data sheets give for these two batch limits, and everything that is assumed."""
        return _estimated(self, max_num_seqs, max_num_batched_tokens)

    @property
    def name(self) -> str:
        """`llama-3.1-70b on 4 x h100`."""
        return f"{self.model} on {f'{self.gpus} x ' if self.gpus > 1 else ''}{self.gpu}"

    def settings(self, max_num_seqs: int, max_num_batched_tokens: int) -> dict[str, Any]:
        """Pool, longest request and step times that the data sheets give, as far as the engine knows them."""
        settings = self.estimate(max_num_seqs, max_num_batched_tokens).settings()
        if not self.all_have("context_time"):
            del settings[CONTEXT_TIME]
        return settings

    def server_settings(self, max_num_seqs: int, max_num_batched_tokens: int) -> dict[str, Any]:
        """What the engine's server sets by itself with this pool, the two batch limits aside."""
        found = self.estimate(max_num_seqs, max_num_batched_tokens)
        tokens = found.num_gpu_blocks * self.block_size
        return self.taken.settings | server_of(self.engine).of_pool(tokens, found.max_model_len)

    def blocks(self, max_num_seqs: int, max_num_batched_tokens: int) -> int:
        """KV blocks left beside the activations of such steps.

        Raises
        ------
        InputError
            When nothing is left.
        """
        return self.estimate(max_num_seqs, max_num_batched_tokens).num_gpu_blocks


@cache
def _estimated(hardware: Hardware, max_num_seqs: int, max_num_batched_tokens: int) -> Estimate:
    model, gpu = load_model(hardware.model), load_gpu(hardware.gpu)
    linear = {} if hardware.all_have("table_time") else {"step_times": "linear"}
    return estimate(
        model,
        gpu,
        block_size=hardware.block_size,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        **{**dict(hardware.overrides), **linear},
    )


def hardware_given(model: str | None, gpu: str | None) -> tuple[str, str] | None:
    """What `--model` and `--gpu` say; None when neither is given.

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
    return model, gpu


def check_no_preset(base: Config) -> None:
    """Step times come from one place.

    Raises
    ------
    InputError
        When a model on a GPU is given beside `latency.preset`.
    """
    if base.latency.preset is not None:
        raise InputError(
            f"--model and --gpu with latency.preset = {base.latency.preset!r}, but one of them was expected: "
            "both give step times"
        )
