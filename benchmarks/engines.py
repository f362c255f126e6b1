"""The other engines against vLLM's synchronous one, in one run: asynchronous scheduling, and BLIS's rules."""

from dataclasses import dataclass
from statistics import median
from time import process_time_ns
from typing import Protocol

import numpy as np

from benchmarks.loads import SWEEPS, discussion, loads
from benchmarks.table import figure, markdown, publish
from benchmarks.timing import Kernel
from fastsim.config import Config, load_config, with_values
from fastsim.engines.blis.runner import BlisRunner, new_batch
from fastsim.engines.blis.runtime import workload_for
from fastsim.records import record_of
from fastsim.workload import build_workload

ASYNC = "vllm-0.33.0-async"
NOTE = (
    "CPU milliseconds a run, medians; ratios are medians of calls in turn: of asynchronous rows to the same load under "
    "the synchronous engine, of BLIS's rows to plain stepping of vLLM on the same row. BLIS itself: recorded once on "
    "another machine, over our time."
)


@dataclass
class BlisKernel:
    """One BLIS configuration, ready to be called again and again; the same face as `Kernel`."""

    config: Config
    copies: int = 1

    def __post_init__(self) -> None:
        workload = build_workload(self.config.workload)
        records = np.repeat(record_of(self.config).engine, self.copies)
        self.runner = BlisRunner(workload_for(workload, 0), records)
        self.batch = new_batch(self.copies, workload.num_requests, keep_logs=True)

    def run_ns(self) -> float:
        """CPU nanoseconds of one run, BLIS's own metrics included."""
        start = process_time_ns()
        self.runner.run(self.batch)
        return (process_time_ns() - start) / self.copies


def blis_row(max_num_seqs: int, tiny: bool) -> Config:
    """A row of the discussion on BLIS's own lengths, as recorded: 175 completed at 256, 162 at 32."""
    return load_config(
        SWEEPS / "discussion_blis.toml",
        [f"engine.max_num_seqs={max_num_seqs}", f"run.horizon_s={5 if tiny else 120}"],
    )


class Timed(Protocol):
    """What can be timed."""

    def run_ns(self) -> float:
        """CPU nanoseconds of one run."""


def in_turn(base: Timed, other: Timed, rounds: int) -> tuple[float, float]:
    """Median CPU milliseconds of `other`, and the median of its ratios to `base`, called in turn."""
    times: list[float] = []
    ratios: list[float] = []
    for _ in range(rounds + 1):
        before = base.run_ns()
        times.append(other.run_ns() / 1e6)
        ratios.append(times[-1] * 1e6 / before)
    return median(times[1:]), median(ratios[1:])


def main(tiny: bool, readme: bool) -> None:
    """Measure and print."""
    rows = []
    for load in loads(tiny):
        chosen = with_values(load.config, {"engine.name": ASYNC})
        sync = Kernel(load.config, load.workload, fast_forward=True, copies=2)
        ms, ratio = in_turn(sync, Kernel(chosen, load.workload, fast_forward=True, copies=2), 2 if tiny else 40)
        rows.append((f"{load.name}: asynchronous", figure(ms), figure(ratio), ""))
    for seqs, blis_s in ((256, 0.65), (32, 0.30)):
        vllm = discussion("", f"engine.max_num_seqs={seqs}", *(["run.horizon_s=5"] if tiny else []))
        stepping = Kernel(vllm.config, vllm.workload, fast_forward=False)
        ms, ratio = in_turn(stepping, BlisKernel(blis_row(seqs, tiny), copies=1 if tiny else 20), 2 if tiny else 15)
        itself = "" if tiny else figure(blis_s * 1e3 / ms) + "x"
        rows.append((f"300 at 10/s, {seqs}: BLIS", figure(ms), figure(ratio), itself))
    publish("engines", markdown(("load", "ms", "ratio", "BLIS itself"), rows, NOTE), readme)
