"""`vllm bench serve --save-result`, one object, and `vllm bench sweep`: folders of them, or one list (`summary.json`).

SGLang's `bench_serving --output-file` writes the same names, one object a line. A result of a sweep has the settings
that were swept, of server and client, beside its figures.
"""

from collections.abc import Mapping
from typing import Any

from fastsim.analysis.measured.result import (
    OUTPUT_THROUGHPUT,
    STATISTICS,
    THROUGHPUT,
    MeasuredLengths,
    MeasuredLoad,
    count_of,
    engine_settings,
    figure_columns,
    is_number,
    paired,
    sent,
)

LATENCIES = {"ttft": ("ttft",), "tpot": ("tpot",), "itl": ("itl",), "e2e": ("e2el", "e2e_latency")}
"""Names of each latency in the files."""


def is_result(document: Any) -> bool:
    """Whether an object is such a result."""
    return (
        isinstance(document, Mapping)
        and "completed" in document
        and any(f"{statistic}_ttft_ms" in document for statistic in STATISTICS)
    )


def read(source: str, document: Mapping[str, Any]) -> MeasuredLoad:
    """A result from its object.

    Raises
    ------
    InputError
        When a figure that says what was sent is missing or wrong.
    """
    completed = count_of(source, document, "completed")
    notes = []
    offered = document.get("num_prompts")
    if is_number(offered) and offered > completed:
        notes.append(
            f"{source}: {int(offered) - completed} of {int(offered)} requests failed: simulated are those completed"
        )
    load, said = sent(source, document.get("request_rate"), document.get("max_concurrency"), document.get("burstiness"))
    sglang = "sglang" in str(document.get("backend", "")).lower()
    prompt, output = (
        MeasuredLengths(total / completed if is_number(total := document.get(key)) and total > 0 else None)
        for key in ("total_input_tokens", "total_output_tokens")
    )
    tables = {
        latency: {
            statistic: value
            for name in names
            for statistic in STATISTICS
            if is_number(value := document.get(f"{statistic}_{name}_ms"))
        }
        for latency, names in LATENCIES.items()
    }
    figures = figure_columns(tables)
    for key, column in (("request_throughput", THROUGHPUT), ("output_throughput", OUTPUT_THROUGHPUT)):
        if is_number(document.get(key)):
            figures[column] = float(document[key])
    if THROUGHPUT not in figures and is_number(document.get("duration")) and document["duration"] > 0:
        figures[THROUGHPUT] = completed / float(document["duration"])
    if sglang and document.get("dataset_name") == "random":
        prompt, output = _uniform(document, "input", prompt), _uniform(document, "output", output)
    model = document.get("model_id") or document.get("model")
    return MeasuredLoad(
        source=source,
        tool="SGLang bench_serving" if sglang else "vllm bench serve",
        load={"workload.num_requests": completed} | load,
        prompt=prompt,
        output=output,
        figures=figures,
        engine=engine_settings(document),
        provenance={"model": str(model)} if model else {},
        notes=(*notes, *said),
        pairs=paired(document.get("input_lens"), document.get("output_lens"), completed),
    )


def _uniform(document: Mapping[str, Any], name: str, lengths: MeasuredLengths) -> MeasuredLengths:
    """SGLang's random data set: whole numbers from range_ratio x length to length, all alike often."""
    longest, ratio = document.get(f"random_{name}_len"), document.get("random_range_ratio")
    if not is_number(longest) or not is_number(ratio) or longest < 1 or not 0 <= ratio <= 1:
        return lengths
    least = max(float(int(longest * ratio)), 1.0)
    return MeasuredLengths(lengths.mean, {0.0: least, 0.5: (least + longest) / 2, 1.0: float(longest)})
