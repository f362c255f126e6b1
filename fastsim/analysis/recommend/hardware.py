"""A model on a GPU as recommendations need it: the KV pool depends on the two batch limits that are looked for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from fastsim.config import Config
from fastsim.engines import engine_of
from fastsim.engines.vllm.versions import ServerDefaults, server_defaults
from fastsim.errors import InputError
from fastsim.presets import Estimate, deployed_on, estimate, load_gpu, load_model

CONTEXT_TIME = "latency.b3_us_per_context_token"


@dataclass(frozen=True)
class Hardware:
    """A preset or config.json of a model, a preset of a GPU, the block size, and what else is not as assumed.

    `overrides` are fields of `Deployment` and their values, as `("tensor_parallel", 4)`.
    """

    model: str
    gpu: str
    block_size: int = 16
    overrides: tuple[tuple[str, Any], ...] = ()
    engine: str = "vllm-0.33.0"

    @classmethod
    def deployed(
        cls, model: str, gpu: str, block_size: int, overrides: Mapping[str, Any], engine: str = "vllm-0.33.0"
    ) -> "Hardware":
        """A model on a GPU, or on several as `4xh100`, served by an engine with what its server takes by itself.

        Raises
        ------
        InputError
            When the overrides say another number of GPUs.
        """
        gpu, known = deployed_on(gpu, overrides)
        server = engine_of(engine).server
        if server is not None:
            _, taken = server.of_gpu(load_gpu(gpu).memory_bytes, known.get("tensor_parallel", 1))
            known = {**taken, **known}
        return cls(model, gpu, block_size, tuple(sorted(known.items())), engine)

    def defaults(self, vllm_version: str | None) -> ServerDefaults | None:
        """What a vLLM server of that version (None: the newest known) sets on this GPU when nobody says otherwise.

        None where the engine has a server of its own, which says that itself.
        """
        if engine_of(self.engine).server is not None:
            return None
        _, gpu = _loaded(self.model, self.gpu)
        return server_defaults(vllm_version, self.gpu, gpu.memory_bytes)

    def with_defaults(self, vllm_version: str | None) -> "Hardware":
        """The same with the share of memory that the version takes, where none is given."""
        defaults = self.defaults(vllm_version)
        if defaults is None or "gpu_memory_utilization" in dict(self.overrides):
            return self
        share = defaults.gpu_memory_utilization
        return replace(self, overrides=tuple(sorted({**dict(self.overrides), "gpu_memory_utilization": share}.items())))

    def estimate(self, max_num_seqs: int, max_num_batched_tokens: int) -> Estimate:
        """What the data sheets give for these two batch limits, and everything that is assumed."""
        return _estimated(self, max_num_seqs, max_num_batched_tokens)

    @property
    def name(self) -> str:
        """`llama-3.1-70b on 4 x h100`."""
        count = dict(self.overrides).get("tensor_parallel", 1)
        return f"{self.model} on {f'{count} x ' if count > 1 else ''}{self.gpu}"

    def settings(self, max_num_seqs: int, max_num_batched_tokens: int) -> dict[str, Any]:
        """Pool, longest request and step times that the data sheets give, as far as the engine knows them."""
        settings = self.estimate(max_num_seqs, max_num_batched_tokens).settings()
        if not engine_of(self.engine).context_time:
            del settings[CONTEXT_TIME]
        return settings

    def server_settings(self, max_num_seqs: int, max_num_batched_tokens: int) -> dict[str, Any]:
        """What the engine's server sets by itself on this GPU and with this pool; nothing for `vllm serve`."""
        server = engine_of(self.engine).server
        if server is None:
            return {}
        found = self.estimate(max_num_seqs, max_num_batched_tokens)
        gpus = dict(self.overrides).get("tensor_parallel", 1)
        settings, _ = server.of_gpu(load_gpu(self.gpu).memory_bytes, gpus)
        return settings | server.of_pool(found.num_gpu_blocks * self.block_size, found.max_model_len)

    def blocks(self, max_num_seqs: int, max_num_batched_tokens: int) -> int:
        """KV blocks left beside the activations of such steps.

        Raises
        ------
        InputError
            When nothing is left.
        """
        return self.estimate(max_num_seqs, max_num_batched_tokens).num_gpu_blocks


@cache
def _loaded(model: str, gpu: str) -> tuple[Any, Any]:
    return load_model(model), load_gpu(gpu)


@cache
def _estimated(hardware: Hardware, max_num_seqs: int, max_num_batched_tokens: int) -> Estimate:
    model, gpu = _loaded(hardware.model, hardware.gpu)
    linear = {} if engine_of(hardware.engine).table_time else {"step_times": "linear"}
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
