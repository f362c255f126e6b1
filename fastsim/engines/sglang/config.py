"""Configuration of the engine: checked once in Python, handed to the kernels as one record."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastsim.engines.sglang.codes import NO_LIMIT, Policy, Retraction
from fastsim.errors import InputError


@dataclass(frozen=True, slots=True)
class SglangConfig:
    """One configuration of SGLang 0.5.23's scheduler; names and defaults as SGLang's.

    ==========================================  ======  =============================================================
    key                                         unit    meaning
    ==========================================  ======  =============================================================
    max_total_tokens                            tokens  the KV pool; whole pages of it are used
    page_size                                   tokens
    max_running_requests                        count   request slots
    context_length                              tokens
    chunked_prefill_size                        tokens  of new prompt in one batch; -1: off
    max_prefill_tokens                          tokens  of one prefill batch, counted after each admission
    prefill_max_requests                        count   requests of one prefill batch; None: no cap
    enable_mixed_chunk                                  prefill batches carry the decodes; only with chunking
    schedule_policy                                     `fcfs`, `lpm`, `lof`
    schedule_conservativeness                           scales the share of future tokens that admission reserves
    disable_radix_cache
    enable_priority_scheduling                          order by priority, then by entry into the queue
    schedule_low_priority_values_first                  whether smaller is more urgent
    priority_scheduling_preemption_threshold            a victim's urgency is lower by more than this
    disable_priority_preemption
    retraction_policy                                   `length`: least generated first; `priority`
    prefill_decode_interval                     count   passes between prefill batches
    disable_overlap_schedule                            whether a batch waits for the output of the one before it
    clip_max_new_tokens                         tokens  most that is reserved for one request
    init_new_token_ratio
    min_new_token_ratio_factor
    new_token_ratio_decay_steps                 count
    retract_decode_steps                        tokens  reserved for each request left at a retraction
    in_batch_check_threshold                    tokens  lpm: longest cached prefix that is compared within the queue
    in_batch_deprioritize_threshold             tokens  lpm: shared prefix that puts a request off
    beta0, beta1, beta2                         us      a step: base, a token of prefill, a decoding request
    horizon_us                                  us      no step starts at or after it; None: no horizon
    max_steps                                   count   cap on batches; None: no cap
    fast_forward                                        jump over steps that only decode; the results are the same
    ==========================================  ======  =============================================================
    """

    max_total_tokens: int
    page_size: int = 1
    max_running_requests: int = 256
    context_length: int = 131072
    chunked_prefill_size: int = 8192
    max_prefill_tokens: int = 16384
    prefill_max_requests: int | None = None
    enable_mixed_chunk: bool = False
    schedule_policy: str = "fcfs"
    schedule_conservativeness: float = 1.0
    disable_radix_cache: bool = False
    enable_priority_scheduling: bool = False
    schedule_low_priority_values_first: bool = False
    priority_scheduling_preemption_threshold: int = 10
    disable_priority_preemption: bool = False
    retraction_policy: str = "length"
    prefill_decode_interval: int = 0
    disable_overlap_schedule: bool = False
    clip_max_new_tokens: int = 4096
    init_new_token_ratio: float = 0.7
    min_new_token_ratio_factor: float = 0.14
    new_token_ratio_decay_steps: int = 600
    retract_decode_steps: int = 20
    in_batch_check_threshold: int = 32
    in_batch_deprioritize_threshold: int = 32
    beta0: float = 5752.71
    beta1: float = 17.25
    beta2: float = 6.0
    horizon_us: int | None = None
    max_steps: int | None = None
    fast_forward: bool = True

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if name in _OPTIONAL and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise InputError(f"engine.{name} = {value!r}, but an integer from {low} to {high} was expected")
        for name, names in _NAMES.items():
            if getattr(self, name) not in names:
                raise InputError(f"engine.{name} = {getattr(self, name)!r}, but one of {', '.join(names)} was expected")
        for name in _FLOATS:
            value = getattr(self, name)
            if not 0 <= value <= 1e12:
                raise InputError(f"engine.{name} = {value!r}, but a number from 0 to 1e12 was expected")
        if self.max_total_tokens < self.page_size:
            raise InputError(
                f"engine.max_total_tokens = {self.max_total_tokens}, but at least one page "
                f"(page_size = {self.page_size}) was expected"
            )
        if self.chunked_prefill_size == 0:
            raise InputError("engine.chunked_prefill_size = 0, but -1 (off) or at least 1 was expected")
        if self.enable_priority_scheduling and self.schedule_policy == "lpm":
            raise InputError(
                "engine.schedule_policy = 'lpm', but fcfs or lof was expected with enable_priority_scheduling"
            )
        if self.retraction_policy == "priority" and not self.enable_priority_scheduling:
            raise InputError(
                "engine.retraction_policy = 'priority', but 'length' was expected without enable_priority_scheduling"
            )

    @property
    def pool(self) -> int:
        """Tokens of the pool that can be used: whole pages."""
        return self.max_total_tokens // self.page_size * self.page_size

    def to_record(self) -> npt.NDArray[np.void]:
        """The configuration as an array of one record of `CONFIG_DTYPE`."""
        record = np.zeros(1, CONFIG_DTYPE)
        for name in CONFIG_DTYPE.names or ():
            if name in _NAMES or name in _DERIVED or name in _NOT_OURS:
                continue
            value = getattr(self, name)
            record[name] = NO_LIMIT if value is None else value
        record["schedule_policy"] = Policy[self.schedule_policy.upper()]
        record["retraction_policy"] = Retraction[self.retraction_policy.upper()]
        derive(record)
        return record


def derive(records: npt.NDArray[np.void]) -> None:
    """Fill what follows from the other fields of CONFIG_DTYPE records."""
    records["pool"] = records["max_total_tokens"] // records["page_size"] * records["page_size"]
    has_chunks = records["chunked_prefill_size"] > 0
    records["chunks"] = has_chunks
    records["mixes"] = has_chunks & (records["enable_mixed_chunk"] != 0)
    records["preempts"] = (records["enable_priority_scheduling"] != 0) & (records["disable_priority_preemption"] == 0)
    records["urgency_sign"] = np.where(records["schedule_low_priority_values_first"] != 0, -1, 1)
    records["init_ratio"] = np.minimum(records["init_new_token_ratio"] * records["schedule_conservativeness"], 1.0)
    records["min_ratio"] = np.minimum(records["init_ratio"] * records["min_new_token_ratio_factor"], 1.0)
    records["decay"] = (records["init_ratio"] - records["min_ratio"]) / records["new_token_ratio_decay_steps"]


_RANGES = {
    "max_total_tokens": (1, 2**40),
    "page_size": (1, 2**20),
    "max_running_requests": (1, 2**30),
    "context_length": (1, 2**40),
    "chunked_prefill_size": (-1, 2**40),
    "max_prefill_tokens": (1, 2**40),
    "prefill_max_requests": (1, 2**30),
    "priority_scheduling_preemption_threshold": (-(2**40), 2**40),
    "prefill_decode_interval": (0, 2**40),
    "clip_max_new_tokens": (0, 2**40),
    "new_token_ratio_decay_steps": (1, 2**40),
    "retract_decode_steps": (0, 2**30),
    "in_batch_check_threshold": (0, 2**40),
    "in_batch_deprioritize_threshold": (0, 2**40),
    "horizon_us": (0, NO_LIMIT),
    "max_steps": (0, NO_LIMIT),
}
_OPTIONAL = ("prefill_max_requests", "horizon_us", "max_steps")
_NAMES = {
    "schedule_policy": tuple(policy.name.lower() for policy in Policy),
    "retraction_policy": tuple(policy.name.lower() for policy in Retraction),
}
_FLOATS = (
    "schedule_conservativeness",
    "init_new_token_ratio",
    "min_new_token_ratio_factor",
    "beta0",
    "beta1",
    "beta2",
)
_FLAGS = (
    "enable_mixed_chunk",
    "disable_radix_cache",
    "enable_priority_scheduling",
    "schedule_low_priority_values_first",
    "disable_priority_preemption",
    "disable_overlap_schedule",
    "fast_forward",
)
_NOT_OURS = ("ignore_eos",)
"""Of the workload: read before the kernels run."""
_DERIVED = ("pool", "chunks", "mixes", "preempts", "urgency_sign", "init_ratio", "min_ratio", "decay")

CONFIG_DTYPE = np.dtype(
    [(name, np.int64) for name in (*_RANGES, *_NAMES, *_FLAGS, *_NOT_OURS, *_DERIVED[:5])]
    + [(name, np.float64) for name in (*_FLOATS, *_DERIVED[5:])]
)
"""What a kernel reads: the keys of `SglangConfig`, flags as 0 and 1, names as codes, and what follows from them."""
