"""What can be said of a configuration before it runs: what never fits, how much is offered, and what that will lead to.

Closed forms over mean lengths, for one engine that decodes everybody in every step. With L requests running, a step
takes b0 + (b2 + b3 H) L plus the prefills that arrive meanwhile; by Little's law L is the arrival rate times the steps
of an output, so L = rate x O x b0 / (1 - rho), with rho the share of time that tokens alone take.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from fastsim.analysis.check.unservable import Cause, causes
from fastsim.config import Config, resolved
from fastsim.workload import Workload

EDGE = 0.8
"""Share of the KV cache in use, or of the capacity, from which fluctuations are taken to reach the whole."""


COEFFICIENTS = ("b0_us", "b1_us_per_prefill_token", "b2_us_per_decode_token", "b3_us_per_context_token")


class Regime(StrEnum):
    """What the bounds lead to expect. An estimate: order, bursts and policies are not in them."""

    HOLDS = "holds"
    EDGE = "near the edge"
    THRASH = "thrash"
    OVERLOAD = "overload"


@dataclass(frozen=True)
class Fit:
    """How a workload fits the KV cache of a configuration."""

    max_num_seqs: int
    usable_blocks: int
    blocks_per_request: int
    safe: int
    num_requests: int
    unservable: tuple[Cause, ...]
    max_model_len: int
    block_size: int

    @property
    def start_up_concurrency(self) -> float:
        """What vLLM prints as it starts: `Maximum concurrency for N tokens per request`, N being max_model_len."""
        return (self.usable_blocks + 1) * self.block_size / self.max_model_len

    @classmethod
    def of(cls, config: Config, workload: Workload) -> "Fit":
        """Count what can never fit, and how many requests fit at once at full decode.

        `safe` is the KV-safe number, everywhere: usable blocks over the blocks of a request of mean prompt and mean
        output (`kv_safe_num_seqs` of a row, `running_cap = "auto"`).
        """
        engine = config.engine
        usable = engine.usable_blocks
        mean = workload.mean_prompt_tokens + workload.mean_output_tokens
        per_request = max(1, int(-(-mean // engine.block_size)))
        return cls(
            engine.max_num_seqs,
            usable,
            per_request,
            max(1, usable // per_request),
            workload.num_requests,
            causes(config, workload),
            engine.max_model_len,
            engine.block_size,
        )


@dataclass(frozen=True)
class AverageLoad:
    """What a workload asks of a configuration, on average.

    Attributes
    ----------
    rate_per_s
        Arrivals a second, of a fleet at each replica; None in a closed loop or when all come at once.
    capacity_per_s
        Requests a second with as many running as slots and KV blocks allow.
    concurrency
        Requests that would run if nothing bounded them (at most all there are); in a closed loop, the clients.
    token_share
        Share of time that tokens alone take; None without a rate.
    fit, cap
        Requests that fit in the KV cache at the length at which they hold it (those that all come at once: at their
        full length, for they grow together), and that may run.
    kv_share
        Share of the KV cache that `concurrency` requests, at most `cap`, hold.
    looks_ahead
        Whether admission counts what running requests will still grow by.
    """

    rate_per_s: float | None
    capacity_per_s: float
    concurrency: float
    token_share: float | None
    fit: float
    cap: int
    kv_share: float
    looks_ahead: bool

    @property
    def capacity_share(self) -> float | None:
        """Arrivals over capacity; None without a rate."""
        return None if self.rate_per_s is None else self.rate_per_s / self.capacity_per_s

    @property
    def regime(self) -> Regime:
        """What to expect: blocks run out, the queue grows, neither, or nearly."""
        share = self.capacity_share or 0.0
        if self.kv_share > 1 and not self.looks_ahead:
            return Regime.THRASH
        if share > 1:
            return Regime.OVERLOAD
        return Regime.EDGE if max(self.kv_share, share) > EDGE else Regime.HOLDS


def load_of(config: Config, workload: Workload) -> AverageLoad | None:
    """The load that a workload is on an engine of vLLM's, or on each replica of it; None without requests."""
    if workload.num_requests == 0:
        return None
    filled = resolved(config)
    engine = filled.engine
    prompt = workload.prompt_tokens.astype(np.float64)
    output = np.clip(np.minimum(prompt + workload.output_tokens, engine.max_model_len) - prompt, 1, None)
    outputs, prompts = float(output.mean()), float(prompt.mean())
    together = not workload.concurrency and _rate_per_s(workload) is None
    grown = output if together else output / 2
    held = float(((prompt + grown) * output).sum() / output.sum())  # weighed by the time for which it is held
    b0, b1, b2, b3 = (each / 1e6 for each in _linear(filled))
    each = b2 + b3 * held
    fit = max(engine.usable_blocks * engine.block_size / held, 1.0)
    cap = min(engine.max_num_seqs, engine.max_num_active_seqs or engine.max_num_seqs)
    if engine.running_cap == "auto":
        cap = min(cap, Fit.of(config, workload).safe)
    most = min(cap, fit)
    lasts_s = outputs * (b0 + each * most) + most * b1 * prompts
    capacity = most / lasts_s if lasts_s > 0 else float("inf")
    replicas = filled.fleet.replicas
    rate = _rate_per_s(workload)
    rate = None if rate is None else rate / replicas
    wanted = float(workload.concurrency or workload.num_requests) / replicas
    share = None
    if rate is not None:
        share = rate * (b1 * prompts + each * outputs)
        wanted = min(wanted, rate * outputs * b0 / (1 - share)) if share < 1 else wanted
    looks_ahead = engine.admission == "projected" and engine.overcommit <= 1
    return AverageLoad(rate, capacity, wanted, share, fit, cap, min(wanted, cap) / fit, looks_ahead)


def _linear(config: Config) -> tuple[float, float, float, float]:
    """The four coefficients in microseconds; those that stand for a table between one decode and a full batch."""
    latency, engine = config.latency, config.engine
    b0, b1, b2, b3 = (float(config.value(f"latency.{name}")) for name in COEFFICIENTS)
    if latency.table_tokens is None or latency.table_us is None:
        return b0, b1, b2, b3

    def table(tokens: int) -> float:
        return latency.table_scale * float(np.interp(tokens, latency.table_tokens or (), latency.table_us or ()))

    most, budget = engine.max_num_seqs, engine.max_num_batched_tokens
    slope = (table(most) - table(1)) / max(most - 1, 1)
    chunk = max(table(budget) - table(1), 0.0) / budget + (latency.b5_us_per_prefill_step or 0.0) / budget
    return b0 + table(1) - slope, b1 + chunk, b2 + slope, b3


def _rate_per_s(workload: Workload) -> float | None:
    """Arrivals a second over the time they come in."""
    if workload.concurrency or workload.num_requests < 2:
        return None
    span_us = int(workload.arrival_us.max() - workload.arrival_us.min())
    return (workload.num_requests - 1) / span_us * 1e6 if span_us > 0 else None
