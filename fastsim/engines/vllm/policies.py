"""vLLM's rows of `fastsim policies`: what its knobs decide, where that comes from, and how to turn it on."""

from fastsim.engines.declaration import PolicyRow

BLIS, RLT, DISCUSSION = "BLIS", "vllm-rlt", "BLIS discussion"
"""Where policies come from that vLLM does not have."""


def _policy(name: str, turn_on: str, what: str, origin: str, knobs: str) -> PolicyRow:
    keys = tuple(knob if "." in knob else f"engine.{knob}" for knob in knobs.split())
    return PolicyRow(name, turn_on, what, origin, keys)


POLICIES = (
    # --- what a preemption costs ---
    _policy(
        "recompute", "engine.preemption_mode=recompute",
        "Blocks are freed, generated tokens kept; all tokens are prefilled again, in chunks.",
        "vLLM 0.16.0, 0.33.0 (default)", "preemption_mode",
    ),
    _policy(
        "restart", "engine.preemption_mode=restart",
        "Output is thrown away too: every token is decoded again.",
        f"{BLIS}; {DISCUSSION}", "preemption_mode",
    ),
    _policy(
        "swap", "engine.preemption_mode=swap",
        "Blocks move to a pool on the host and back, for time per block; recompute when the pool is full.",
        f"vLLM v0; {BLIS}'s tiered cache", "preemption_mode swap_space_blocks swap_us_per_block",
    ),
    _policy(
        "prefix caching", "engine.enable_prefix_caching=true",
        "Full blocks stay findable after they are freed: a preempted request may find its own again (salvage).",
        f"vLLM 0.16.0, 0.33.0 (default); {DISCUSSION} (partial progress)", "enable_prefix_caching block_size",
    ),
    # --- who is preempted ---
    _policy(
        "victim", "engine.victim=least_computed",
        "Which running request gives up its blocks: the last (vLLM), the least urgent, or by progress, size or "
        "lot.",
        f"vLLM 0.33.0 (tail, priority); {DISCUSSION} (progress-aware)", "victim policy",
    ),
    _policy(
        "boost", "engine.boost_after=3",
        "After so many preemptions a request is protected and first in line.",
        DISCUSSION + " (anti-starvation)", "boost_after",
    ),
    # --- who is admitted ---
    _policy(
        "full-ISL gate", "engine.scheduler_reserve_full_isl=true",
        "Admit a request only if all its known tokens fit, not just the first chunk.",
        "vLLM 0.33.0 (default); not in 0.16.0", "scheduler_reserve_full_isl",
    ),
    _policy(
        "watermark", "engine.watermark=0.05",
        "An admission must leave this share of all blocks free.",
        "vLLM 0.33.0 (change 44594)", "watermark",
    ),
    _policy(
        "projected admission", "engine.admission=projected",
        "Expected final sizes of all running requests must fit: by true length, declared limit, or mean.",
        f"{DISCUSSION} (projected capacity)", "admission projection overcommit",
    ),
    _policy(
        "bypass", "engine.bypass=true",
        "Requests behind one that does not fit may go first, so many times.",
        f"{RLT} (both flags false: its accounting before the fix of a livelock)",
        "bypass admission_scan_limit max_admission_bypasses count_restores blocked_checks_limit",
    ),
    _policy(
        "slot preemption", "engine.slot_preempt=true",
        "With all slots taken, a more urgent request takes that of a less urgent one.",
        f"{RLT}; asked for in vLLM reports 11361, 40004", "slot_preempt slot_preempt_preflight",
    ),
    _policy(
        "queue order", "engine.queue_order=sjf",
        "Who is next: first come, most urgent, shortest prompt, or urgency that grows with the wait.",
        "vLLM 0.33.0 (fcfs, priority); literature (sjf, aging)", "queue_order policy aging_per_s",
    ),
    # --- how many run ---
    _policy(
        "fixed cap", "engine.running_cap=fixed",
        "At most max_num_seqs run.",
        "vLLM 0.16.0, 0.33.0 (default)", "running_cap max_num_seqs max_num_active_seqs",
    ),
    _policy(
        "automatic cap", "engine.running_cap=auto",
        "At most as many as fit at full length, by mean lengths.",
        f"{DISCUSSION} (right-sizing)", "running_cap",
    ),
    _policy(
        "feedback cap", "engine.running_cap=feedback",
        "The cap falls when preemptions are frequent and rises one by one when there are none.",
        f"{DISCUSSION} (adaptive batch size)",
        "running_cap feedback_rule feedback_window feedback_threshold feedback_recovery",
    ),
    # --- what you write yourself ---
    _policy(
        "your own", "engine.policy_file=my_policy.py",
        "Your Python functions: who is preempted, who is next, whether it may start, how many run "
        "(`fastsim check-policy`).",
        "you", "policy_file",
    ),
    # --- how tokens are shared out ---
    _policy(
        "token budget", "engine.max_num_batched_tokens=2048",
        "Most tokens of a step, decode before prefill.",
        "vLLM 0.16.0, 0.33.0", "max_num_batched_tokens max_num_scheduled_tokens",
    ),
    _policy(
        "chunked prefill", "engine.enable_chunked_prefill=true",
        "Prompts may be prefilled over several steps, long ones in small chunks, or only every so many steps.",
        "vLLM 0.16.0, 0.33.0",
        "enable_chunked_prefill long_prefill_token_threshold long_prefill_token_threshold_adaptive "
        "prefill_schedule_interval",
    ),
    # --- what is refused ---
    _policy(
        "backpressure", "engine.backpressure_threshold=0.1",
        "While preemptions are frequent, arrivals are refused, or held and let in one per completion.",
        f"{DISCUSSION} (admission backpressure)",
        "backpressure_threshold backpressure_window backpressure_action",
    ),
    _policy(
        "queue limits", "engine.max_num_queued_reqs=100",
        "An arrival that finds the queue full is refused.",
        "vLLM 0.33.0's front door", "max_num_queued_reqs max_num_queued_tokens",
    ),
    _policy(
        "client timeout", "workload.timeout_s=60",
        "Clients give up after a while, and refused ones of a closed loop come again.",
        "clients, not engines", "workload.timeout_s workload.retry_after_s",
    ),
    _policy(
        "unservable", "engine.unservable=reject",
        "A request that can never fit is named and counted, or spins for ever as in vLLM.",
        "fastsim (reject); vLLM 0.33.0 (spin)", "unservable",
    ),
)  # fmt: skip
