"""How cost grows: fitted exponents of kernel time against what a load is made of."""

import resource
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from benchmarks.table import figure, markdown, publish
from benchmarks.timing import Kernel, medians_ms
from fastsim.config import load_config
from fastsim.workload import Workload


def chat(count: int, output: int, per_s: float, prompt: int = 300) -> Workload:
    """Poisson arrivals; outputs within 20 % of `output`."""
    rng = np.random.default_rng(3)
    return Workload.from_arrays(
        np.floor(np.cumsum(rng.exponential(1e6 / per_s, count))).astype(np.int64),
        rng.integers(prompt // 2, prompt * 3 // 2, count),
        rng.integers(output * 4 // 5, output * 6 // 5, count),
    )


def settings(running: int, blocks: int, block_size: int = 16) -> list[str]:
    """Caching off, so many running, so many blocks."""
    return [
        "engine.enable_prefix_caching=false",
        f"engine.max_num_seqs={running}",
        f"engine.num_gpu_blocks={blocks}",
        f"engine.block_size={block_size}",
        "engine.max_model_len=100000",
        f"engine.max_num_batched_tokens={max(2048, running)}",
    ]


def long_run(count: int) -> tuple[float, float]:
    """Kernel CPU seconds of one run over so many requests, and the peak of this process's memory in MiB."""
    kernel = Kernel(load_config(None, settings(64, 10_000)), chat(count, 200, 20.0), True)
    seconds = kernel.run_ns() / 1e9
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(tiny: bool, readme: bool) -> None:
    """Measure and print."""
    small = 10 if tiny else 1
    series: dict[str, dict[int, Kernel]] = {
        "output tokens (enough memory)": {
            n: Kernel(load_config(None, settings(64, 200_000)), chat(500 // small, n, 2.0), True)
            for n in (250, 500, 1000, 2000)
        },
        "requests (64 running)": {
            n // small: Kernel(load_config(None, settings(64, 10_000)), chat(n // small, 200, 20.0), True)
            for n in (1000, 4000, 16_000)
        },
        "running set (thrash)": {
            n: Kernel(load_config(None, settings(n, n * 40)), chat(n * 8 // small, 800, 1000.0), True)
            for n in (32, 128, 512)
        },
        "block size (thrash)": {
            n: Kernel(load_config(None, settings(128, 80_000 // n + 1, n)), chat(1000 // small, 800, 1000.0), True)
            for n in (4, 16, 64)
        },
    }
    rows = []
    for name, kernels in series.items():
        ms = medians_ms({str(n): kernel for n, kernel in kernels.items()}, 2 if tiny else 5)
        sizes = np.array(sorted(kernels))
        costs = np.array([ms[str(n)] for n in sizes])
        exponent = np.polyfit(np.log(sizes), np.log(costs), 1)[0]
        cells = ", ".join(f"{n:,}: {figure(cost)}" for n, cost in zip(sizes.tolist(), costs, strict=True))
        rows.append((name, f"{exponent:.2f}", f"{2**exponent:.2f}x", cells))
    count = 1_000 if tiny else 1_000_000
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
        seconds, peak = fresh.submit(long_run, count).result()
    note = (
        "Kernel CPU milliseconds; cost ~ size^exponent; what doubling the size costs. One run over "
        f"{count:,} requests (64 running): {seconds:.2f} s of kernel CPU, {peak:,.0f} MiB at the peak of its process."
    )
    publish("scaling", markdown(("size", "exponent", "doubling", "ms"), rows, note), readme)
