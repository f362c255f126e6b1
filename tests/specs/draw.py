"""A random spec: every key of every engine, at the borders where arrays end.

Lengths, blocks and limits are drawn in relation to one another: prompts around the pool, around max_model_len and far
beyond both, prefixes longer than any prompt, more clients than requests, clocks that pass what 32 bits hold.
"""

import random
from pathlib import Path
from typing import Any

Spec = dict[str, Any]
ENGINES = (
    *("vllm-0.33.0", "vllm-0.33.0", "vllm-0.16.0", "vllm-0.33.0-async", "vllm-0.33.0-async"),
    *("blis", "vllm-rlt", "sglang-0.5.23", "trtllm"),
)
DATA = Path(__file__).parent.parent / "data"
TRACES = ("mooncake_conversation_first300.jsonl", "azure2023_conv_first2000.csv")
POLICIES = sorted((Path(__file__).parent.parent.parent / "sweeps" / "policies").glob("*.py"))
LARGEST = 2**31 - 1


def random_spec(seed: int) -> Spec:
    """Dotted keys and their values. Most specs are valid; the others break one rule, and a sentence must say so."""
    rng = random.Random(f"spec {seed}")
    engine = rng.choice(ENGINES)
    pool = _pool(rng)
    spec = {"engine.name": engine} | pool
    tokens = pool["engine.block_size"] * pool["engine.num_gpu_blocks"]
    spec |= _workload(rng, engine, min(tokens, 4000), "workload.")
    if rng.random() < 0.2 and "workload.concurrency" not in spec and "workload.trace" not in spec:
        spec |= _classes(rng, engine, min(tokens, 4000))
    spec |= _latency(rng) | _run(rng) | _metrics(rng)
    if engine == "blis":
        spec |= _blis(rng, tokens)
    elif engine == "vllm-rlt":
        spec |= _rlt(rng, spec)
    elif engine.startswith("sglang"):
        spec |= _sglang(rng, spec, min(tokens, 4000))
    elif engine == "trtllm":
        spec |= _trtllm(rng, spec)
    else:
        spec |= _vllm(rng, spec, min(tokens, 4000))
        if rng.random() < 0.25:
            spec |= _step_table(rng)
        if engine.startswith("vllm-0.33.0") and rng.random() < 0.25:
            spec = _groups_and_drafts(rng, spec)
    if engine.startswith("vllm-0"):
        spec = _with_policy(random.Random(f"policy {seed}"), spec)
    spec |= _fleet(random.Random(f"fleet {seed}"), spec)
    stepped = {"engine.policy_file", "engine.kv_cache_groups", "spec.method"} & spec.keys()
    jumps = (engine == "blis" or engine.startswith("vllm-0")) and not stepped
    return _endless(rng, spec) if rng.random() < 0.02 and jumps else spec


def _fleet(rng: random.Random, spec: Spec) -> Spec:
    """Sometimes several replicas, and clients that start one after the other."""
    ramp = {"workload.arrival.ramp_up_s": rng.choice((0.001, 0.5, 30.0))} if "workload.concurrency" in spec else {}
    if rng.random() > 0.1 or "workload.concurrency" in spec:
        return ramp if rng.random() < 0.2 else {}
    routers: tuple[str, ...] = ("round_robin", "random", "session")
    blind = {"engine.kv_cache_groups", "spec.method", "engine.policy_file"} & spec.keys()
    if spec["engine.name"].startswith("vllm-0") and spec.get("engine.preemption_mode") != "restart" and not blind:
        routers += ("power_of_two", "least_loaded", "vllm_dp")
    return {
        "fleet.replicas": rng.choice((2, 2, 3, 5)),
        "fleet.router": rng.choice(routers),
        **_some(rng, 0.5, {"fleet.refresh_ms": rng.choice((0.5, 20.0, 1000.0))}),
    }


def _with_policy(rng: random.Random, spec: Spec) -> Spec:
    """Sometimes a policy of one's own, in the place of the rules that it would contradict."""
    if rng.random() > 0.1 or "engine.kv_cache_groups" in spec or "spec.method" in spec:
        return spec
    instead = ("engine.victim", "engine.queue_order", "engine.slot_preempt", "engine.slot_preempt_preflight")
    kept = {key: value for key, value in spec.items() if key not in instead}
    return kept | {"engine.policy_file": str(rng.choice(POLICIES))}


def _some(rng: random.Random, share: float, values: dict[str, Any]) -> Spec:
    """Each of the values with a probability."""
    return {key: value for key, value in values.items() if rng.random() < share}


def _pool(rng: random.Random) -> Spec:
    block_size = rng.choice((1, 1, 2, 3, 4, 7, 16, 16, 64, 1024))
    budget = rng.choice((1, 2, 3, 5, 8, 16, 64, 256, 2048, 8192, LARGEST))
    return {
        "engine.block_size": block_size,
        "engine.num_gpu_blocks": rng.choice((2, 3, 5, 9, 17, 30, 108, rng.randint(2, 400))),
        "engine.max_num_batched_tokens": budget,
        "engine.max_num_seqs": min(rng.choice((1, 2, 3, 5, 8, 16, 256, 1024)), budget),
    }


def _lengths(rng: random.Random, scale: int, where: str) -> Spec:
    """A distribution of lengths up to about `scale`, sometimes far beyond."""
    scale = max(scale, 1)
    typical = max(1, rng.choice((1, 2, scale // 10, scale // 3, scale // 2, scale, scale + 1, 2 * scale)))
    low = rng.randint(1, typical)
    spec: Spec = {f"{where}.dist": rng.choice(("constant", "uniform", "normal", "lognormal", "empirical"))}
    match spec[f"{where}.dist"]:
        case "constant":
            spec |= {f"{where}.mean": typical}
        case "uniform":
            spec |= {f"{where}.min": low, f"{where}.max": typical}
        case "normal" | "lognormal":
            spec |= {f"{where}.mean": typical, f"{where}.stdev": rng.choice((0, 1, typical / 3, typical))}
            spec |= {f"{where}.max": 4 * typical} | _some(rng, 0.3, {f"{where}.min": low})
        case _:
            values = [rng.randint(1, 2 * typical) for _ in range(rng.randint(1, 4))]
            spec |= {f"{where}.values": values}
            spec |= _some(rng, 0.3, {f"{where}.weights": [rng.choice((0.5, 1, 3)) for _ in values]})
    return spec


def _prefix(rng: random.Random, scale: int, where: str) -> Spec:
    return {
        f"{where}prefix.groups": rng.choice((0, 1, 2, 2, 5)),
        f"{where}prefix.tokens": max(1, rng.choice((1, scale // 7, scale // 2, scale, 3 * scale))),
        f"{where}prefix.share": rng.choice((1.0, 0.7, 0.0)),
        f"{where}prefix.zipf": rng.choice((0.0, 1.0)),
        f"{where}prefix.adds_to_prompt": rng.random() < 0.4,
    }


def _arrival(rng: random.Random, where: str) -> Spec:
    kind = rng.choice(("poisson", "gamma", "constant", "blis_rate", "all_at_once", "all_at_once", "spikes"))
    spec: Spec = {f"{where}arrival.kind": kind}
    if kind in ("poisson", "gamma", "constant", "blis_rate"):
        spec[f"{where}arrival.rate_per_s"] = rng.choice((0.1, 1.0, 10.0, 300.0, 1e6))
    if kind == "gamma":
        spec[f"{where}arrival.cv"] = rng.choice((0.3, 2.0, 9.0))
    if kind == "spikes":
        spec |= {f"{where}arrival.spike_requests": rng.choice((1, 5)), f"{where}arrival.spike_interval_s": 0.05}
    if kind in ("poisson", "gamma", "constant"):
        if rng.random() < 0.2:
            spec |= {f"{where}arrival.diurnal_amplitude": rng.choice((0.5, 1.0))}
            spec |= {f"{where}arrival.diurnal_period_s": 3.0}
        if rng.random() < 0.2:
            spec |= {f"{where}arrival.surge_factor": 9.0, f"{where}arrival.surge_start_s": 0.1}
            spec |= {f"{where}arrival.surge_duration_s": 0.2, f"{where}arrival.surge_every_s": 0.5}
    return spec


def _traffic(rng: random.Random, scale: int, where: str) -> Spec:
    """What the whole workload and each class of it can say."""
    spec = _lengths(rng, scale, f"{where}prompt") | _lengths(rng, rng.choice((3, 20, scale)), f"{where}output")
    if rng.random() < 0.5:
        spec |= _prefix(rng, scale, where)
    if rng.random() < 0.3:
        values = rng.sample(range(-3, 9), rng.randint(1, 4))
        spec |= {f"{where}priority.values": values}
        spec |= _some(rng, 0.4, {f"{where}priority.shares": [rng.choice((1, 2, 9)) for _ in values]})
    if rng.random() < 0.3:
        spec |= _lengths(rng, scale, f"{where}max_tokens")
        if rng.random() < 0.5:
            spec = {key: value for key, value in spec.items() if not key.startswith(f"{where}max_tokens")}
            spec |= {f"{where}max_tokens.dist": "factor", f"{where}max_tokens.factor": rng.choice((1.0, 1.5, 40.0))}
    return spec | _some(rng, 0.1, {f"{where}rate_scale": rng.choice((0.5, 3.0))})


def _sessions(rng: random.Random, scale: int, where: str) -> Spec:
    return {
        f"{where}sessions.turns": rng.randint(2, 6),
        f"{where}sessions.gap_s": rng.choice((0.0, 0.01, 1.0)),
    } | _some(rng, 0.4, {f"{where}sessions.max_prompt_tokens": max(1, scale // 2)})


def _workload(rng: random.Random, engine: str, scale: int, where: str) -> Spec:
    spec: Spec = {"workload.num_requests": rng.choice((1, 2, 3, 9, 20, 40)), "workload.seed": rng.randrange(99)}
    if rng.random() < 0.06:
        return spec | _trace(rng, engine)
    spec |= _traffic(rng, scale, where)
    if engine.startswith(("vllm-0", "sglang")) and rng.random() < 0.25:
        spec = {key: value for key, value in spec.items() if ".prefix." not in key}
        return spec | _arrival(rng, where) | _sessions(rng, scale, where)
    if engine.startswith("vllm-0") and rng.random() < 0.3:
        spec |= {"workload.concurrency": rng.choice((1, 2, 7, 100))}
        spec |= _some(rng, 0.4, {"workload.think.mean_s": 0.02, "workload.think.dist": "constant"})
        return spec | _some(rng, 0.5, {"workload.retry_after_s": rng.choice((1e-6, 0.01, 1.0))}) | _timeout(rng)
    spec |= _arrival(rng, where)
    return spec | _timeout(rng) if engine == "blis" or engine.startswith("vllm-0") else spec


def _timeout(rng: random.Random) -> Spec:
    return _some(rng, 0.25, {"workload.timeout_s": rng.choice((1e-5, 0.005, 0.05, 1.0))})


def _trace(rng: random.Random, engine: str) -> Spec:
    """Recorded requests: one file has prefixes that extend one another, which only vLLM's engines take."""
    name = rng.choice(TRACES if engine.startswith("vllm-0") else TRACES[1:])
    spec: Spec = {"workload.trace": str(DATA / name), "engine.block_size": 64, "engine.num_gpu_blocks": 600}
    spec |= _some(rng, 0.3, {"workload.format": "mooncake" if name.startswith("moon") else "azure"})
    spec |= {"workload.num_requests": rng.randint(1, 12), "workload.rate_scale": rng.choice((1.0, 100.0))}
    return spec | _some(rng, 0.2, {"workload.window_start_s": 1.0, "workload.window_end_s": 400.0})


def _classes(rng: random.Random, engine: str, scale: int) -> Spec:
    """Two or three classes: of the workload's own keys only those that may stand beside them."""
    spec: Spec = {"workload.arrival.kind": "poisson", "workload.arrival.rate_per_s": rng.choice((5.0, 500.0))}
    spec |= {"workload.sessions.turns": 1}
    for name in ("batch", "chat", "other")[: rng.randint(2, 3)]:
        where = f"workload.classes.{name}."
        mine = _traffic(rng, scale, where) | {f"{where}share": rng.choice((0.1, 1.0, 5.0))}
        if rng.random() < 0.3 and engine.startswith("vllm-0"):
            mine = {key: value for key, value in mine.items() if ".prefix." not in key} | _sessions(rng, scale, where)
        if rng.random() < 0.3:
            mine |= _arrival(rng, where) | {f"{where}num_requests": rng.randint(1, 9)}
        spec |= mine | _some(rng, 0.2, {f"{where}start_s": 0.05, f"{where}num_requests": rng.randint(1, 20)})
    return spec


def _latency(rng: random.Random) -> Spec:
    return {
        "latency.b0_us": rng.choice((1.0, 1.0, 10.5, 1000.0, 5752.71)),
        "latency.b1_us_per_prefill_token": rng.choice((0.0, 1.0, 17.25)),
        "latency.b2_us_per_decode_token": rng.choice((0.0, 0.3, 6.0)),
    } | _some(rng, 0.2, {"latency.frontend_us": 50.0})


def _run(rng: random.Random) -> Spec:
    return {"run.max_steps": rng.choice((1, 7, 200, 3000, 20_000, 20_000, 20_000))} | _some(
        rng, 0.2, {"run.horizon_s": rng.choice((1e-5, 0.01, 0.3, 5.0))}
    )


def _metrics(rng: random.Random) -> Spec:
    return _some(
        rng,
        0.15,
        {"metrics.warmup_s": 1e-6, "slo.ttft_ms": 5.0, "slo.tpot_ms": 1.0, "slo.e2e_ms": 100.0},
    )


def _vllm(rng: random.Random, spec: Spec, scale: int) -> Spec:
    """Knobs and policies of vLLM's engines."""
    blocks, budget = spec["engine.num_gpu_blocks"], spec["engine.max_num_batched_tokens"]
    order = rng.choice(("fcfs", "priority", "sjf", "aging"))
    limit = max(1, rng.choice((scale // 10, scale // 2, scale, 2 * scale, 100_000)))
    out: Spec = {
        "engine.enable_prefix_caching": rng.random() < 0.7,
        "engine.max_model_len": limit,
        "engine.policy": rng.choice(("fcfs", "priority")),
        "engine.unservable": rng.choice(("reject", "spin")),
        "engine.preemption_mode": rng.choice(("recompute", "restart", "swap")),
        "engine.swap_space_blocks": rng.choice((1, blocks, 10 * blocks)),
        "engine.victim": rng.choice(
            ("tail", "priority", "least_computed", "most_computed", "least_generated", "most_blocks", "random")
        ),
        "engine.queue_order": order,
        "engine.running_cap": rng.choice(("fixed", "auto", "feedback")),
        "engine.feedback_rule": rng.choice(("threshold", "consecutive", "proportional")),
        "engine.feedback_window": rng.choice((1, 2, 9)),
        "engine.feedback_recovery": rng.choice((1, 3)),
        "engine.feedback_threshold": rng.choice((0.0, 0.3)),
    }
    out |= _some(
        rng,
        0.25,
        {
            "engine.swap_us_per_block": 3.3,
            "engine.watermark": rng.choice((0.05, 0.5, 0.99)),
            "engine.scheduler_reserve_full_isl": rng.random() < 0.3,
            "engine.long_prefill_token_threshold": min(rng.choice((1, 2, 9, 64)), limit),
            "engine.long_prefill_token_threshold_adaptive": True,
            "engine.max_num_scheduled_tokens": min(rng.choice((1, 3, 64)), budget),
            "engine.max_num_active_seqs": rng.randint(1, spec["engine.max_num_seqs"]),
            "engine.prefill_schedule_interval": rng.choice((2, 7)),
            "engine.max_num_queued_reqs": rng.choice((1, 4)),
            "engine.max_num_queued_tokens": rng.choice((1, 50)),
            "engine.boost_after": rng.choice((1, 3)),
            "engine.aging_per_s": rng.choice((0.5, 1000.0)),
            "engine.backpressure_threshold": rng.choice((0.02, 0.3)),
            "engine.backpressure_window": rng.choice((1, 3)),
            "engine.backpressure_action": rng.choice(("reject", "pace")),
            "engine.livelock_steps": rng.choice((5, 300)),
            "engine.starvation_window_s": 0.01,
            "engine.starvation_overtakes": rng.choice((1, 3)),
            "engine.thrash_threshold": 0.5,
            "latency.b3_us_per_context_token": 0.01,
        },
    )
    if rng.random() < 0.3:
        projection = rng.choice(("oracle", "mean", "max_tokens"))
        if projection == "max_tokens" and "workload.max_tokens.dist" not in spec:
            projection = "mean"
        out |= {"engine.admission": "projected", "engine.projection": projection, "engine.overcommit": 0.8}
    if rng.random() < 0.3:
        out |= {"engine.bypass": True, "engine.admission_scan_limit": rng.choice((1, 3, 64))}
        out |= {"engine.max_admission_bypasses": rng.choice((1, 3)), "engine.count_restores": rng.random() < 0.5}
        out |= {"engine.blocked_checks_limit": rng.random() < 0.5}
    if order in ("priority", "aging") and rng.random() < 0.4:
        out |= {"engine.slot_preempt": True, "engine.slot_preempt_preflight": rng.random() < 0.5}
    if rng.random() < 0.1 and min(budget, out.get("engine.max_num_scheduled_tokens", budget)) >= limit:
        out |= {"engine.enable_chunked_prefill": False}
    return out


def _step_table(rng: random.Random) -> Spec:
    """Step times by a table over tokens, attention of prefills, and a window's context term."""
    tokens = sorted(rng.sample((1, 2, 4, 9, 64, 300, 4096), rng.randint(1, 6)))
    times = sorted(rng.choice((0.0, 1.5, 80.0, 900.25)) for _ in tokens)
    window = {"latency.b6_us_per_window_token": 0.02, "latency.window_tokens": rng.choice((1, 7, 128))}
    return (
        {"latency.table_tokens": tokens, "latency.table_us": times}
        | _some(rng, 0.4, {"latency.table_scale": 1.5, "latency.max_cudagraph_capture_size": rng.choice((1, 8, 512))})
        | _some(rng, 0.4, {"latency.b4_us_per_prefill_pair": 0.003, "latency.b5_us_per_prefill_step": 40.0})
        | _some(rng, 0.1, {"latency.source": "linear"})
        | (window if rng.random() < 0.4 else {})
    )


def _groups_and_drafts(rng: random.Random, spec: Spec) -> Spec:
    """Several KV cache groups, a window, or speculative decoding; what they refuse is taken back."""
    size = spec["engine.block_size"]
    spec = spec | {"engine.preemption_mode": "recompute", "engine.slot_preempt_preflight": True}
    spec.pop("latency.b6_us_per_window_token", None)
    spec.pop("latency.window_tokens", None)
    if rng.random() < 0.7:
        window, chunk = rng.choice((1, 2, size, size + 1, 3 * size, 5000)), size * rng.choice((1, 2, 5))
        kinds = ("full", f"sliding:{window}", f"sliding:{window}*2", f"chunked:{chunk}", "mamba", "mamba-checkpoint")
        groups = [rng.choice(kinds) for _ in range(rng.randint(1, 3))]
        spec |= {"engine.kv_cache_groups": groups}
        spec |= _some(rng, 0.6, {"engine.prefix_cache_retention_interval": rng.choice((0, size, 4 * size))})
        spec |= _some(rng, 0.1, {"engine.disable_hybrid_kv_cache_manager": True})
    if rng.random() < 0.6:
        k = rng.randint(1, 4)
        spec |= {
            "spec.method": rng.choice(("ngram", "draft_model", "eagle", "eagle3", "mtp")),
            "spec.num_speculative_tokens": k,
            "spec.seed": rng.randrange(9),
            "spec.num_drafts": "fixed" if spec["engine.name"].endswith("-async") else rng.choice(("fixed", "hashed")),
            "spec.lookahead_hashes": rng.random() < 0.7 or "chunked" in str(spec.get("engine.kv_cache_groups")),
        }
        shares = {"spec.acceptance": [rng.choice((0.0, 0.5, 1.0)) for _ in range(k)]}
        spec |= rng.choice(({}, shares, {"spec.mean_acceptance_length": 1 + 0.6 * k}))
        spec |= _some(rng, 0.3, {"spec.draft_us": 7.5, "spec.draft_us_per_token": 0.5})
        if spec.get("engine.long_prefill_token_threshold", 0) <= k:
            spec.pop("engine.long_prefill_token_threshold", None)
    return spec


def _blis(rng: random.Random, tokens: int) -> Spec:
    return {
        "engine.blis.scheduler": rng.choice(("fcfs", "sjf", "priority-fcfs", "reverse-priority")),
        "engine.blis.preemption_policy": rng.choice(("fcfs", "priority")),
        "engine.blis.max_model_len": rng.choice((0, 0, 1, tokens // 2, tokens)),
        "engine.blis.kv_cpu_blocks": rng.choice((0, 0, 1, 5, 400)),
        "engine.blis.kv_transfer_bandwidth": rng.choice((100.0, 0.5)),
        "engine.blis.kv_transfer_base_latency_us": rng.choice((0, 2)),
        "engine.blis.rollback_leak": rng.random() < 0.15,
        "engine.long_prefill_token_threshold": rng.choice((0, 0, 1, 9)),
        "latency.alpha": [rng.choice((0.0, 3.2)), rng.choice((0.0, 0.5)), rng.choice((0.0, 7.9))],
    }


def _rlt(rng: random.Random, spec: Spec) -> Spec:
    wavefront = rng.random() < 0.3
    chunk = rng.choice((1, 2, 9, 512))
    stages = ("prefill", "wavefront", "prelude", "recurrent", "coda")
    times = {f"latency.rlt.{stage}_us": rng.choice((0.0, 2.0, 900.0)) for stage in stages}
    times |= {f"latency.rlt.{stage}_us_per_token": rng.choice((0.0, 1.5)) for stage in stages}
    times |= {"latency.rlt.empty_us": 3.0, "latency.rlt.swap_us": 4.0, "latency.rlt.swap_us_per_block": 0.5}
    return {
        "engine.policy": rng.choice(("fcfs", "priority")),
        "engine.admission_scan_limit": rng.choice((1, 3, 64)),
        "engine.max_admission_bypasses": rng.choice((1, 3)),
        "engine.count_restores": rng.random() < 0.5,
        "engine.blocked_checks_limit": rng.random() < 0.5,
        "engine.rlt.max_loops": rng.choice((1, 2, 4, 30)),
        "engine.rlt.layout": "last_exited" if wavefront else rng.choice(("last_exited", "shared")),
        "engine.rlt.incremental": rng.random() < 0.5,
        "engine.rlt.prefix_caching": rng.random() < 0.6,
        "engine.rlt.watermark_ratio": rng.choice((0.0, 0.1, 0.9)),
        "engine.rlt.mode": rng.choice(("refill", "no_refill")),
        "engine.rlt.min_coda_batch_size": rng.choice((1, 3)),
        "engine.rlt.prefill_chunk_size": min(chunk, spec["engine.max_num_batched_tokens"]) if wavefront else chunk,
        "engine.rlt.max_prefill_batches_before_decode": rng.choice((1, 3)),
        "engine.rlt.enable_preemption": rng.random() < 0.7,
        "engine.rlt.wavefront": wavefront,
        "engine.rlt.on_livelock": rng.choice(("stop", "skip", "step")),
    } | _some(rng, 0.2, times)


def _trtllm(rng: random.Random, spec: Spec) -> Spec:
    policies = ("GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "MAX_UTILIZATION", "STATIC_BATCH")
    return {
        "engine.max_model_len": rng.choice((8, 60, 500, 8192)),
        "engine.enable_chunked_prefill": rng.random() < 0.7,
        "engine.trtllm.capacity_scheduler_policy": rng.choice(policies),
        "engine.trtllm.context_chunking_policy": rng.choice(("FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS")),
        "latency.b3_us_per_context_token": 0,
    } | _some(rng, 0.5, {"engine.trtllm.chunk_unit_tokens": rng.randint(1, spec["engine.max_num_batched_tokens"])})


def _sglang(rng: random.Random, spec: Spec, scale: int) -> Spec:
    page = rng.choice((1, 1, 2, 16))
    priority = rng.random() < 0.4
    out: Spec = {
        "engine.max_model_len": max(8, rng.choice((scale // 10, scale // 2, scale, 2 * scale, 100_000))),
        "engine.sglang.page_size": page,
        "engine.sglang.max_total_tokens": page * rng.choice((1, 9, 40, 300, 4000)),
        "engine.sglang.chunked_prefill_size": rng.choice((-1, page, 3 * page, 64 * page)),
        "engine.sglang.max_prefill_tokens": rng.choice((1, 9, 300, 16384)),
        "engine.sglang.enable_mixed_chunk": rng.random() < 0.4,
        "engine.sglang.schedule_policy": rng.choice(("fcfs", "lof") if priority else ("fcfs", "lpm", "lpm", "lof")),
        "engine.sglang.schedule_conservativeness": rng.choice((0.0, 0.3, 1.0, 5.0)),
        "engine.sglang.disable_radix_cache": rng.random() < 0.3,
        "engine.sglang.enable_priority_scheduling": priority,
        "engine.sglang.schedule_low_priority_values_first": rng.random() < 0.5,
        "engine.sglang.priority_scheduling_preemption_threshold": rng.choice((0, 1, 10)),
        "engine.sglang.disable_priority_preemption": rng.random() < 0.3,
        "engine.sglang.retraction_policy": rng.choice(("length", "priority")) if priority else "length",
        "engine.sglang.prefill_decode_interval": rng.choice((0, 0, 1, 5)),
        "engine.sglang.disable_overlap_schedule": rng.random() < 0.5,
        "engine.sglang.clip_max_new_tokens": rng.choice((0, 3, 4096)),
        "engine.sglang.init_new_token_ratio": rng.choice((0.0, 0.3, 0.7, 1.0)),
        "engine.sglang.min_new_token_ratio_factor": rng.choice((0.0, 0.14, 1.0)),
        "engine.sglang.new_token_ratio_decay_steps": rng.choice((1, 20, 600)),
        "engine.sglang.retract_decode_steps": rng.choice((0, 3, 20)),
        "engine.sglang.in_batch_check_threshold": rng.choice((0, 4, 32)),
        "engine.sglang.in_batch_deprioritize_threshold": rng.choice((0, 4, 32)),
    }
    out |= _some(rng, 0.3, {"engine.sglang.prefill_max_requests": rng.choice((1, 3))})
    if not (out["engine.sglang.enable_mixed_chunk"] and out["engine.sglang.disable_radix_cache"] and page > 1):
        out |= _some(rng, 0.4, {"workload.ignore_eos": True})
    return out


def _endless(rng: random.Random, spec: Spec) -> Spec:
    """Few requests of up to a thousand million tokens: clocks and counters pass what 32 bits hold.

    Without what makes every step look at the queue: a run is jumped over, or it would take hours.
    """
    engine = spec["engine.name"]
    dropped = ("scheduled_tokens", "slot_preempt", "schedule_interval", "workload.concurrency", "workload.think")
    spec = {key: value for key, value in spec.items() if not any(word in key for word in dropped)}
    spec |= {"engine.block_size": 4096, "engine.num_gpu_blocks": 2_000_000, "workload.num_requests": 4}
    spec |= {"workload.output.dist": "constant", "workload.output.mean": rng.choice((10**8, 9 * 10**8))}
    spec |= {"latency.b0_us": 1.0, "run.max_steps": 10**10}
    if engine.startswith("vllm-0"):
        spec |= {"engine.max_model_len": LARGEST, "engine.preemption_mode": "recompute"}
        spec |= {"engine.running_cap": "fixed", "latency.b3_us_per_context_token": 0.0}
    return spec
