"""Every knob of the scheduler, by vLLM's name where vLLM has it.

Engines with knobs of their own (`engine.blis.*`, `engine.rlt.*`) add a sub-model as one more field of EngineConfig.
"""

from typing import Annotated, Literal

from pydantic import Field

from fastsim.config.engine_blis import BlisKnobs
from fastsim.config.engine_rlt import RltKnobs
from fastsim.config.model import Model, Natural, Pause, Positive, Share, type_integer

EngineName = Literal["vllm-0.33.0", "vllm-0.16.0", "vllm-0.33.0-async", "blis", "vllm-rlt"]
Victim = Literal["tail", "priority", "least_computed", "most_computed", "least_generated", "most_blocks", "random"]
QueueOrder = Literal["fcfs", "priority", "sjf", "aging"]


class EngineConfig(Model):
    """The scheduler's knobs. What is None is resolved from other keys (config/derived.py) or means "off"."""

    name: EngineName = "vllm-0.33.0"
    """Which scheduler's rules hold."""

    # --- KV cache and batch ---
    num_gpu_blocks: Positive | None = None
    """KV blocks on the GPU, vLLM's null block included: under vLLM, usable are one fewer. Required."""
    block_size: Annotated[int, type_integer, Field(ge=1, le=2**20)] = 16
    """Tokens per KV block."""
    max_num_seqs: Positive = 256
    """Most requests running at once."""
    max_num_batched_tokens: Positive = 2048
    """Most tokens in one step."""
    max_num_scheduled_tokens: Positive | None = None
    """A second budget of tokens per step; off when none."""
    long_prefill_token_threshold: Natural = 0
    """Most tokens of one prefill in one step; 0 is off."""
    long_prefill_token_threshold_adaptive: bool = False
    """Raise the threshold to an even share of the budget when few requests are there."""
    enable_chunked_prefill: bool = True
    """Whether a prompt may be prefilled over several steps."""
    enable_prefix_caching: bool = True
    """Whether full blocks are shared and survive in the free list."""
    max_model_len: Positive = 8192
    """Most tokens of one request, prompt and output."""
    policy: Literal["fcfs", "priority"] = "fcfs"
    """vLLM's scheduling policy: sets the defaults of `queue_order` and `victim`."""
    scheduler_reserve_full_isl: bool | None = None
    """Admit a request only if all its known tokens fit. None: true, but false under vllm-0.16.0."""
    watermark: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.0
    """Share of all blocks that an admission must leave free."""
    max_num_active_seqs: Positive | None = None
    """Takes the place of `max_num_seqs` as the admission cap; off when none."""
    prefill_schedule_interval: Positive = 1
    """Least number of steps between two that prefill."""

    # --- front door ---
    max_num_queued_reqs: Positive | None = None
    """An arrival that finds this many requests waiting is rejected."""
    max_num_queued_tokens: Positive | None = None
    """An arrival that finds this many prompt tokens waiting is rejected."""

    # --- what a preemption costs ---
    preemption_mode: Literal["recompute", "restart", "swap"] = "recompute"
    """Recompute all tokens (vLLM), decode every output token again, or move blocks to the host."""
    swap_space_blocks: Natural = 0
    """Blocks of the host pool for `preemption_mode = "swap"`."""
    swap_us_per_block: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 0.0
    """Microseconds added to a step per block moved in or out."""

    # --- who is preempted ---
    victim: Victim | None = None
    """Which running request is preempted. None: tail under fcfs, priority under priority."""
    boost_after: Natural = 0
    """A request preempted this often is protected; 0 is off."""

    # --- who is admitted ---
    queue_order: QueueOrder | None = None
    """Order of the waiting queue. None: as `policy`."""
    aging_per_s: Pause = 0.1
    """For `queue_order = "aging"`: how much a second of arrival time weighs against one priority level."""
    admission: Literal["greedy", "projected"] = "greedy"
    """Whether expected final sizes must fit as well."""
    projection: Literal["oracle", "max_tokens", "mean"] = "oracle"
    """Expected output length of `admission = "projected"`: the true one, the declared limit, or the mean."""
    overcommit: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 1.0
    """Share of the usable blocks that expected sizes may take."""
    bypass: bool = False
    """Whether requests behind one that does not fit may be admitted, within limits."""
    admission_scan_limit: Positive = 64
    """Most waiting requests looked at in one scan under `bypass`."""
    max_admission_bypasses: Positive = 8
    """How often a waiting request may be passed over under `bypass`."""
    count_restores: bool = True
    """Whether re-admission of a preempted request counts as a bypass."""
    blocked_checks_limit: bool = True
    """Whether a preempted request that does not fit checks its own limit."""
    slot_preempt: bool = False
    """Whether a more urgent request may take the slot of a less urgent one."""
    slot_preempt_preflight: bool = True
    """Whether the candidate must pass every other test before a slot is taken for it."""

    # --- how many run ---
    running_cap: Literal["fixed", "auto", "feedback"] = "fixed"
    """max_num_seqs, the KV-safe limit, or a cap steered by preemptions."""
    feedback_rule: Literal["threshold", "consecutive", "proportional"] = "threshold"
    """How `running_cap = "feedback"` falls."""
    feedback_window: Positive = 100
    """Non-empty steps over which preemptions are counted."""
    feedback_threshold: Pause = 0.1
    """Preemptions per step above which the cap falls."""
    feedback_recovery: Positive = 100
    """Non-empty steps without a preemption after which the cap rises by one."""

    # --- what is refused ---
    backpressure_threshold: Pause = 0.0
    """Preemptions per non-empty step above which arrivals are refused or held; 0 is off."""
    backpressure_window: Positive = 100
    """Non-empty steps over which preemptions are counted."""
    backpressure_action: Literal["reject", "pace"] = "reject"
    """Refuse arrivals, or let one in per completion."""
    unservable: Literal["reject", "spin"] = "reject"
    """What happens to a request that can never fit: named and counted, or vLLM's endless empty steps."""

    # --- verdicts ---
    livelock_steps: Positive | None = None
    """Steps without progress that end a run. None: max(10,000, 4 x tokens of unfinished requests)."""
    starvation_window_s: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] = 30.0
    """Least interval between completions that can count as starvation."""
    thrash_threshold: Share = 0.1
    """Recomputed share of scheduled tokens above which a run is called thrashing."""

    # --- other engines ---
    blis: BlisKnobs = BlisKnobs()
    rlt: RltKnobs = RltKnobs()

    @property
    def is_vllm(self) -> bool:
        """Whether the scheduler is vLLM's own, of whatever release."""
        return self.name.startswith("vllm-0")

    @property
    def usable_blocks(self) -> int:
        """Blocks that requests can hold: under vLLM all but the null block."""
        return (self.num_gpu_blocks or 1) - self.is_vllm
