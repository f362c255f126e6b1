"""Kernel time by load: fast-forward on the decode clock against plain stepping, the oracle, and recorded figures."""

import sys
from pathlib import Path
from statistics import median
from time import process_time

from benchmarks.loads import Load, loads
from benchmarks.table import figure, markdown, publish
from benchmarks.timing import Kernel, in_turn_ms

NOTE = (
    "CPU milliseconds a run, metrics included: medians of 15 calls in turn, the median of their ratios, and the least "
    "time of a decode (the machine is shared, and at times half as fast). Stepping is `--no-fast-forward`. The oracle "
    "is the plain-Python model of the tests. vLLM (its own scheduler) and BLIS: recorded once on another machine, for "
    "the same rows (BLIS at constant spacing), so their ratios are rough."
)


def oracle_ms(load: Load) -> float:
    """CPU milliseconds of the plain-Python oracle, once."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tests.reference.requests import Request
    from tests.reference.vllm import simulate

    engine = load.config.engine
    names = ("num_gpu_blocks", "max_num_seqs", "max_num_batched_tokens", "enable_prefix_caching", "block_size")
    config = {name: getattr(engine, name) for name in names}
    config |= {"engine": engine.name, "policy": engine.policy, "preemption_mode": engine.preemption_mode}
    config |= {"max_model_len": engine.max_model_len, "horizon_us": load.config.run.horizon_us}
    w = load.workload
    columns = (w.arrival_us, w.prompt_tokens, w.output_tokens, w.priority, w.prefix_group, w.prefix_tokens)
    requests = [Request(*map(int, row)) for row in zip(*columns, strict=True)]
    start = process_time()
    simulate(config, requests, record_steps=False, check=False)
    return (process_time() - start) * 1e3


def main(tiny: bool, readme: bool) -> None:
    """Measure and print."""
    rows = []
    for load in loads(tiny):
        kernels = {
            "stepping": Kernel(load.config, load.workload, fast_forward=False),
            "fast": Kernel(load.config, load.workload, fast_forward=True, copies=1 if tiny else 20),
        }
        times = in_turn_ms(kernels, 2 if tiny else 15)
        ms = {name: median(values) for name, values in times.items()}
        ratio = median(a / b for a, b in zip(times["stepping"], times["fast"], strict=True))
        slow = oracle_ms(load)
        running_steps = kernels["stepping"].total("decode_tokens")
        rows.append(
            (
                load.name,
                figure(ms["fast"]),
                figure(ms["stepping"]),
                figure(ratio) + "x",
                figure(min(times["stepping"]) * 1e6 / max(running_steps, 1)),
                figure(slow / ms["fast"]) + "x",
                figure(load.vllm_s * 1e3 / ms["fast"]) + "x" if load.vllm_s else "",
                figure(load.blis_s * 1e3 / ms["fast"]) + "x" if load.blis_s else "",
            )
        )
    columns = ("load, max_num_seqs", "ms", "stepping ms", "ratio", "least ns a decode", "oracle", "vLLM", "BLIS")
    publish("kernel", markdown(columns, rows, NOTE), readme)
