"""Files that hold no requests, as people give them for traces: what each is, and what to do with it."""

from dataclasses import dataclass
from pathlib import Path

from fastsim.workload.trace import Head

ADVICE = "fastsim calibrate and run --beside read it"


@dataclass(frozen=True)
class Summary:
    """A kind of file: what it is called, what it is recognised by, and which file of the same tool holds requests."""

    name: str
    marks: tuple[str, ...]
    instead: str

    def matches(self, head: Head) -> bool:
        """Whether the beginning of a file has all marks."""
        return all(mark in head.text for mark in self.marks)


SUMMARIES = (
    Summary("AIPerf's aggregate", ('"aiperf_version"',), "profile_export.jsonl"),
    Summary("AIPerf's aggregate", ('"request_latency"', '"input_config"'), "profile_export.jsonl"),
    Summary(
        "a summary of inference-perf",
        ('"load_summary"', '"successes"'),
        "a plain CSV of per_request_lifecycle_metrics.json",
    ),
    Summary("a log of vLLM", ("GPU KV cache size:",), "vllm bench serve --save-result --save-detailed"),
    Summary("a log of vLLM", ("GPU KV cache usage:",), "vllm bench serve --save-result --save-detailed"),
    Summary("a scrape of vLLM's /metrics", ("# TYPE vllm:",), "vllm bench serve --save-result --save-detailed"),
    Summary(
        "the table of a benchmark", ("Serving Benchmark Result",), "vllm bench serve --save-result --save-detailed"
    ),
    Summary(
        "a result of SGLang's bench_serving", ('"backend": "sglang', '"completed"'), "bench_serving --output-details"
    ),
    Summary(
        "a summary of vllm bench serve",
        ('"mean_ttft_ms"', '"completed"', '"request_rate"'),
        "vllm bench serve --save-result --save-detailed",
    ),
)
"""In this order; files that do hold requests are recognised before."""


def summary_sentence(path: Path, head: Head) -> str | None:
    """Why a file is no trace, if it is one of these."""
    for summary in SUMMARIES:
        if summary.matches(head):
            what = f"{summary.name}, which holds no requests ({ADVICE})"
            return f"{path}: {what}, but a trace was expected: {summary.instead}"
    return None
