"""Configurations of vllm-rlt in its own words, as records: for tests that change one thing after the other."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.engines.outputs import ITL_BINS, TOTALS_DTYPE, RequestLog, new_request_log
from fastsim.engines.rlt.codes import Mode, OnLivelock, Policy
from fastsim.engines.rlt.inputs import RltWorkload, open_loop, with_page_keys
from fastsim.engines.rlt.kernel import run_many
from fastsim.engines.rlt.records import CONFIG_DTYPE, NO_LIMIT
from fastsim.engines.rlt.runner import RltResult, simulate_records, state_for
from fastsim.engines.rlt.state import RLT_TOTALS_DTYPE, new_scalars
from fastsim.workload import Workload

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


def simulate_rlt(config: RltConfig, workload: RltWorkload, *, record: bool = False) -> RltResult:
    """Run one configuration."""
    return simulate_records(config.to_record(), workload, record=record)


def run_configs(
    configs: Sequence[RltConfig], workload: RltWorkload
) -> tuple[RequestLog, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.int64]]:
    """(log, totals, extras, itl_histograms) of many configurations on one workload, in one call."""
    count = len(configs)
    logs = new_request_log(count * workload.num_requests)
    totals = np.zeros(count, TOTALS_DTYPE)
    extras = np.zeros(count, RLT_TOTALS_DTYPE)
    histograms = np.zeros((count, ITL_BINS), np.int64)
    records = np.concatenate([config.to_record() for config in configs])
    state = state_for(records, workload)
    run_many(records, new_scalars(workload.num_requests), state, logs, totals, extras, histograms)
    return logs, totals, extras, histograms


def workload_for(workload: Workload, config: RltConfig) -> RltWorkload:
    """The engine's view of a workload under a configuration."""
    plain = open_loop(workload)
    return with_page_keys(plain, workload, config.block_size) if config.prefix_caching else plain
