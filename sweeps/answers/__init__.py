"""The answers of the sweeps next door: sentences and figures of sweeps/README.md and sweeps/pages come from rows."""

from collections.abc import Callable

from sweeps.answers.admission import answer_feedback, answer_full_isl, answer_projection, answer_watermark
from sweeps.answers.caching import answer_mooncake
from sweeps.answers.collapse import answer_discussion, answer_remedies, answer_where
from sweeps.answers.common import Section, Setup
from sweeps.answers.engines import answer_async, answer_blis_vs_vllm, answer_livelock
from sweeps.answers.million import answer_million
from sweeps.answers.preemption import answer_salvage, answer_swap, answer_victims
from sweeps.answers.servers import answer_chunks, answer_engines, answer_trtllm
from sweeps.answers.sglang import answer_sglang
from sweeps.answers.urgency import answer_priority

QUESTIONS: dict[str, Callable[[Setup], Section]] = {
    "discussion": answer_discussion,
    "remedies": answer_remedies,
    "victims": answer_victims,
    "feedback": answer_feedback,
    "swap": answer_swap,
    "projection": answer_projection,
    "watermark": answer_watermark,
    "priority": answer_priority,
    "full_isl": answer_full_isl,
    "salvage": answer_salvage,
    "where": answer_where,
    "async": answer_async,
    "blis_vs_vllm": answer_blis_vs_vllm,
    "sglang": answer_sglang,
    "engines": answer_engines,
    "chunks": answer_chunks,
    "trtllm": answer_trtllm,
    "livelock": answer_livelock,
    "mooncake": answer_mooncake,
    "million": answer_million,
}
"""By the name of the spec, in the order of the README."""
