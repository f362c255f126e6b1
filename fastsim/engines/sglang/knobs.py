"""Knobs that only SGLang has: the keys below `engine.sglang.`, by the names of its flags and environment variables.

Those it shares with vLLM are below `engine.`: max_num_seqs (SGLang: --max-running-requests), max_model_len
(--context-length), and num_gpu_blocks times block_size, the tokens of the KV pool (--max-total-tokens).
"""

from typing import Annotated, Literal

from pydantic import Field

from fastsim.engines.clock import ENDS, fits, overflow
from fastsim.engines.declaration import Engine, OwnColumn
from fastsim.engines.sglang.limits import limits
from fastsim.engines.sglang.server import SERVER
from fastsim.model import Model, Natural, Positive, Share, type_integer
from fastsim.rule import Derived, Effect, Rule, absent

NAME = "sglang-0.5.23"

ChunkSize = Annotated[int, type_integer, Field(ge=-1, le=2**31 - 1)]
Threshold = Annotated[int, type_integer, Field(ge=-(2**31), le=2**31 - 1)]


class SglangKnobs(Model):
    """SGLang's scheduler: prefill first, admission that counts the future, retraction, a radix cache."""

    max_total_tokens: Positive | None = None
    """Tokens of the KV pool. None: engine.num_gpu_blocks x engine.block_size."""
    page_size: Annotated[int, type_integer, Field(ge=1, le=2**20)] = 1
    """Tokens per page of the pool."""
    chunked_prefill_size: ChunkSize | None = None
    """Most new prompt tokens in one batch; -1: no chunks. None: engine.max_num_batched_tokens in whole pages."""
    max_prefill_tokens: Positive = 16384
    """A prefill batch of so many tokens takes nobody else in."""
    prefill_max_requests: Positive | None = None
    """Most requests in one prefill batch; none: no cap."""
    enable_mixed_chunk: bool = False
    """Whether prefill batches carry the decodes; only with chunks."""
    schedule_policy: Literal["fcfs", "lpm", "lof"] = "fcfs"
    """Order of the waiting queue: arrival, longest cached prefix, longest declared output."""
    schedule_conservativeness: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)] = 1.0
    """Scales the share of its future tokens that admission reserves for a running request."""
    disable_radix_cache: bool = False
    """Whether no prefix is shared."""
    enable_priority_scheduling: bool = False
    """Order by `workload.priority` first, and take slots from less urgent requests."""
    schedule_low_priority_values_first: bool = True
    """Smaller is more urgent, as workloads here have it. SGLang's own default is the opposite: set its flag."""
    priority_scheduling_preemption_threshold: Threshold = 10
    """A victim is less urgent by more than this."""
    disable_priority_preemption: bool = False
    """Whether nobody's slot is taken."""
    retraction_policy: Literal["length", "priority"] = "length"
    """Who is retracted first: those with the fewest generated tokens, or the least urgent."""
    prefill_decode_interval: Natural = 0
    """Passes that must lie between two prefill batches."""
    disable_overlap_schedule: bool = False
    """Whether a batch is scheduled only when the output of the one before it is known."""
    clip_max_new_tokens: Natural = 4096
    """Most tokens that are reserved for the future of one request (SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION)."""
    init_new_token_ratio: Share = 0.7
    """Share of the future that is reserved at first (SGLANG_INIT_NEW_TOKEN_RATIO)."""
    min_new_token_ratio_factor: Share = 0.14
    """The share falls to this part of its beginning (SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR)."""
    new_token_ratio_decay_steps: Positive = 600
    """Decode steps until it is there (SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS)."""
    retract_decode_steps: Natural = 20
    """Tokens a retraction leaves to each request that stays (SGLANG_RETRACT_DECODE_STEPS)."""
    in_batch_check_threshold: Natural = 32
    """lpm: requests with at most so many cached tokens are compared with each other."""
    in_batch_deprioritize_threshold: Natural = 32
    """lpm: sharing so many tokens with one ahead puts a request off."""


def pool_tokens(given: int | None, blocks: int | None, size: int) -> int:
    """Tokens of the KV pool, not yet cut to whole pages."""
    return given if given is not None else (blocks or 0) * size


def default_chunk(batched: int, page_size: int) -> int:
    """Chunk that a budget of tokens stands for: whole pages, at least one."""
    return max(batched // page_size, 1) * page_size


def _is_whole_pages(name: str, chunk: int | None, page_size: int) -> bool:
    return name != NAME or chunk is None or chunk == -1 or (chunk > 0 and chunk % page_size == 0)


def _prefill_fits(
    b1_us: float | None, given: int | None, blocks: int | None, size: int, max_steps: int, horizon_s: float | None
) -> bool:
    return fits((b1_us or 0) * pool_tokens(given, blocks, size), max_steps, horizon_s)


_POOL = ("engine.sglang.max_total_tokens", "engine.num_gpu_blocks", "engine.block_size")

RULES = (
    absent(NAME, "latency.b3_us_per_context_token", 0, "step time by context"),
    absent(NAME, "workload.concurrency", None, "closed loop"),
    absent(NAME, "workload.timeout_s", None, "timeouts"),
    Rule(
        ("engine.name", "engine.sglang.chunked_prefill_size", "engine.sglang.page_size"),
        _is_whole_pages,
        "engine.sglang.chunked_prefill_size = {1}, but -1 (off) or a multiple of engine.sglang.page_size = {2} was "
        "expected: SGLang refuses others at start",
    ),
    Rule(
        ("engine.name", "engine.sglang.page_size", *_POOL),
        lambda name, page, *pool: name != NAME or pool[1] is None or pool_tokens(*pool) >= page,
        "engine.sglang.page_size = {1}, but a pool of at least one page was expected, not "
        "engine.sglang.max_total_tokens = {2} (engine.num_gpu_blocks = {3} of {4} tokens)",
    ),
    Rule(
        ("engine.sglang.enable_priority_scheduling", "engine.sglang.schedule_policy"),
        lambda priority, policy: not priority or policy != "lpm",
        'engine.sglang.schedule_policy = {1}, but "fcfs" or "lof" was expected with '
        "engine.sglang.enable_priority_scheduling = {0}",
    ),
    Rule(
        ("engine.sglang.enable_priority_scheduling", "engine.sglang.retraction_policy"),
        lambda priority, policy: priority or policy == "length",
        'engine.sglang.retraction_policy = {1}, but "length" was expected with '
        "engine.sglang.enable_priority_scheduling = {0}",
    ),
    Rule(
        (
            "engine.name",
            "workload.ignore_eos",
            "engine.sglang.enable_mixed_chunk",
            "engine.sglang.disable_radix_cache",
            "engine.sglang.page_size",
            "engine.sglang.chunked_prefill_size",
        ),
        lambda name, ignore, mixed, off, page, chunk: (
            name != NAME or not (ignore and mixed and off and page > 1) or chunk == -1
        ),
        "workload.ignore_eos = {1} with engine.sglang.enable_mixed_chunk = {2}, disable_radix_cache = {3}, page_size = "
        "{4} and chunks, but another combination was expected: there {0} loses track of a second chunk and never "
        "computes the end of its prompt, a defect that is not copied",
    ),
    Rule(
        ("engine.name", "latency.b1_us_per_prefill_token", *_POOL, *ENDS),
        lambda name, *given: name != NAME or _prefill_fits(*given),
        overflow("latency.b1_us_per_prefill_token = {1} with a pool of {2} tokens, or {3} blocks of {4}", 5),
    ),
)


def _needs(names: str, need: str, words: str, *, on: bool = True) -> Effect:
    keys = tuple(f"engine.sglang.{name}" for name in names.split())
    return Effect(keys, (f"engine.sglang.{need}",), lambda value: bool(value) == on, words)


_PRIORITY = "schedule_low_priority_values_first priority_scheduling_preemption_threshold disable_priority_preemption"

ENGINE = Engine(
    folder="sglang",
    names=(NAME,),
    table="sglang",
    knobs=SglangKnobs,
    reads=frozenset(("max_model_len",)),
    instead={
        "policy": "engine.sglang.schedule_policy",
        "watermark": "engine.sglang.schedule_conservativeness",
        "enable_prefix_caching": "engine.sglang.disable_radix_cache",
        "enable_chunked_prefill": "engine.sglang.chunked_prefill_size",
        "long_prefill_token_threshold": "engine.sglang.chunked_prefill_size",
        "prefill_schedule_interval": "engine.sglang.prefill_decode_interval",
    },
    says={
        "policy": {"priority": ("engine.sglang.enable_priority_scheduling", True)},
        "enable_prefix_caching": {False: ("engine.sglang.disable_radix_cache", True)},
        "enable_chunked_prefill": {False: ("engine.sglang.chunked_prefill_size", -1)},
    },
    rules=RULES,
    limits=limits,
    effects=(
        _needs(_PRIORITY, "enable_priority_scheduling", "engine.sglang.enable_priority_scheduling is off"),
        Effect(
            ("engine.sglang.in_batch_check_threshold", "engine.sglang.in_batch_deprioritize_threshold"),
            ("engine.sglang.schedule_policy",),
            lambda policy: policy == "lpm",
            "engine.sglang.schedule_policy is not lpm",
        ),
    ),
    derived=(
        Derived(
            "engine.sglang.max_total_tokens",
            ("engine.num_gpu_blocks", "engine.block_size"),
            lambda blocks, size: pool_tokens(None, blocks, size),
        ),
        Derived(
            "engine.sglang.chunked_prefill_size",
            ("engine.max_num_batched_tokens", "engine.sglang.page_size"),
            default_chunk,
        ),
    ),
    columns=(
        OwnColumn("sglang_retractions", "count", "requests put back because a decode step did not fit", "less", True),
        OwnColumn(
            "sglang_priority_preemptions", "count", "requests put back for the slot of a more urgent one", "less", True
        ),
        OwnColumn("sglang_aborted", "count", "requests that ended because they did not fit even alone", "less", True),
    ),
    context_time=False,
    has_flags=True,
    has_prefix_trees=True,
    server=SERVER,
)
