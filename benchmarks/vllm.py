"""The scheduler of the installed vLLM, its own code, against the kernel that takes the same decisions.

Needs vLLM in the environment, but no GPU. Timed of vLLM: schedule() and update_from_output(), nothing else.
"""

import gc
from collections.abc import Callable
from importlib.metadata import version
from time import process_time_ns
from typing import Any

from benchmarks.loads import Load, loads
from benchmarks.table import figure, markdown, publish
from benchmarks.timing import Kernel, medians_ms
from fastsim.config import resolved
from fastsim.engines.vllm.drive import SyncRun
from fastsim.engines.vllm.golden import ENGINE_KEYS
from fastsim.engines.vllm.installed import installed_engines
from fastsim.errors import InputError

CHOSEN = (
    "300 at 10/s, 256",
    "300 at 10/s, 32",
    "Azure conversations x 3, 256",
    "chat, shared prefixes, 25/s",
)


def case_of(load: Load) -> dict[str, Any]:
    """A load in the form of a recorded case."""
    config, w = resolved(load.config), load.workload
    if config.latency.b3_us_per_context_token:
        raise SystemExit(f"{load.name}: recorded cases have no time per context token")
    values = {key: getattr(config.engine, key) for key in ENGINE_KEYS}
    values |= {"horizon_us": config.run.horizon_us, "max_steps": None}
    values |= {
        "beta0": config.latency.b0_us,
        "beta1": config.latency.b1_us_per_prefill_token,
        "beta2": config.latency.b2_us_per_decode_token,
    }
    columns = (w.arrival_us, w.prompt_tokens, w.output_tokens, w.priority, w.prefix_group, w.prefix_tokens)
    rows = [list(map(int, row)) for row in zip(*columns, strict=True)]
    return {"engine": config.engine.name, "config": values, "requests": rows}


class TimedRun(SyncRun):
    """Counts the CPU time of the scheduler's two calls a step; what is recorded of a step is dropped at once."""

    def __init__(self, case: dict[str, Any]) -> None:
        super().__init__(case)
        self.cpu_ns = 0
        self.schedule, self.update = self.timed(self.schedule), self.timed(self.update)

    def timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, timed."""

        def run(*arguments: Any) -> Any:
            start = process_time_ns()
            result = call(*arguments)
            self.cpu_ns += process_time_ns() - start
            return result

        return run

    def note_update(self, batch: Any) -> None:
        """Keep the preempted, which are counted at the end."""
        super().note_update(batch)
        batch.row[1] = ()


def vllm_seconds(load: Load, kernel: Kernel) -> float:
    """CPU seconds of vLLM's scheduler, once. It must have taken the kernel's decisions."""
    run = TimedRun(case_of(load))
    gc.collect()
    gc.freeze()  # as the engine core does before it serves
    totals = run.totals(run.run())
    gc.unfreeze()
    for name in ("steps", "prefill_tokens", "decode_tokens", "preemptions", "completed", "end_us"):
        if totals[name] != kernel.total(name):
            raise SystemExit(f"{load.name}, {name}: vLLM {totals[name]}, kernel {kernel.total(name)}")
    return run.cpu_ns / 1e9


def main(tiny: bool, readme: bool) -> None:
    """Measure and print."""
    try:
        engines = installed_engines()
    except InputError as error:
        raise SystemExit(str(error)) from None
    if "vllm-0.33.0" not in engines:
        raise SystemExit("vLLM 0.33.0 was expected")
    rows = []
    for load in (load for load in loads(tiny) if load.name in CHOSEN):
        kernels = {
            "stepping": Kernel(load.config, load.workload, fast_forward=False),
            "fast": Kernel(load.config, load.workload, fast_forward=True, copies=1 if tiny else 20),
        }
        before = medians_ms(kernels, 1 if tiny else 7)
        vllm_s = vllm_seconds(load, kernels["stepping"])
        after = medians_ms(kernels, 1 if tiny else 7)
        fast_ms, stepping_ms = ((before[name] + after[name]) / 2 for name in ("fast", "stepping"))
        steps = kernels["stepping"].total("steps")
        rows.append(
            (
                load.name,
                figure(steps),
                figure(vllm_s),
                figure(vllm_s * 1e6 / steps),
                figure(fast_ms),
                figure(vllm_s * 1e3 / fast_ms) + "x",
                figure(vllm_s * 1e3 / stepping_ms) + "x",
            )
        )
        print(rows[-1], flush=True)
    note = (
        f"CPU time of schedule() and update_from_output() of vLLM {version('vllm')}, once, against the kernel with its "
        "metrics, medians of calls before and after; both took the same decisions. `stepping` is --no-fast-forward."
    )
    columns = ("load, max_num_seqs", "steps", "vLLM s", "us a step", "kernel ms", "ratio", "stepping")
    publish("vllm", markdown(columns, rows, note), readme)
