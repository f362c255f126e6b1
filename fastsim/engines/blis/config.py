"""Configuration of the engine: checked once in Python, handed to the kernels as one record."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.engines.blis.codes import NO_LIMIT, PreemptionPolicy, Scheduler
from fastsim.errors import InputError

_INTS = (
    "total_kv_blocks",
    "block_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "long_prefill_token_threshold",
    "scheduler",
    "preemption_policy",
    "max_model_len",
    "kv_cpu_blocks",
    "block_transfer_us",  # moving one block from the CPU
    "rollback_leak",
    "horizon_us",
    "max_steps",
    "fast_forward",
    "output_token_us",  # trunc(alpha2)
    "timeout_us",  # how long clients wait; 0: for ever. Kernels read the deadlines that are made of it
)
_FLOATS = ("alpha0_us", "alpha1_us", "beta0_us", "beta1_us", "beta2_us")
CONFIG_DTYPE = np.dtype([(name, np.int64) for name in _INTS] + [(name, np.float64) for name in _FLOATS])
"""One configuration as the kernels read it. `horizon_us` and `max_steps` are NO_LIMIT when there is none."""

_LONGEST_US = 2**40
_MOST = {"total_kv_blocks": 2**30, "block_size": 2**20, "kv_cpu_blocks": 2**30}


@dataclass(frozen=True, slots=True)
class BlisConfig:
    """One configuration; names are BLIS's flags.

    ============================  =======  ==========================================================================
    key                           unit     meaning
    ============================  =======  ==========================================================================
    total_kv_blocks               blocks   GPU KV cache
    block_size                    tokens   tokens in a block
    max_num_seqs                  count    most running requests
    max_num_batched_tokens        tokens   most tokens in a step
    long_prefill_token_threshold  tokens   longest prefill chunk; 0: no limit but the budget
    scheduler                              fcfs, sjf, priority-fcfs or reverse-priority
    preemption_policy                      fcfs or priority
    max_model_len                 tokens   longer requests are dropped; 0: none is
    kv_cpu_blocks                 blocks   CPU tier; 0: none
    kv_transfer_bandwidth         tok/us   of reloading from the CPU tier
    kv_transfer_base_latency_us   us       of reloading one block
    alpha                         us       queueing: base and per prompt token; then per output token
    beta                          us       step: base, per prefill token, per decode token
    horizon_us                    us       no event later than this is executed; None: run to the end
    max_steps                     steps    None: no limit (a horizon is then needed)
    rollback_leak                          the block leak of March 2026 (before inference-sim change 1068)
    fast_forward                           skip steps that change nothing but lengths; never changes a number
    ============================  =======  ==========================================================================

    With `rollback_leak`, a decode allocation that finds no free block drops the requester's block table first: its
    blocks then belong to nobody and are never free again.

    Raises
    ------
    InputError
        When a value is outside its range.
    """

    total_kv_blocks: int = 7463
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    long_prefill_token_threshold: int = 0
    scheduler: str = "fcfs"
    preemption_policy: str = "fcfs"
    max_model_len: int = 0
    kv_cpu_blocks: int = 0
    kv_transfer_bandwidth: float = 100.0
    kv_transfer_base_latency_us: int = 0
    alpha: tuple[float, float, float] = (232.46, 1.75, 3357.44)
    beta: tuple[float, float, float] = (5752.71, 17.25, 6.0)
    horizon_us: int | None = None
    max_steps: int | None = 50_000_000
    rollback_leak: bool = False
    fast_forward: bool = True

    def __post_init__(self) -> None:
        positive = ("total_kv_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens")
        for name in positive:
            _check_integer(name, getattr(self, name), 1, _MOST.get(name, 2**31 - 1))
        for name in ("long_prefill_token_threshold", "max_model_len", "kv_cpu_blocks", "kv_transfer_base_latency_us"):
            _check_integer(name, getattr(self, name), 0, _MOST.get(name, 2**31 - 1))
        for name in ("horizon_us", "max_steps"):
            if getattr(self, name) is not None:
                _check_integer(name, getattr(self, name), 1, 2**60)
        _member("scheduler", self.scheduler, Scheduler)
        _member("preemption_policy", self.preemption_policy, PreemptionPolicy)
        if not (math.isfinite(self.kv_transfer_bandwidth) and self.kv_transfer_bandwidth > 0):
            raise InputError(
                f"engine.blis.kv_transfer_bandwidth = {self.kv_transfer_bandwidth!r}: "
                "expected a finite number of tokens per microsecond > 0"
            )
        for name, coefficients in (("latency.alpha", self.alpha), ("latency.beta", self.beta)):
            if len(coefficients) != 3 or not all(math.isfinite(c) and c >= 0 for c in coefficients):
                raise InputError(f"{name} = {coefficients!r}: expected three finite numbers of microseconds >= 0")
        longest = self.beta[0] + self.beta[1] * self.max_num_batched_tokens + self.beta[2] * self.max_num_seqs
        if longest >= _LONGEST_US:
            raise InputError(f"latency.beta = {self.beta!r}: a full step would take {longest:.3g} us, expected < 2**40")
        if self.horizon_us is None and self.max_steps is None:
            raise InputError("run.horizon_s and run.max_steps are both off: expected a limit on a run that may not end")

    def record(self) -> npt.NDArray[Any]:
        """The configuration as an array of CONFIG_DTYPE, shape (1,)."""
        out = np.zeros(1, CONFIG_DTYPE)
        row = out[0]
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in _INTS and not isinstance(value, str):
                row[item.name] = NO_LIMIT if value is None else int(value)
        row["scheduler"] = _member("scheduler", self.scheduler, Scheduler)
        row["preemption_policy"] = _member("preemption_policy", self.preemption_policy, PreemptionPolicy)
        row["block_transfer_us"] = self.kv_transfer_base_latency_us + math.ceil(
            self.block_size / self.kv_transfer_bandwidth
        )
        row["output_token_us"] = math.trunc(self.alpha[2])
        for name, value in zip(_FLOATS, (*self.alpha[:2], *self.beta), strict=True):
            row[name] = value
        return out


def config_records(configs: Sequence[BlisConfig]) -> npt.NDArray[Any]:
    """Configurations as one array of CONFIG_DTYPE, shape (len(configs),)."""
    return np.concatenate([config.record() for config in configs]) if configs else np.zeros(0, CONFIG_DTYPE)


def _check_integer(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise InputError(f"engine.blis.{name} = {value!r}: expected an integer from {low} to {high}")


def _member(name: str, value: str, codes: type[Scheduler] | type[PreemptionPolicy]) -> int:
    key = value.upper().replace("-", "_")
    if key not in codes.__members__:
        names = ", ".join(code.name.lower().replace("_", "-") for code in codes)
        raise InputError(f"engine.blis.{name} = {value!r}: expected one of {names}")
    return int(codes[key])
