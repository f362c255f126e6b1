"""Which engine stands for which vLLM release: one table."""

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


VLLM_RELEASES = (
    Release((0, 8), "synchronous scheduling, no full-sequence gate", "vllm-0.16.0"),
    Release(
        (0, 14),
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


def engine_for_vllm_version(version: str) -> str:
    """The engine (`engine.name`) whose rules a server of that version follows unless told otherwise."""
    return vllm_release(version).engine


def version_settings(version: str) -> dict[str, Any]:
    """Settings by key that stand for the defaults of a vLLM version: `engine.name`, and what else differs."""
    release = vllm_release(version)
    return {"engine.name": release.engine, **release.settings}
