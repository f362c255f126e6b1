"""Which vLLM is installed, and its scheduler and requests for a case's configuration."""

import os
from collections.abc import Callable
from copy import copy
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from types import SimpleNamespace
from typing import Any

from fastsim.errors import InputError

ENGINES = {"0.16.0": ("vllm-0.16.0",), "0.33.0": ("vllm-0.33.0", "vllm-0.33.0-async")}
"""Releases whose scheduler can be driven, and the engines whose cases each replays."""

_OFF = {
    "max_num_active_seqs": None,
    "max_num_scheduled_tokens": None,
    "long_prefill_token_threshold_adaptive": False,
    "prefill_schedule_interval": 1,
    "scheduler_reserve_full_isl": False,
    "watermark": 0.0,
}
"""What a release that does not have a knob does."""

_SCHEDULER_KEYS = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "long_prefill_token_threshold",
    "enable_chunked_prefill",
    "policy",
    *_OFF,
)
_LARGEST_POSITION = 1 << 20


def installed_engines() -> tuple[str, ...]:
    """Engines whose cases the installed vLLM can replay.

    Raises
    ------
    InputError
        If vLLM is missing, or its release is not in `ENGINES`.
    """
    expected = " or ".join(ENGINES)
    try:
        release = version("vllm").split("+")[0]
    except PackageNotFoundError:
        raise InputError(
            f"--against vllm: vllm is not installed, but {expected} was expected (pip install vllm)"
        ) from None
    if release not in ENGINES:
        raise InputError(f"--against vllm: vllm {release} is installed, but {expected} was expected")
    return ENGINES[release]


@cache
def _base_config() -> Any:
    """Configuration of vLLM with all defaults. Only the model is a stand-in: a scheduler never looks into it."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm.config import DeviceConfig, VllmConfig

    config = VllmConfig(device_config=DeviceConfig(device="cpu"))
    config.model_config = SimpleNamespace(
        uses_mrope=False,
        is_encoder_decoder=False,
        runner_type="generate",
        is_diffusion=False,
        is_multimodal_model=False,
        supports_multimodal_inputs=False,
        multimodal_config=None,
        return_sampling_mask=False,
        enable_return_routed_experts=False,
        skip_tokenizer_init=True,
    )
    return config


def vllm_config(case_config: dict[str, Any], *, asynchronous: bool) -> Any:
    """A `VllmConfig` of a recorded case's configuration.

    Values are set behind vLLM's validation, which forbids some that the scheduler itself allows: cases with a budget
    below `max_num_seqs` are meant.

    Raises
    ------
    InputError
        If the installed release does not have a knob that the case uses.
    """
    base = _base_config()
    config, scheduler, cache_config = copy(base), copy(base.scheduler_config), copy(base.cache_config)
    for key in _SCHEDULER_KEYS:
        if hasattr(scheduler, key):
            setattr(scheduler, key, case_config[key])
        elif case_config[key] != _OFF[key]:
            raise InputError(f"engine.{key} = {case_config[key]!r}, but vllm {version('vllm')} has no such knob")
    scheduler.async_scheduling = asynchronous
    cache_config.block_size = case_config["block_size"]
    cache_config.num_gpu_blocks = case_config["num_gpu_blocks"]
    cache_config.enable_prefix_caching = case_config["enable_prefix_caching"]
    config.model_config = copy(base.model_config)
    config.model_config.max_model_len = case_config["max_model_len"]
    config.scheduler_config, config.cache_config = scheduler, cache_config
    return config


def new_scheduler(config: Any) -> Any:
    """The scheduler that vLLM itself would choose for a `VllmConfig`, with one full-attention KV-cache group."""
    import torch
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    block_size = config.cache_config.block_size
    spec = FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=1, dtype=torch.float16)
    kv_cache = KVCacheConfig(
        num_blocks=config.cache_config.num_gpu_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )
    chosen = AsyncScheduler if config.scheduler_config.async_scheduling else Scheduler
    return chosen(
        vllm_config=config,
        kv_cache_config=kv_cache,
        structured_output_manager=StructuredOutputManager(config),
        block_size=block_size,
        log_stats=False,
    )


def token_id(request: int, position: int, group: int = -1) -> int:
    """The token at a position: the same for all of a prefix group, otherwise nobody else's."""
    if group >= 0:
        return (group + 1) * _LARGEST_POSITION + position
    return (1 << 40) + request * _LARGEST_POSITION + position


def new_requests(case: dict[str, Any]) -> list[Any]:
    """Requests of a case as vLLM has them, their ids ordered like their indices."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    hasher = _block_hasher(case["config"]["block_size"]) if case["config"]["enable_prefix_caching"] else None
    older: dict[str, Any] = {"eos_token_id": None} if "eos_token_id" in signature(Request).parameters else {}
    requests = []
    for index, (arrival_us, prompt, output, priority, group, shared) in enumerate(case["requests"]):
        shared = min(shared, prompt) if group >= 0 else 0
        tokens = [token_id(index, position, group if position < shared else -1) for position in range(prompt)]
        requests.append(
            Request(
                request_id=f"{index:08d}",  # the last tie-break of the priority policy compares them as strings
                prompt_token_ids=tokens,
                sampling_params=SamplingParams(max_tokens=output, ignore_eos=True),
                pooling_params=None,
                arrival_time=float(arrival_us),
                priority=priority,
                block_hasher=hasher,
                **older,
            )
        )
    return requests


@cache
def _block_hasher(block_size: int) -> Callable[[Any], Any]:
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

    hash_function = get_hash_fn_by_name("sha256")
    init_none_hash(hash_function)
    hasher: Callable[[Any], Any] = get_request_block_hasher(block_size, hash_function)
    return hasher
