"""vLLM behind the contract: its kernel fills rows itself, configuration by configuration in one memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.config import Config, EngineConfig
from fastsim.engines.contract import (
    Batch,
    EngineSession,
    FleetSession,
    Records,
    Rows,
    Run,
    Runtime,
    class_summary,
    new_class_columns,
    plain_rows,
)
from fastsim.engines.encode import Take
from fastsim.engines.outputs import RequestLog
from fastsim.engines.policy_report import PolicyReport
from fastsim.engines.vllm.chunk import run_chunk
from fastsim.engines.vllm.groups.layouts import PLAIN, layout_numbers
from fastsim.engines.vllm.groups.special import (
    compile_special_kernels,
    fill_special_columns,
    merged,
    special_batches,
    special_rows,
    special_run,
)
from fastsim.engines.vllm.interval_ranges import decision_intervals
from fastsim.engines.vllm.intervals import knob_values
from fastsim.engines.vllm.logs import LogsOfRuns
from fastsim.engines.vllm.memory import Memory, new_memory, with_larger_gap_log, workload_arrays
from fastsim.engines.vllm.recorder import Recorder, new_recorder
from fastsim.engines.vllm.records import config_records
from fastsim.engines.vllm.state import WorkloadArrays
from fastsim.engines.vllm.tape import recorded_steps, recorded_tape, recorder_holds
from fastsim.errors import InputError
from fastsim.metrics import new_rows
from fastsim.metrics.params import ClassBounds
from fastsim.metrics.scratch import new_scratch
from fastsim.workload import Workload

RECORD_CAPACITY = 4096
"""Steps and list entries a recorder first has room for; it is made four times larger until the run fits."""


class VllmRuntime(Runtime):
    """vLLM's synchronous and asynchronous schedulers."""

    _has_special = False
    """Whether records of configurations with groups or drafts were made, whose kernels are others."""

    def config_records(self, take: Take, count: int, params: Records) -> Records:
        """See `fastsim.engines.vllm.records`."""
        records = config_records(take, count)
        records["layout"] = layout_numbers(take, count)
        self._has_special = self._has_special or bool((records["layout"] != PLAIN).any())
        return records

    def rows(
        self,
        workload: Workload,
        records: Records,
        params: Records,
        bounds: ClassBounds | None = None,
        *,
        fast_forward: bool = True,
    ) -> Rows:
        """Rows of many configurations over one workload, in the order of `records`."""
        special = records["layout"] != PLAIN
        if not special.any():
            return VllmSession(workload, records, bounds).run(records, params, fast_forward=fast_forward, reuse=True)
        those = None if bounds is None else bounds.at(special)
        rows = special_rows(workload, records[special], params[special], those, fast_forward)
        if special.all():
            return rows
        others = None if bounds is None else bounds.at(~special)
        session = VllmSession(workload, records[~special], others)
        plain = session.run(records[~special], params[~special], fast_forward=fast_forward, reuse=True)
        return merged(special, rows, plain)

    def batches(self, workload: Workload, records: Records, params: Records, *, fast_forward: bool) -> Iterator[Batch]:
        """Run every configuration, and keep what each leaves in the memory that they share."""
        special = records["layout"] != PLAIN
        if special.any():
            places = np.flatnonzero(special)
            for batch in special_batches(workload, records[special], params[special], fast_forward):
                yield batch._replace(places=places[batch.places])
        plain = np.flatnonzero(~special)
        if len(plain):
            session = VllmSession(workload, records[plain])
            yield session.batch(records[plain], params[plain], fast_forward=fast_forward)._replace(places=plain)

    def fleet_session(self, workload: Workload, largest: Records, replicas: int) -> FleetSession:
        """Memory for fleets that are looked at. Their kernel is compiled when the first one runs."""
        from fastsim.engines.vllm.fleet_memory import VllmFleetSession

        return VllmFleetSession(workload, largest, replicas)

    def correct_rows(self, records: Records, floats: Records, ints: Records, totals: Records) -> None:
        """Fill the columns of configurations with groups or drafts."""
        special = records["layout"] != PLAIN
        if special.any():
            mine = floats[special], ints[special]
            fill_special_columns(records[special], *mine, totals[special])
            floats[special], ints[special] = mine

    def session(self, workload: Workload, largest: Records) -> "VllmSession":
        """Memory for runs of any records that need no more of it: no more KV blocks, no larger `max_num_seqs`."""
        if (largest["layout"] != PLAIN).any():
            raise InputError(
                "calibration knows one full-attention group and no drafts (engine.kv_cache_groups, spec.method)"
            )
        return VllmSession(workload, largest)

    def run(
        self,
        workload: Workload,
        records: Records,
        params: Records,
        bounds: ClassBounds | None = None,
        *,
        fast_forward: bool = True,
        record_steps: bool = False,
        repeat: int = 1,
    ) -> Run:
        """Run the one configuration there is; the recorder grows until the run fits."""
        if records["layout"][0] != PLAIN:
            return special_run(workload, records, params, bounds, fast_forward, record_steps, repeat)
        arrays = workload_arrays(workload)
        engine = records.copy()
        engine["fast_forward"] = fast_forward
        engine["record"] = record_steps
        memory = new_memory(engine, arrays)
        capacity = max(RECORD_CAPACITY, workload.num_requests + 1) if record_steps else 1
        self.compile_kernels()
        times: list[float] = []
        rows = new_rows(1)
        while len(times) < repeat:
            recorder = new_recorder(capacity)
            start = perf_counter_ns()
            done = _call(engine, params, arrays, memory, recorder, rows)
            if done and (not record_steps or recorder_holds(recorder, memory.scalars[0])):
                times.append((perf_counter_ns() - start) / 1e6)
            else:
                capacity *= 4 if record_steps else 1
                memory = with_larger_gap_log(memory)
        steps = recorded_steps(recorder, memory.scalars[0]) if record_steps else None
        tape = recorded_tape(recorder, memory.scalars[0], steps) if steps is not None else None
        classes = None
        if bounds is not None:
            summary = class_summary(workload, workload.prompt_tokens, workload.output_tokens)
            classes = summary.columns(memory.log, memory.totals, params, bounds, *rows)
        plain = plain_rows(*rows, classes)
        told = memory.scalars[0]
        return VllmRun(
            memory.log,
            memory.totals,
            plain,
            median(times),
            steps=steps,
            tape=tape,
            intervals=lambda config: decision_intervals(config, told),
            memory=memory,
        )

    def compile_kernels(self) -> None:
        """Compile the kernels, or load them from the cache; nothing if done before."""
        if self._has_special:
            compile_special_kernels()
        if getattr(run_chunk, "signatures", True):  # interpreted: nothing to compile
            return
        records, params = self.records_of([Config(engine=EngineConfig(num_gpu_blocks=2))])
        nothing = workload_arrays(Workload.from_arrays(np.zeros(0, np.int64), np.zeros(0, int), np.zeros(0, int)))
        _call(records, params, nothing, new_memory(records, nothing), new_recorder(1), new_rows(1))

    def policy_report(self, path: str, *, quick: bool) -> PolicyReport:
        """What is to be said of a policy file."""
        from fastsim.engines.vllm.policy_file.report import policy_report

        return policy_report(path, quick=quick)

    def verify_case(self, case: dict[str, Any]) -> str | None:
        """Replay a recorded case."""
        from fastsim.engines.vllm.golden import verify_case

        return verify_case(case)

    def installed(self) -> tuple[str, ...]:
        """Names whose cases the installed vLLM can replay."""
        from fastsim.engines.vllm.installed import installed_engines

        return installed_engines()

    def verify_live(self, case: dict[str, Any]) -> str | None:
        """Compare with what the installed vLLM does now."""
        from fastsim.engines.vllm.drive import decisions

        return self.verify_case(decisions(case))


@dataclass(frozen=True, kw_only=True)
class VllmRun(Run):
    """What one run left, and the memory that it left it in."""

    memory: Memory


class VllmSession(EngineSession):
    """One workload and the memory of its runs, which grows by its log of gaps alone.

    With `bounds`, of the records that will run, rows tell the workload's classes apart.
    """

    def __init__(self, workload: Workload, largest: Records, bounds: ClassBounds | None = None) -> None:
        self._workload = workload
        self._bounds = bounds
        self._arrays = workload_arrays(workload)
        self._memory = new_memory(largest, self._arrays)
        self._recorder = new_recorder(1)

    def run(self, records: Records, params: Records, *, fast_forward: bool = True, reuse: bool = False) -> Rows:
        """Rows of some configurations, in the order of `records`.

        With `reuse` those that decide as another are not run (`intervals`): the rows are the same, but `log` is that of
        any of them.
        """
        engine = records.copy()
        engine["fast_forward"] = fast_forward
        rows = new_rows(len(engine))
        if self._bounds is not None:
            return plain_rows(*rows, self._classes(engine, params, self._bounds, rows))
        self._fill(engine, params, rows, reuse=reuse)
        return plain_rows(*rows)

    def batch(self, records: Records, params: Records, *, fast_forward: bool) -> Batch:
        """What runs of some configurations leave."""
        engine = records.copy()
        engine["fast_forward"] = fast_forward
        logs = LogsOfRuns(self._workload, len(engine))
        rows = new_rows(1)
        kernel_ns = 0
        for k in range(len(engine)):
            start_ns = perf_counter_ns()
            self._fill(engine[k : k + 1], params[k : k + 1], rows)
            kernel_ns += perf_counter_ns() - start_ns
            logs.keep(k, self.log, self._memory.totals[0], self._memory.gaps.histogram)
        return logs.batch(kernel_ns)

    def _fill(
        self, engine: Records, params: Records, rows: tuple[Records, Records], *, reuse: bool = False
    ) -> npt.NDArray[np.int8]:
        """Run the configurations and fill their rows; says which of them ran, and which decide as one that did."""
        knobs = knob_values(engine, params, reuse=reuse)
        done = np.zeros(len(engine), np.int8)
        scratch = new_scratch(self._workload.num_requests)
        first = 0
        while first < len(engine):
            rest = slice(first, None)
            own = (engine[rest], params[rest], knobs.from_number(first), done[rest])
            out = (rows[0][rest], rows[1][rest])
            first += int(run_chunk(*own, self._memory, self._arrays, self._recorder, scratch, *out))
            if first < len(engine):
                self._memory = with_larger_gap_log(self._memory)
        return done

    def _classes(
        self, engine: Records, params: Records, bounds: ClassBounds, rows: tuple[Records, Records]
    ) -> npt.NDArray[np.float64]:
        """Run the configurations one at a time, each log taken apart before the next run overwrites it."""
        workload = self._workload
        summary = class_summary(workload, workload.prompt_tokens, workload.output_tokens)
        out = new_class_columns(len(engine), workload)
        for k in range(len(engine)):
            one = slice(k, k + 1)
            mine = (rows[0][one], rows[1][one])
            self._fill(engine[one], params[one], mine)
            out[one] = summary.columns(self.log, self._memory.totals, params[one], bounds.at(one), *mine)
        return out

    @property
    def log(self) -> RequestLog:
        """Per-request results of the last configuration that ran; the next run overwrites these arrays."""
        return self._memory.log


def _call(
    engine: Records,
    params: Records,
    arrays: WorkloadArrays,
    memory: Memory,
    recorder: Recorder,
    rows: tuple[npt.NDArray[np.void], npt.NDArray[np.void]],
) -> int:
    """One call of the kernel, which runs each configuration and fills `rows`; returns how many it did."""
    knobs, done = knob_values(engine, params, reuse=False), np.zeros(len(engine), np.int8)
    scratch = new_scratch(len(arrays.prompt_tokens))
    return int(run_chunk(engine, params, knobs, done, memory, arrays, recorder, scratch, *rows))


RUNTIME = VllmRuntime()
