"""Knobs that only TensorRT-LLM has: the keys below `engine.trtllm.`, by its own names.

Those it shares with vLLM are below `engine.`: max_num_seqs (--max_batch_size), max_num_batched_tokens
(--max_num_tokens), max_model_len (--max_seq_len), num_gpu_blocks of block_size tokens (tokens_per_block), and
enable_chunked_prefill.
"""

from typing import Literal

from fastsim.engines.declaration import Engine, Server, Taken
from fastsim.engines.trtllm.limits import limits
from fastsim.model import Model, Positive
from fastsim.rule import Derived, Effect, Rule, absent

NAME = "trtllm"
CAVEAT = (
    "trtllm is built from TensorRT-LLM's published rules (capacity and micro-batch schedulers, no block reuse) and not "
    "verified against recordings of the real scheduler: take its figures as a reading of the rules"
)


class TrtllmKnobs(Model):
    """TensorRT-LLM's capacity scheduler, and how contexts are cut."""

    capacity_scheduler_policy: Literal["GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH"] = "GUARANTEED_NO_EVICT"
    """Who may hold KV: whose end is reserved, whose next step fits, or nobody new before all are done."""
    context_chunking_policy: Literal["FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"] = "FIRST_COME_FIRST_SERVED"
    """Who gets the tokens of a step when not all contexts fit, with engine.enable_chunked_prefill."""
    chunk_unit_tokens: Positive | None = None
    """Chunks that do not end a context are multiples of it. None: engine.block_size."""


def _of_gpu(release: str | None, gpu: str, memory_bytes: float, gpus: int) -> Taken:
    """The share of the memory left beside weights and activations that becomes KV pool by default: 0.9."""
    return Taken({}, {}, {"gpu_memory_utilization": 0.9}, f"TensorRT-LLM's own on {gpu}")


SERVER = Server(
    command="trtllm-serve MODEL",
    flags={
        "engine.max_num_seqs": "--max_batch_size",
        "engine.max_num_batched_tokens": "--max_num_tokens",
        "engine.max_model_len": "--max_seq_len",
    },
    switches={"engine.enable_chunked_prefill": ("--enable_chunked_prefill", "")},
    deployment={
        "tensor_parallel": "--tp_size",
        "gpu_memory_utilization": "--kv_cache_free_gpu_memory_fraction",
        "fp8": "--kv_cache_dtype fp8",
    },
    of_gpu=_of_gpu,
)

_UNIT = ("engine.trtllm.chunk_unit_tokens", "engine.block_size", "engine.max_num_batched_tokens")

RULES = (
    absent(NAME, "latency.b3_us_per_context_token", 0, "step time by context"),
    absent(NAME, "workload.timeout_s", None, "timeouts"),
    Rule(
        ("engine.name", "workload.think.mean_s"),
        lambda name, mean_s: name != NAME or not mean_s,
        "workload.think.mean_s = {1}, but 0 was expected: engine.name = {0} has no pauses of clients",
    ),
    Rule(
        ("engine.name", "engine.enable_chunked_prefill", *_UNIT),
        lambda name, chunked, unit, size, most: name != NAME or not chunked or (unit or size) <= most,
        "engine.trtllm.chunk_unit_tokens = {2} (engine.block_size = {3}), but at most engine.max_num_batched_tokens = "
        "{4} was expected: no chunk would ever fit in a step",
    ),
)

ENGINE = Engine(
    folder="trtllm",
    names=(NAME,),
    table="trtllm",
    knobs=TrtllmKnobs,
    reads=frozenset(("max_model_len", "enable_chunked_prefill", "enable_prefix_caching")),
    instead={"watermark": "engine.trtllm.capacity_scheduler_policy"},
    caveat=CAVEAT,
    rules=RULES,
    limits=limits,
    effects=(
        Effect(
            ("engine.trtllm.context_chunking_policy", "engine.trtllm.chunk_unit_tokens"),
            ("engine.enable_chunked_prefill",),
            bool,
            "engine.enable_chunked_prefill is off",
        ),
        Effect(
            ("engine.enable_prefix_caching",),
            ("engine.name",),
            lambda name: name != NAME,
            "engine.name is trtllm, which is modelled without block reuse",
        ),
    ),
    derived=(Derived("engine.trtllm.chunk_unit_tokens", ("engine.block_size",), lambda size: size),),
    context_time=False,
    has_flags=True,
    has_prefix_trees=True,
    server=SERVER,
)
