"""Knobs that only BLIS has: the keys below `engine.blis.`, by the names of its flags.

Those it shares with vLLM are below `engine.`: num_gpu_blocks (BLIS: --total-kv-blocks), block_size, max_num_seqs,
max_num_batched_tokens and long_prefill_token_threshold.
"""

from typing import Annotated, Literal

from pydantic import Field

from fastsim.engines.blis.limits import limits
from fastsim.engines.clock import ENDS, LONGEST_RUN_US, fits, overflow
from fastsim.engines.declaration import Engine, OwnColumn, PolicyRow
from fastsim.model import Model, Natural
from fastsim.rule import Effect, Rule, absent

NAME = "blis"


class BlisKnobs(Model):
    """BLIS's scheduler, its preemption, and its second tier of blocks."""

    scheduler: Literal["fcfs", "sjf", "priority-fcfs", "reverse-priority"] = "fcfs"
    """Order of the waiting queue; sjf by prompt, the last two by `workload.priority` (smaller is more urgent)."""
    preemption_policy: Literal["fcfs", "priority"] = "fcfs"
    """Who is evicted: the last of the running list, or the least urgent and of those the latest to arrive."""
    max_model_len: Natural = 0
    """Longer requests are dropped at their arrival; 0: none is."""
    kv_cpu_blocks: Natural = 0
    """Blocks of the CPU tier; 0: no tier."""
    kv_transfer_bandwidth: Annotated[float, Field(ge=1e-6, le=1e12, allow_inf_nan=False)] = 100.0
    """Tokens per microsecond of a reload from the CPU tier."""
    kv_transfer_base_latency_us: Natural = 0
    """Microseconds that a reload of one block takes besides its tokens."""
    rollback_leak: bool = False
    """The block leak of March 2026: a decode step that finds no free block first loses all blocks of its request."""


def _reload_fits(
    cpu_blocks: int,
    base_us: int,
    tokens_per_us: float,
    block_size: int,
    gpu_blocks: int | None,
    max_steps: int,
    horizon_s: float | None,
) -> bool:
    """Whether a time for each block that comes back from the CPU leaves the clock far from its end."""
    block_us = base_us + 1 + block_size / tokens_per_us
    return fits(block_us * (cpu_blocks + (gpu_blocks or 0) if cpu_blocks else 1), max_steps, horizon_s)


RULES = (
    absent(NAME, "latency.b3_us_per_context_token", 0, "step time by context"),
    absent(NAME, "workload.concurrency", None, "closed loop"),
    Rule(
        (
            "engine.blis.kv_cpu_blocks",
            "engine.blis.kv_transfer_base_latency_us",
            "engine.blis.kv_transfer_bandwidth",
            "engine.block_size",
            "engine.num_gpu_blocks",
            *ENDS,
        ),
        _reload_fits,
        overflow(
            "engine.blis.kv_transfer_base_latency_us = {1} and engine.blis.kv_transfer_bandwidth = {2} with {4} GPU "
            "and {0} CPU blocks of {3} tokens",
            5,
        ),
        monotone=True,
    ),
    Rule(  # the time from arrival to queue of the longest prompt there can be; the three do not grow with one another
        ("latency.alpha",),
        lambda alpha: max(alpha) * 2.0**31 <= LONGEST_RUN_US,
        f"latency.alpha = {{0}}, but at most {LONGEST_RUN_US / 2**31:.3g} each was expected, or the clock may overflow",
        monotone=True,
    ),
)

ENGINE = Engine(
    folder="blis",
    names=(NAME,),
    table="blis",
    knobs=BlisKnobs,
    own_keys=("latency.alpha",),
    reads=frozenset(("long_prefill_token_threshold",)),
    instead={"max_model_len": "engine.blis.max_model_len", "policy": "engine.blis.scheduler"},
    rules=RULES,
    limits=limits,
    effects=(
        Effect(
            ("engine.blis.kv_transfer_bandwidth", "engine.blis.kv_transfer_base_latency_us"),
            ("engine.blis.kv_cpu_blocks",),
            lambda blocks: blocks > 0,
            "engine.blis.kv_cpu_blocks is 0",
        ),
    ),
    policies=(
        PolicyRow(
            "BLIS scheduler",
            "engine.blis.scheduler=sjf",
            "Under engine.name=blis: who is next, who is evicted, and which requests are dropped at arrival.",
            "BLIS",
            ("engine.blis.scheduler", "engine.blis.preemption_policy", "engine.blis.max_model_len"),
        ),
        PolicyRow(
            "BLIS CPU tier",
            "engine.blis.kv_cpu_blocks=2000",
            "Under engine.name=blis: full blocks are kept on the host too and reloaded, for time per block.",
            "BLIS",
            (
                "engine.blis.kv_cpu_blocks",
                "engine.blis.kv_transfer_bandwidth",
                "engine.blis.kv_transfer_base_latency_us",
            ),
        ),
        PolicyRow(
            "BLIS block leak",
            "engine.blis.rollback_leak=true",
            "Under engine.name=blis: the leak behind the discussion's 0 completed requests, fixed since.",
            "BLIS a393b435 (March 2026)",
            ("engine.blis.rollback_leak",),
        ),
    ),
    columns=tuple(
        OwnColumn(f"blis_{kind}_{part}_ms", "ms", f"{part} of {what}", "less")
        for kind, what in (("e2e", "BLIS's own E2E, TTFT and its gaps added up"), ("itl", "BLIS's own token gaps"))
        for part in ("mean", "p90", "p95", "p99")
    ),
    context_time=False,
)
