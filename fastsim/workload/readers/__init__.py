"""Trace formats, one file each. A new one is a module with a `FORMAT`, and one line here."""

from fastsim.workload.readers import (
    azure,
    blis,
    burstgpt,
    guidellm,
    inference_perf,
    llmservingsim,
    mooncake,
    named,
    plain,
    servegen,
    vidur,
    vllm_bench,
    vllm_run,
)
from fastsim.workload.trace import Format

FORMATS: tuple[Format, ...] = (
    servegen.FORMAT,
    plain.FORMAT,
    azure.FORMAT,
    blis.FORMAT,
    burstgpt.FORMAT,
    vidur.FORMAT,
    vllm_run.FORMAT,
    llmservingsim.FORMAT,
    mooncake.FORMAT,
    vllm_bench.FORMAT,
    guidellm.FORMAT,
    inference_perf.FORMAT,
    named.FORMAT,
)
"""Tried in this order. Folders are recognised by the files in them."""
