"""Flags of servers and load generators, of today and of older releases, and the key that comes nearest to each."""

from typing import NamedTuple


class Nearest(NamedTuple):
    """The key that comes nearest to a flag (None: there is none), and why it is that one."""

    key: str | None
    why: str


_SHARE = Nearest("hardware.gpu_memory_utilization", "the share of the GPU's memory that weights and KV pool may take")
_GPUS = Nearest("hardware.tensor_parallel", "GPUs that share each layer")
_SLOTS = Nearest("engine.max_num_seqs", "the most requests that run together")
_BUDGET = Nearest("engine.max_num_batched_tokens", "the most tokens of one step")
_LONGEST = Nearest("engine.max_model_len", "the most tokens of one request, prompt and output")
_POOL = Nearest("engine.num_gpu_blocks", "the KV pool is given in blocks of engine.block_size tokens")
_PREFILLS = Nearest(
    "engine.long_prefill_token_threshold",
    "vLLM's V1 engine has no limit to the number of partial prefills; it bounds the tokens of each in one step",
)
_REPLICAS = Nearest("fleet.replicas", "engines side by side, each with its own pool")
_MEASURED = Nearest(None, "it changes step times, and these are given, from a table or calibrated (latency.*)")
_V0 = Nearest(None, "it was the V0 engine's, which is not simulated")

OTHER_NAMES: dict[str, Nearest] = {
    # vLLM
    "max_num_partial_prefills": _PREFILLS,
    "max_long_partial_prefills": _PREFILLS,
    "scheduler_delay_factor": Nearest(
        "engine.prefill_schedule_interval", "V0's delay before a prompt; V1 spaces out steps that prefill"
    ),
    "delay_factor": Nearest(
        "engine.prefill_schedule_interval", "V0's delay before a prompt; V1 spaces out steps that prefill"
    ),
    "swap_space": Nearest(
        "engine.swap_space_blocks", "V1 does not swap; engine.preemption_mode = swap simulates it, with so many blocks"
    ),
    "num_gpu_blocks_override": _POOL,
    "gpu_memory_utilization": _SHARE,
    "kv_cache_memory_bytes": _POOL,
    "tensor_parallel_size": _GPUS,
    "data_parallel_size": _REPLICAS,
    "pipeline_parallel_size": Nearest(None, "pipeline parallelism is not modelled"),
    "kv_cache_dtype": Nearest("hardware.kv_dtype", "the dtype of the KV cache"),
    "quantization": Nearest("hardware.weight_dtype", "the dtype of the weights"),
    "dtype": Nearest("hardware.weight_dtype", "the dtype of the weights"),
    "model_name": Nearest("hardware.model", "a model by name, or its config.json"),
    "gpu_type": Nearest("hardware.gpu", "a GPU by name"),
    "scheduling_policy": Nearest("engine.policy", "fcfs or priority"),
    "async_scheduling": Nearest("engine.name", "the scheduler that plans ahead is vllm-0.33.0-async"),
    "enable_prefix_cache": Nearest("engine.enable_prefix_caching", "whether full blocks are shared"),
    "speculative_config": Nearest("spec.method", "drafts are below spec.*"),
    "num_scheduler_steps": _V0,
    "multi_step_stream_outputs": _V0,
    "use_v2_block_manager": _V0,
    "num_lookahead_slots": _V0,
    "max_paddings": _V0,
    "enforce_eager": _MEASURED,
    "attention_backend": _MEASURED,
    "compilation_config": _MEASURED,
    # SGLang
    "max_running_requests": _SLOTS,
    "mem_fraction_static": _SHARE,
    "tp_size": _GPUS,
    "dp_size": _REPLICAS,
    "context_length": _LONGEST,
    "max_queued_requests": Nearest("engine.max_num_queued_reqs", "the most requests that wait"),
    # TensorRT-LLM
    "max_batch_size": _SLOTS,
    "max_num_tokens": _BUDGET,
    "max_seq_len": _LONGEST,
    "kv_cache_free_gpu_memory_fraction": _SHARE,
    "free_gpu_memory_fraction": _SHARE,
    "capacity_scheduler_policy": Nearest(
        "engine.admission", "TensorRT-LLM's policies are not simulated; admission by projection is the nearest"
    ),
    # Text Generation Inference
    "max_batch_total_tokens": _POOL,
    "max_batch_prefill_tokens": _BUDGET,
    "max_concurrent_requests": Nearest(
        "engine.max_num_queued_reqs", "the most requests that wait, beside those that run"
    ),
    "waiting_served_ratio": Nearest("engine.prefill_schedule_interval", "how often steps prefill"),
    # load generators
    "request_rate": Nearest("workload.arrival.rate_per_s", "requests a second"),
    "qps": Nearest("workload.arrival.rate_per_s", "requests a second"),
    "max_concurrency": Nearest(
        "workload.concurrency",
        "clients with one request each; with workload.arrival.kind the most that are out",
    ),
    "ramp_up_strategy": Nearest("workload.arrival.ramp_up_s", "the rate grows linearly from 0 over so many seconds"),
    "ramp_up_start_rps": Nearest("workload.arrival.ramp_up_s", "the rate grows linearly from 0 over so many seconds"),
    "rampup": Nearest("workload.arrival.ramp_up_s", "the rate grows linearly from 0 over so many seconds"),
    "num_prompts": Nearest("workload.num_requests", "how many requests there are"),
    "burstiness": Nearest("workload.arrival.cv", "with arrival.kind = gamma: cv is 1 / sqrt(burstiness)"),
    "random_input_len": Nearest("workload.prompt.mean", "with workload.prompt.dist"),
    "random_output_len": Nearest("workload.output.mean", "with workload.output.dist"),
    "input_len": Nearest("workload.prompt.mean", "with workload.prompt.dist"),
    "output_len": Nearest("workload.output.mean", "with workload.output.dist"),
    "sharegpt_output_len": Nearest("workload.output.mean", "with workload.output.dist"),
    "random_prefix_len": Nearest("workload.prefix.tokens", "with workload.prefix.groups"),
    "random_range_ratio": Nearest("workload.prompt.min", "with dist = uniform, from min to max"),
}


def nearest(name: str) -> Nearest | None:
    """The key that comes nearest to a flag, however it is written: `--max-batch-size`, `engine.max_batch_size`."""
    last = name.strip().lstrip("-").rpartition(".")[2].replace("-", "_").lower()
    return OTHER_NAMES.get(last) or OTHER_NAMES.get(last.removeprefix("no_"))


def hint(name: str) -> str | None:
    """`nearest is KEY: why`, or why there is none; None: nothing is known of the flag."""
    found = nearest(name)
    if found is None:
        return None
    return f"there is no key for it: {found.why}" if found.key is None else f"nearest is {found.key}: {found.why}"
