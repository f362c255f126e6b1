"""CPU time of kernel calls, in turn, by medians: on a shared machine only ratios of one run mean anything."""

from dataclasses import dataclass
from statistics import median
from time import process_time_ns
from typing import Any

import numpy as np

from fastsim._jit import borrow, entry
from fastsim.config import Config
from fastsim.engines.outputs import Status
from fastsim.engines.vllm.chunk import run_chunk
from fastsim.engines.vllm.intervals import knob_values
from fastsim.engines.vllm.memory import Memory, new_memory, with_larger_gap_log, workload_arrays
from fastsim.engines.vllm.recorder import new_recorder
from fastsim.engines.vllm.runtime import RUNTIME
from fastsim.metrics import new_rows
from fastsim.metrics.scratch import new_scratch
from fastsim.metrics.summary import summarise
from fastsim.records import record_of
from fastsim.workload import Workload

METRICS_CALLS = 50


@entry
def repeat_metrics(count, log, wl, totals, gaps, params, scratch, floats, ints):  # type: ignore[no-untyped-def]
    """Fill the row of the run that `log` holds, again and again."""
    log = borrow(log)
    wl = borrow(wl)
    gaps = borrow(gaps)
    scratch = borrow(scratch)
    for _ in range(count):
        summarise(
            log, wl.prompt_tokens, wl.output_tokens, totals[0], gaps.histogram, params[0], scratch, floats[0], ints[0]
        )


@dataclass
class Kernel:
    """One configuration, ready to be called again and again with everything allocated."""

    config: Config
    workload: Workload
    fast_forward: bool
    copies: int = 1

    def __post_init__(self) -> None:
        RUNTIME.compile_kernels()
        records = record_of(self.config)
        engine = np.repeat(records.engine, self.copies)
        engine["fast_forward"] = self.fast_forward
        self._configs = (engine, np.repeat(records.params, self.copies))
        self._arrays = workload_arrays(self.workload)
        self._rows = (new_scratch(self.workload.num_requests), *new_rows(self.copies))
        self.memory: Memory = new_memory(engine, self._arrays)
        while run_chunk(*self._arguments) < self.copies:
            self.memory = with_larger_gap_log(self.memory)

    @property
    def _arguments(self) -> tuple[Any, ...]:
        knobs, done = knob_values(*self._configs, reuse=False), np.zeros(self.copies, np.int8)
        return (*self._configs, knobs, done, self.memory, self._arrays, new_recorder(1), *self._rows)

    @property
    def metrics_arguments(self) -> tuple[Any, ...]:
        """What `summarise` needs of the last run, as whole arrays."""
        m = self.memory
        return (m.log, self._arrays, m.totals, m.gaps, self._configs[1], *self._rows)

    def run_ns(self) -> float:
        """CPU nanoseconds of one run: kernel and metrics."""
        arguments = self._arguments
        start = process_time_ns()
        run_chunk(*arguments)
        return (process_time_ns() - start) / self.copies

    def metrics_ns(self) -> float:
        """CPU nanoseconds of making the row of the last run, which `run_ns` contains."""
        arguments = self.metrics_arguments
        repeat_metrics(1, *arguments)
        start = process_time_ns()
        repeat_metrics(METRICS_CALLS, *arguments)
        return (process_time_ns() - start) / METRICS_CALLS

    @property
    def events(self) -> int:
        """Admissions, preemptions and completions of the last run: what costs time, steps being jumped over."""
        preemptions, completed = self.total("preemptions"), self.total("completed")
        running = int((self.memory.log.status == Status.RUNNING).sum())
        return (running + completed + preemptions) + preemptions + completed

    def total(self, name: str) -> int:
        """A counter of the last run."""
        return int(self.memory.totals[name][0])


def in_turn_ms(kernels: dict[str, Kernel], rounds: int) -> dict[str, list[float]]:
    """CPU milliseconds of each in every round, all called in turn; a first round does not count."""
    times: dict[str, list[float]] = {name: [] for name in kernels}
    for _ in range(rounds + 1):
        for name, kernel in kernels.items():
            times[name].append(kernel.run_ns() / 1e6)
    return {name: values[1:] for name, values in times.items()}


def medians_ms(kernels: dict[str, Kernel], rounds: int) -> dict[str, float]:
    """Median CPU milliseconds of each, all called in turn in every round."""
    return {name: median(values) for name, values in in_turn_ms(kernels, rounds).items()}
