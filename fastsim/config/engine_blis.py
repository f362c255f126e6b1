"""Knobs that only BLIS has: the keys below `engine.blis.`, by the names of its flags.

Those it shares with vLLM are below `engine.`: num_gpu_blocks (BLIS: --total-kv-blocks), block_size, max_num_seqs,
max_num_batched_tokens and long_prefill_token_threshold.
"""

from typing import Annotated, Literal

from pydantic import Field

from fastsim.config.model import Model, Natural


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
