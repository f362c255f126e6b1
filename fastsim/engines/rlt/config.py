"""Configuration of the engine: checked once in Python, handed to the kernels as one record."""

import math
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.engines.rlt.codes import Mode, OnLivelock, Policy
from fastsim.errors import InputError

NO_LIMIT = np.iinfo(np.int64).max // 4
"""Stands for "no horizon" and "no cap on steps"; far enough from the top that sums with it do not overflow."""


@dataclass(frozen=True, slots=True)
class StageLatency:
    """Duration of a step, microseconds, truncated to an integer and at least 1.

    A non-empty step takes `<stage>_us + <stage>_us_per_token * tokens` (one token an item outside prefill), an empty
    one `empty_us`; both plus `swap_us` for every request swapped out or in and `swap_us_per_block` for every block
    moved. A PREFILL step runs all loops of its chunks; a WAVEFRONT step, like a RECURRENT one, runs one loop.

    The default, 1 for every step, makes the clock count engine steps.
    """

    prefill_us: float = 1.0
    prefill_us_per_token: float = 0.0
    wavefront_us: float = 1.0
    wavefront_us_per_token: float = 0.0
    prelude_us: float = 1.0
    prelude_us_per_token: float = 0.0
    recurrent_us: float = 1.0
    recurrent_us_per_token: float = 0.0
    coda_us: float = 1.0
    coda_us_per_token: float = 0.0
    empty_us: float = 1.0
    swap_us: float = 0.0
    swap_us_per_block: float = 0.0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not (math.isfinite(value) and 0 <= value <= 1e12):
                raise InputError(f"latency.{item.name} = {value!r}: expected a finite number of microseconds >= 0")

    @classmethod
    def from_linear(
        cls, base_us: float, us_per_prefill_token: float, us_per_decode_token: float, max_loops: int, **others: float
    ) -> "StageLatency":
        """Spread a one-pass step-time model over the loops.

        The whole pass of `max_loops` loops costs what the linear model says; each loop an equal part of it; PRELUDE and
        CODA are taken to cost nothing (1 us) unless given in `others`.
        """
        return cls(
            **{
                "prefill_us": base_us,
                "prefill_us_per_token": us_per_prefill_token,
                "wavefront_us": base_us / max_loops,
                "wavefront_us_per_token": us_per_prefill_token / max_loops,
                "recurrent_us": base_us / max_loops,
                "recurrent_us_per_token": us_per_decode_token / max_loops,
                **others,
            }
        )


@dataclass(frozen=True, slots=True)
class RltConfig:
    """One configuration of the vllm-rlt scheduler, names as upstream's.

    `count_restores` and `blocked_checks_limit` both on: the admission accounting after upstream's fix of the livelock;
    both off: before. Upstream's own defaults of sizes and batch limits are not known; those here are placeholders.

    ===================================  ======  ====================================================================
    key                                  unit    meaning
    ===================================  ======  ====================================================================
    num_blocks                           blocks  physical KV blocks over all depth planes
    block_size                           tokens  token positions of a page
    max_loops                            loops   loops over the layers (total_ut_steps)
    layout                                       `last_exited`: a plane a loop; `shared`: one plane
    incremental                                  allocate as tokens come; off: whole capacity at admission
    prefix_caching                               share full prompt pages
    watermark_ratio                              share of num_blocks kept free when anything is active
    max_num_seqs                         count   active requests, and items of a batch
    max_num_batched_tokens               tokens  of one batch
    mode                                         `refill` or `no_refill`
    min_coda_batch_size                  count   CODA waits for so many while RECURRENT has work
    admission_scan_limit                 count   waiting requests looked at by one scan
    max_admission_bypasses               count   bypass count at which a deferred request stops the scan
    prefill_chunk_size                   tokens  of one request in one batch; a wavefront range
    max_prefill_batches_before_decode    count   prefill batches after which RECURRENT goes first
    policy                                       `fcfs` or `priority` (smaller is more urgent)
    enable_preemption                            swap requests out for slots (priority) and for KV
    wavefront                                    prefill range by range and depth by depth
    horizon_us                           us      no step starts at or after it; None: no horizon
    max_steps                            count   cap on engine steps; None: no cap
    on_livelock                                  `step`, `stop` or `skip` (see OnLivelock)
    ===================================  ======  ====================================================================
    """

    num_blocks: int = 1024
    block_size: int = 16
    max_loops: int = 4
    layout: str = "last_exited"
    incremental: bool = False
    prefix_caching: bool = False
    watermark_ratio: float = 0.0
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    mode: str = "refill"
    min_coda_batch_size: int = 1
    admission_scan_limit: int = 64
    max_admission_bypasses: int = 8
    prefill_chunk_size: int = 512
    max_prefill_batches_before_decode: int = 1
    policy: str = "priority"
    enable_preemption: bool = True
    wavefront: bool = False
    count_restores: bool = True
    blocked_checks_limit: bool = True
    horizon_us: int | None = None
    max_steps: int | None = None
    on_livelock: str = "stop"
    latency: StageLatency = field(default_factory=StageLatency)

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**30:
                raise InputError(f"engine.{name} = {value!r}: expected an integer from 1 to 2**30")
        for name, names in _NAMES.items():
            value = getattr(self, name)
            if value not in names:
                raise InputError(f"engine.{name} = {value!r}: expected one of {', '.join(names)}")
        if self.max_loops > 127:
            raise InputError(f"engine.max_loops = {self.max_loops}: expected at most 127")
        if not 0 <= self.watermark_ratio < 1:
            raise InputError(f"engine.watermark_ratio = {self.watermark_ratio!r}: expected 0 <= ratio < 1")
        for name in ("horizon_us", "max_steps"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= NO_LIMIT:
                raise InputError(f"run.{name} = {value!r}: expected an integer >= 0")
        if self.wavefront and self.layout != "last_exited":
            raise InputError(f"engine.layout = {self.layout!r}: wavefront prefill expects last_exited")
        if self.wavefront and self.prefill_chunk_size > self.max_num_batched_tokens:
            raise InputError(
                f"engine.prefill_chunk_size = {self.prefill_chunk_size}: wavefront prefill expects at most "
                f"max_num_batched_tokens = {self.max_num_batched_tokens}, or a range is never scheduled"
            )

    @property
    def planes(self) -> int:
        """Blocks of a page: one a depth plane."""
        return self.max_loops if self.layout == "last_exited" else 1

    def to_record(self) -> npt.NDArray[Any]:
        """The configuration as an array of one record of `CONFIG_DTYPE`."""
        record = np.zeros(1, CONFIG_DTYPE)
        for name in (*_COUNTS, *_FLAGS):
            record[name] = getattr(self, name)
        for item in fields(StageLatency):
            record[item.name] = getattr(self.latency, item.name)
        record["planes"] = self.planes
        record["headroom_blocks"] = int(self.watermark_ratio * self.num_blocks)
        record["mode"] = Mode[self.mode.upper()]
        record["policy"] = Policy[self.policy.upper()]
        record["on_livelock"] = OnLivelock[self.on_livelock.upper()]
        record["horizon_us"] = NO_LIMIT if self.horizon_us is None else self.horizon_us
        record["max_steps"] = NO_LIMIT if self.max_steps is None else self.max_steps
        return record


_COUNTS = (
    "num_blocks",
    "block_size",
    "max_loops",
    "max_num_seqs",
    "max_num_batched_tokens",
    "min_coda_batch_size",
    "admission_scan_limit",
    "max_admission_bypasses",
    "prefill_chunk_size",
    "max_prefill_batches_before_decode",
)
_FLAGS = (
    "incremental",
    "prefix_caching",
    "enable_preemption",
    "wavefront",
    "count_restores",
    "blocked_checks_limit",
)
_NAMES = {
    "layout": ("last_exited", "shared"),
    "mode": ("refill", "no_refill"),
    "policy": ("fcfs", "priority"),
    "on_livelock": ("step", "stop", "skip"),
}

CONFIG_DTYPE = np.dtype(
    [(name, np.int64) for name in (*_COUNTS, *_FLAGS)]
    + [
        ("planes", np.int64),
        ("headroom_blocks", np.int64),
        ("mode", np.int64),
        ("policy", np.int64),
        ("on_livelock", np.int64),
        ("horizon_us", np.int64),
        ("max_steps", np.int64),
    ]
    + [(item.name, np.float64) for item in fields(StageLatency)]
)
"""What a kernel reads: the keys of `RltConfig`, flags as 0 and 1, names as codes, the latency's coefficients."""
