"""Knobs that only vllm-rlt has: the keys below `engine.rlt.` and `latency.rlt.`, by its own names.

Those it shares with vLLM are below `engine.`: num_gpu_blocks (vllm-rlt: num_blocks, all of them usable), block_size,
max_num_seqs, max_num_batched_tokens, policy, and the four of the bounded bypass.
"""

from typing import Annotated, Literal

from pydantic import Field

from fastsim.engines.clock import fixed_time, time_per_token
from fastsim.engines.declaration import Engine, PolicyRow
from fastsim.engines.rlt.limits import limits
from fastsim.model import Coefficient, Model, Positive, type_integer
from fastsim.rule import Rule, absent

NAME = "vllm-rlt"

StageTime = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class RltKnobs(Model):
    """The staged scheduler of a looped transformer. Upstream's own defaults of sizes are not known."""

    max_loops: Annotated[int, type_integer, Field(ge=1, le=127)] = 4
    """Loops over the layers for every token (total_ut_steps)."""
    layout: Literal["last_exited", "shared"] = "last_exited"
    """One plane of KV blocks a loop, or one for all."""
    incremental: bool = False
    """Allocate blocks as tokens come; off: the whole capacity at admission."""
    prefix_caching: bool = False
    """Whether full prompt pages are shared."""
    watermark_ratio: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.0
    """Share of the blocks that an admission leaves free while anything is active."""
    mode: Literal["refill", "no_refill"] = "refill"
    """Top the decode batch up at any time, or drain one cohort after the other."""
    min_coda_batch_size: Positive = 1
    """CODA waits for so many requests while RECURRENT has work."""
    prefill_chunk_size: Positive = 512
    """Most prompt tokens of one request in one batch; the range of a wavefront."""
    max_prefill_batches_before_decode: Positive = 1
    """Prefill batches in a row after which RECURRENT goes first."""
    enable_preemption: bool = True
    """Whether requests are swapped out for slots (priority) and for blocks."""
    wavefront: bool = False
    """Prefill range by range and depth by depth."""
    on_livelock: Literal["stop", "skip", "step"] = "stop"
    """What follows a proven livelock: the end, its cycles counted up to the horizon, or stepping through them."""


class RltLatency(Model):
    """Step times by stage: `<stage>_us + <stage>_us_per_token * tokens`, truncated, at least 1 microsecond.

    None: from b0, b1 and b2 of the linear model, which stand for all loops together; one loop takes an equal part.
    """

    prefill_us: StageTime | None = None
    """PREFILL, all loops of its chunks. None: b0."""
    prefill_us_per_token: Coefficient | None = None
    """None: b1."""
    wavefront_us: StageTime | None = None
    """A wavefront PREFILL, one loop. None: b0 / max_loops."""
    wavefront_us_per_token: Coefficient | None = None
    """None: b1 / max_loops."""
    prelude_us: StageTime = 1.0
    """PRELUDE, the embedding."""
    prelude_us_per_token: Coefficient = 0.0
    """Per request of a PRELUDE."""
    recurrent_us: StageTime | None = None
    """RECURRENT, one loop. None: b0 / max_loops."""
    recurrent_us_per_token: Coefficient | None = None
    """Per request of a RECURRENT. None: b2 / max_loops."""
    coda_us: StageTime = 1.0
    """CODA, head and sampling."""
    coda_us_per_token: Coefficient = 0.0
    """Per request of a CODA."""
    empty_us: StageTime = 1.0
    """A step that runs nothing."""
    swap_us: StageTime = 0.0
    """Added to a step per request swapped in or out."""
    swap_us_per_block: Coefficient = 0.0
    """Added to a step per block moved in or out."""


RULES = (
    absent(NAME, "latency.b3_us_per_context_token", 0, "step time by context"),
    absent(NAME, "workload.concurrency", None, "closed loop"),
    absent(NAME, "workload.timeout_s", None, "timeouts"),
    Rule(
        ("engine.name", "engine.rlt.wavefront", "engine.rlt.layout"),
        lambda name, wavefront, layout: name != NAME or not wavefront or layout == "last_exited",
        'engine.rlt.layout = {2}, but "last_exited" was expected with engine.rlt.wavefront = {1}',
    ),
    Rule(
        ("engine.name", "engine.rlt.wavefront", "engine.rlt.prefill_chunk_size", "engine.max_num_batched_tokens"),
        lambda name, wavefront, chunk, batched: name != NAME or not wavefront or chunk <= batched,
        "engine.rlt.prefill_chunk_size = {2}, but with engine.rlt.wavefront = {1} at most "
        "engine.max_num_batched_tokens = {3} was expected, or a range is never scheduled",
    ),
    *(
        (time_per_token if name.endswith("_per_token") else fixed_time)(f"rlt.{name}")
        for name in RltLatency.model_fields
        if name.endswith(("_us", "_us_per_token"))
    ),
)

ENGINE = Engine(
    folder="rlt",
    names=(NAME,),
    table="rlt",
    knobs=RltKnobs,
    latency=RltLatency,
    reads=frozenset(
        ("policy", "admission_scan_limit", "max_admission_bypasses", "count_restores", "blocked_checks_limit")
    ),
    instead={
        "watermark": "engine.rlt.watermark_ratio",
        "enable_prefix_caching": "engine.rlt.prefix_caching",
        "long_prefill_token_threshold": "engine.rlt.prefill_chunk_size",
    },
    rules=RULES,
    limits=limits,
    policies=(
        PolicyRow(
            "staged scheduler",
            "engine.rlt.mode=no_refill",
            "Under engine.name=vllm-rlt: how stages and loops of a recurrent model share the steps.",
            NAME,
            (
                "engine.rlt.mode",
                "engine.rlt.max_loops",
                "engine.rlt.min_coda_batch_size",
                "engine.rlt.max_prefill_batches_before_decode",
            ),
        ),
        PolicyRow(
            "wavefront prefill",
            "engine.rlt.wavefront=true",
            "Under engine.name=vllm-rlt: prompts are prefilled range by range and depth by depth.",
            NAME,
            ("engine.rlt.wavefront", "engine.rlt.prefill_chunk_size"),
        ),
        PolicyRow(
            "depth planes",
            "engine.rlt.layout=shared",
            "Under engine.name=vllm-rlt: blocks for each loop or for all, as tokens come or all at admission, "
            "shared or not.",
            NAME,
            (
                "engine.rlt.layout",
                "engine.rlt.incremental",
                "engine.rlt.prefix_caching",
                "engine.rlt.watermark_ratio",
            ),
        ),
        PolicyRow(
            "swap preemption",
            "engine.rlt.enable_preemption=true",
            "Under engine.name=vllm-rlt: requests are swapped out for slots and blocks, and what a proven livelock is "
            "followed by.",
            NAME,
            ("engine.rlt.enable_preemption", "engine.rlt.on_livelock"),
        ),
    ),
    context_time=False,
)
