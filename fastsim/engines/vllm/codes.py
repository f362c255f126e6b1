"""Integer codes, as the kernels branch on them, and the configuration record they read.

A policy is one member here, one branch in one kernel, one branch in the oracle and one row of `fastsim policies`.
"""

from enum import IntEnum

import numpy as np

from fastsim.engines.step_fields import STEP_TIME


class QueueOrder(IntEnum):
    """Who is at the head of the waiting queue."""

    FCFS = 0  # arrival order; preempted requests return to the front
    PRIORITY = 1  # min (priority, arrival, index)
    SJF = 2  # min (prompt, arrival, index)
    AGING = 3  # min (priority + aging_per_s x arrival, arrival, index)
    POLICY = 4  # min (queue_key of `policy_file`, arrival, index)


class Victim(IntEnum):
    """Which running request gives its blocks up."""

    TAIL = 0
    PRIORITY = 1
    LEAST_COMPUTED = 2
    MOST_COMPUTED = 3
    LEAST_GENERATED = 4
    MOST_BLOCKS = 5
    RANDOM = 6
    POLICY = 7  # max victim_key of `policy_file`


class PreemptionMode(IntEnum):
    """What a preempted request loses."""

    RECOMPUTE = 0
    RESTART = 1
    SWAP = 2


class Admission(IntEnum):
    """Whether admission looks ahead."""

    GREEDY = 0
    PROJECTED = 1


class Projection(IntEnum):
    """What projected admission believes of an output's length."""

    ORACLE = 0
    MAX_TOKENS = 1
    MEAN = 2


class RunningCap(IntEnum):
    """What bounds the number of running requests below max_num_seqs."""

    FIXED = 0
    AUTO = 1
    FEEDBACK = 2


class FeedbackRule(IntEnum):
    """How a feedback cap reacts to preemptions."""

    THRESHOLD = 0
    CONSECUTIVE = 1
    PROPORTIONAL = 2


class BackpressureAction(IntEnum):
    """What backpressure does with arrivals."""

    REJECT = 0
    PACE = 1


class Unservable(IntEnum):
    """What becomes of a request that can never fit."""

    REJECT = 0
    SPIN = 1


class Reads(IntEnum):
    """What the answer of a policy's `admit` or `cap` depends on, as far as jumps in time are concerned."""

    STEADY = 0  # nothing that a jump changes
    ARRIVALS = 1  # how many wait
    STEPS = 2  # the clock, or what every step changes: it is asked for each of them
    HITS = 3  # prefix hits, which shrink in an unknown way as blocks are taken: no jump


NO_LIMIT = np.iinfo(np.int64).max
"""Stands for null where a limit is compared with."""

_INT_FIELDS = (
    "block_size",
    "block_shift",  # block_size is 2 to this power; -1: it is no power of two
    "num_gpu_blocks",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_num_scheduled_tokens",  # resolved: max_num_batched_tokens when null
    "max_model_len",
    "long_prefill_token_threshold",
    "long_prefill_token_threshold_adaptive",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "scheduler_reserve_full_isl",
    "watermark_blocks",  # int(watermark * num_gpu_blocks)
    "max_num_active_seqs",  # NO_LIMIT when null
    "prefill_schedule_interval",
    "queue_order",
    "victim",
    # The three rules that vLLM 0.33.0 changed against 0.16.0
    "freed_to_tail",
    "self_preemption_stops",
    "threshold_always",
    "asynchronous",
    # Remedies
    "preemption_mode",
    "swap_space_blocks",
    "boost_after",
    "admission",
    "projection",
    "bypass",
    "admission_scan_limit",
    "max_admission_bypasses",
    "count_restores",
    "blocked_checks_limit",
    "slot_preempt",
    "slot_preempt_preflight",
    "running_cap",
    "feedback_rule",
    "feedback_window",
    "feedback_recovery",
    "backpressure_action",
    "backpressure_window",
    "max_num_queued_reqs",  # NO_LIMIT when null
    "max_num_queued_tokens",
    "unservable",
    "livelock_steps",  # 0: derived from the unfinished work
    "timeout_us",  # NO_LIMIT when null
    "retry_after_us",
    "seed",
    "horizon_us",  # NO_LIMIT when null
    "max_steps",
    "fast_forward",
    "dense",  # may run in the dense loop
    "detect_livelock",
    "record",  # write the per-step record
    "window_tokens",  # of sliding-window layers; 0: none
    "table_knots",  # of the table of step times; 0: none
    "policy",  # a policy file decides something
    "policy_victim",  # addresses of its decisions; 0: it has none
    "policy_queue",
    "policy_admit",
    "policy_cap",
    "policy_queue_moves",  # the key of an arrival depends on when it is computed
    "policy_queue_changes",  # keys are computed anew at every scan
    "policy_admit_reads",  # Reads
    "policy_cap_reads",
    "layout",  # of groups and drafts (`fastsim.engines.vllm.groups.layouts`); 0: one full-attention group, no drafts
)

_FLOAT_FIELDS = (
    *STEP_TIME,
    "swap_us_per_block",
    "overcommit",
    "aging_per_s",
    "feedback_threshold",
    "backpressure_threshold",  # 0: off
)

CONFIG_DTYPE = np.dtype([(name, np.int64) for name in _INT_FIELDS] + [(name, np.float64) for name in _FLOAT_FIELDS])
"""One configuration as the kernels read it: every knob by its name, enums as codes, null resolved."""
