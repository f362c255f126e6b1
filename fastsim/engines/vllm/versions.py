"""Which engine stands for which vLLM release, and what a server of it sets when nobody says: two tables."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastsim.errors import InputError


@dataclass(frozen=True)
class Release:
    """vLLM from one release to before the next of the table, with the settings that stand for its defaults."""

    since: tuple[int, int]
    what: str
    engine: str
    settings: Mapping[str, Any] = field(default_factory=dict)


ASYNCHRONOUS = (0, 14)
"""Since it, the next step is scheduled while the GPU computes."""

VLLM_RELEASES = (
    Release((0, 8), "synchronous scheduling, no full-sequence gate", "vllm-0.16.0"),
    Release(
        ASYNCHRONOUS,
        "asynchronous scheduling, no full-sequence gate",
        "vllm-0.33.0-async",
        {"engine.scheduler_reserve_full_isl": False},
    ),
    Release((0, 19), "asynchronous scheduling, full-sequence gate", "vllm-0.33.0-async"),
)
"""0.8.0 made the V1 engine the default, 0.14.0 asynchronous scheduling; 0.19.0 has the full-sequence gate.

Rules are those of the recorded schedulers, 0.16.0 and 0.33.0: for other releases they are the nearest known.
"""

_VERSION = re.compile(r"^v?(\d{1,4})\.(\d{1,4})(?:[.+\-a-z]\S*)?$")


GIB = 2**30
NEWEST = "0.33.0"
"""Whose defaults stand where no version is given."""


@dataclass(frozen=True)
class ServerDefaults:
    """What `vllm serve` sets on a GPU when nobody says otherwise; `source` in words."""

    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    source: str

    def settings(self) -> dict[str, int]:
        """The two that are keys of an engine."""
        return {
            "engine.max_num_seqs": self.max_num_seqs,
            "engine.max_num_batched_tokens": self.max_num_batched_tokens,
        }


def server_defaults(version: str | None, gpu: str, gpu_memory_bytes: float, *, offline: bool = False) -> ServerDefaults:
    """Defaults by version, GPU and entry point.

    Read off `EngineArgs.get_batch_defaults` of vLLM 0.8 to 0.33: GPUs of at least 70 GiB get more, except the A100
    since 0.9 (vLLM change 17885); since 0.28 those of at least 160 GiB more still. The share of memory is .92 since
    0.20 (change 38284), .9 before.

    Parameters
    ----------
    version
        Such as `0.19.0`; None: the newest known.
    gpu
        Name of the GPU.
    gpu_memory_bytes
        Its memory.
    offline
        Whether vLLM's `LLM` class is used instead of a server.

    Raises
    ------
    InputError
        When the version is none, or older than any known.
    """
    text = version or NEWEST
    vllm_release(text)
    match = _VERSION.match(text.strip().lower())
    assert match is not None
    number = (int(match[1]), int(match[2]))
    utilization = 0.92 if number >= (0, 20) else 0.9
    large = gpu_memory_bytes >= 70 * GIB and not ("a100" in gpu.lower() and number >= (0, 9))
    if large and number >= (0, 28) and gpu_memory_bytes >= 160 * GIB:
        seqs, tokens = 1024, 16384
    elif large:
        seqs, tokens = 1024, 16384 if offline else 8192
    else:
        seqs, tokens = 256, 8192 if offline else 2048
    where = "offline" if offline else "server"
    return ServerDefaults(seqs, tokens, utilization, f"vLLM {text.removeprefix('v')}'s own for a {where} on {gpu}")


def vllm_release(version: str) -> Release:
    """The table's entry for a vLLM version such as `0.33.0`, `v0.19` or `0.19.1rc1`.

    Raises
    ------
    InputError
        When it is no version, or one from before the V1 engine.
    """
    match = _VERSION.match(version.strip().lower())
    if match is None:
        raise InputError(f"vLLM version {version!r}, but one such as 0.33.0 was expected")
    number = (int(match[1]), int(match[2]))
    known = [release for release in VLLM_RELEASES if release.since <= number]
    if not known:
        raise InputError(f"vLLM version {version}: its V0 engine is not simulated, but 0.8.0 or later was expected")
    return known[-1]


def version_settings(version: str) -> dict[str, Any]:
    """Settings by key that stand for the defaults of a vLLM version: `engine.name`, and what else differs."""
    release = vllm_release(version)
    return {"engine.name": release.engine, **release.settings}
