"""Kernel time by load: fast-forward on the decode clock against plain stepping, the oracle, and recorded figures."""

import sys
from pathlib import Path
from statistics import median
from time import process_time

from benchmarks.loads import Load, loads
from benchmarks.table import figure, markdown, publish
from benchmarks.timing import Kernel, in_turn_ms
from fastsim.config import Config, resolved
from fastsim.config.derived import with_values

NOTE = (
    "CPU milliseconds a run, metrics included: medians of 15 calls in turn, the median of their ratios, and the least "
    "time of a decode (the machine is shared, and at times half as fast). Stepping is `--no-fast-forward`. An event is "
    "an admission, a preemption or a completion, metrics left out; `metrics` is their share. The oracle is the "
    "plain-Python model of the tests. vLLM (its own scheduler) and BLIS: recorded once on another machine, for "
    "the same rows (BLIS at constant spacing), so their ratios are rough. `table`: the same step "
    "times from a table of 14 knots, over the linear ones."
)
KNOTS = tuple(2**i for i in range(14))


def by_table(config: Config) -> Config:
    """The same step times for decodes, and all but the same for prefills, from a table."""
    linear = resolved(config).latency
    b0, b1, b2 = (
        linear.b0_us or 0.0,
        linear.b1_us_per_prefill_token or 0.0,
        linear.b2_us_per_decode_token or 0.0,
    )
    keys = {
        "latency.b0_us": 1.0,
        "latency.b1_us_per_prefill_token": b1 - b2,
        "latency.b2_us_per_decode_token": 0.0,
        "latency.b3_us_per_context_token": linear.b3_us_per_context_token,
        "latency.table_tokens": KNOTS,
        "latency.table_us": tuple(b0 - 1.0 + b2 * tokens for tokens in KNOTS),
    }
    return with_values(config, keys)


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
            "table": Kernel(by_table(load.config), load.workload, fast_forward=True, copies=1 if tiny else 20),
        }
        times = in_turn_ms(kernels, 2 if tiny else 15)
        ms = {name: median(values) for name, values in times.items()}
        ratio = median(a / b for a, b in zip(times["stepping"], times["fast"], strict=True))
        table = median(a / b for a, b in zip(times["table"], times["fast"], strict=True))
        metrics_ns = kernels["fast"].metrics_ns()
        slow = oracle_ms(load)
        running_steps = kernels["stepping"].total("decode_tokens")
        rows.append(
            (
                load.name,
                figure(ms["fast"]),
                figure(ms["stepping"]),
                figure(ratio) + "x",
                figure(min(times["stepping"]) * 1e6 / max(running_steps, 1)),
                f"{table:.2f}x",
                figure((ms["fast"] * 1e6 - metrics_ns) / max(kernels["fast"].events, 1)),
                f"{metrics_ns / ms['fast'] / 1e4:.0f}%",
                figure(slow / ms["fast"]) + "x",
                figure(load.vllm_s * 1e3 / ms["fast"]) + "x" if load.vllm_s else "",
                figure(load.blis_s * 1e3 / ms["fast"]) + "x" if load.blis_s else "",
            )
        )
    columns = (
        "load, max_num_seqs",
        "ms",
        "stepping ms",
        "ratio",
        "least ns a decode",
        "table",
        "ns an event",
        "metrics",
        "oracle",
        "vLLM",
        "BLIS",
    )
    publish("kernel", markdown(columns, rows, NOTE), readme)
