"""From configurations and a workload to rows: one njit call a chunk, whatever its size.

`fastsim run` is a chunk of one, a recorded case a chunk of one with the step recorder on. There is no second path.
"""

from dataclasses import dataclass, field
from statistics import median
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastsim._jit import borrow, constant, entry
from fastsim.config import Config, EngineConfig, check_rules, resolved
from fastsim.engines.outputs import RequestLog, Status
from fastsim.engines.vllm.batch_queue import run_configuration
from fastsim.engines.vllm.loop import LOG_FULL
from fastsim.engines.vllm.memory import Memory, State, new_memory, with_larger_gap_log, workload_arrays
from fastsim.engines.vllm.recorder import Recorder, Step, new_recorder, recorded_steps
from fastsim.engines.vllm.state import Workload as WorkloadArrays
from fastsim.errors import InputError
from fastsim.families import Left, mixed_rows, plain_rows, run_one
from fastsim.metrics import named_values, new_rows
from fastsim.metrics.summary import scratch_size, summarise
from fastsim.records import Records as Records
from fastsim.records import engine_records as engine_records
from fastsim.records import record_of as record_of
from fastsim.records import records_at as records_at
from fastsim.workload import Workload, build_workload

if TYPE_CHECKING:
    import polars as pl

RECORD_CAPACITY = 4096
"""Steps and list entries a recorder first has room for; it is made four times larger until the run fits."""


@dataclass(frozen=True)
class Rows:
    """Result rows.

    `floats` is float64 of shape (count, len(FLOAT_COLUMNS)), NaN standing for null, `ints` int64 of shape
    (count, len(INT_COLUMNS)), both in the order of the column names in `fastsim.metrics`.
    """

    floats: npt.NDArray[np.float64]
    ints: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Result:
    """What one configuration did.

    Attributes
    ----------
    config
        The configuration, defaults resolved.
    workload
        The requests it was given.
    metrics
        One result row as a dict by column name; None for null. With `blis` and `vllm-rlt` also what only that engine
        reports, its names behind `blis_` and `rlt_`.
    requests
        Per-request results (`RequestLog`), arrays of shape (num_requests,).
    totals
        Counters of the run by name (`TOTALS_DTYPE`), ints.
    steps
        Per-step record, or None when it was not asked for.
    kernel_ms
        Wall milliseconds of the kernel call, compilation excluded: the median of the repeats.
    """

    config: Config
    workload: Workload
    metrics: dict[str, Any]
    requests: RequestLog
    totals: dict[str, int]
    steps: list[Step] | None
    kernel_ms: float

    def to_polars(self) -> "pl.DataFrame":
        """One row a request: the workload's columns and the log's, times in microseconds, null for never."""
        import polars as pl

        columns: dict[str, Any] = {"request": np.arange(self.workload.num_requests)}
        for name in ("prompt_tokens", "output_tokens", "priority", "prefix_group", "prefix_tokens"):
            columns[name] = getattr(self.workload, name)
        if self.workload.request_class is not None:
            columns["class"] = np.array(self.workload.class_names)[self.workload.request_class]
        columns |= self.requests._asdict()
        names = {int(status): status.name.lower() for status in Status}
        never = [name for name in RequestLog._fields if name.endswith("_us") or name == "prefix_hit_tokens_first"]
        return pl.DataFrame(columns).with_columns(
            pl.col("status").replace_strict(names, return_dtype=pl.String),
            *(pl.when(pl.col(name) >= 0).then(pl.col(name)).alias(name) for name in never),
        )


@entry
def run_chunk(configs, params, memory, wl, rec, scratch, floats, ints):  # type: ignore[no-untyped-def]
    """Run configurations over one workload and fill their rows. Returns how many: the next one needs larger logs."""
    wl = borrow(wl)
    req = borrow(memory.requests)
    q = borrow(memory.queues)
    blk = borrow(memory.blocks)
    log = borrow(memory.log)
    gaps = borrow(memory.gaps)
    rec = borrow(rec)
    st = borrow(memory.scalars[0])
    totals = memory.totals[0]
    for c in range(configs.shape[0]):
        state = State(constant(configs[c]), st, borrow(totals), wl, req, q, blk, log, gaps, rec)
        if run_configuration(state) == LOG_FULL:
            return c
        summarise(
            log, wl.prompt_tokens, wl.output_tokens, totals, gaps.histogram, params[c], scratch, floats[c], ints[c]
        )
    return configs.shape[0]


def simulate_chunk(workload: Workload, records: Records, *, fast_forward: bool = True) -> Rows:
    """Rows of many configurations over one workload, in the order of `records`."""
    if records.others is not None:

        def vllm_rows(places: npt.NDArray[np.intp]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
            mine = Records(records.engine[places], records.params[places])
            rows = simulate_chunk(workload, mine, fast_forward=fast_forward)
            return rows.floats, rows.ints

        return Rows(*mixed_rows(workload, records.others, records.params, vllm_rows, fast_forward))
    return Session(workload, records).run(records, fast_forward=fast_forward)


class Session:
    """One workload, run again and again in the same memory: for searches that change only numbers.

    Only vLLM's engines run in a session.

    Parameters
    ----------
    workload
        The requests.
    largest
        Records that need no less memory than any that will run: no fewer KV blocks, no smaller `max_num_seqs`.

    Raises
    ------
    InputError
        When `largest` holds a configuration of another engine.
    """

    def __init__(self, workload: Workload, largest: Records) -> None:
        if largest.others is not None:
            raise InputError("a session runs vLLM's engines only, but engine.name is another")
        self.workload = workload
        self.runs = 0
        self._arrays = workload_arrays(workload)
        self._memory = new_memory(largest.engine, self._arrays)
        self._recorder = new_recorder(1)

    def run(self, records: Records, *, fast_forward: bool = True) -> Rows:
        """Rows of some configurations, in the order of `records`."""
        engine = records.engine.copy()
        engine["fast_forward"] = fast_forward
        self.runs += len(engine)
        rows = new_rows(len(engine))
        done = 0
        while done < len(engine):
            part = slice(done, None)
            done += _call(engine[part], records.params[part], self._arrays, self._memory, self._recorder, rows, done)
            if done < len(engine):
                self._memory = with_larger_gap_log(self._memory)
        return Rows(*plain_rows(*rows))

    @property
    def log(self) -> RequestLog:
        """Per-request results of the last configuration that ran; the next run overwrites these arrays."""
        return self._memory.log


def simulate(
    config: Config,
    workload: Workload | None = None,
    *,
    fast_forward: bool = True,
    record_steps: bool = False,
    repeat: int = 1,
) -> Result:
    """Run one configuration.

    Parameters
    ----------
    config
        What to run; `Config(...)` or `load_config(path)`.
    workload
        The requests; by default those that `config.workload` describes.
    fast_forward
        Jump over steps that change nothing but lengths. The results are the same without.
    record_steps
        Keep what the scheduler decided in every step.
    repeat
        Time so many runs; the result is that of the last, and they are all the same.

    Raises
    ------
    InputError
        When keys of the configuration contradict each other, or the workload cannot be built.
    """
    check_rules(config)
    offered = build_workload(config.workload) if workload is None else workload
    records = record_of(config)
    outcome = run_recorded(records, offered, fast_forward=fast_forward, record_steps=record_steps, repeat=repeat)
    return Result(
        config=resolved(config),
        workload=offered,
        metrics=named_values(outcome.floats[0], outcome.ints[0]) | outcome.own,
        requests=outcome.memory.log,
        totals={name: int(outcome.memory.totals[name][0]) for name in outcome.memory.totals.dtype.names or ()},
        steps=outcome.steps,
        kernel_ms=outcome.kernel_ms,
    )


@dataclass(frozen=True)
class Outcome:
    """A run with everything it left in memory. `own`: metrics that only its engine has."""

    memory: Memory | Left
    floats: npt.NDArray[np.float64]
    ints: npt.NDArray[np.int64]
    steps: list[Step] | None
    kernel_ms: float
    own: dict[str, Any] = field(default_factory=dict)


def run_recorded(
    records: Records, workload: Workload, *, fast_forward: bool, record_steps: bool, repeat: int = 1
) -> Outcome:
    """Run one configuration and keep its memory; the recorder grows until the run fits."""
    if records.others is not None:
        left, floats, ints, own, kernel_ms = run_one(
            workload,
            records.others,
            records.params,
            fast_forward=fast_forward,
            record_steps=record_steps,
            repeat=repeat,
        )
        return Outcome(left, floats, ints, None, kernel_ms, own)
    arrays = workload_arrays(workload)
    engine = records.engine.copy()
    engine["fast_forward"] = fast_forward
    engine["record"] = record_steps
    memory = new_memory(engine, arrays)
    capacity = max(RECORD_CAPACITY, workload.num_requests + 1) if record_steps else 1
    compile_kernels()
    times: list[float] = []
    rows = new_rows(1)
    while len(times) < repeat:
        recorder = new_recorder(capacity)
        start = perf_counter_ns()
        if _call(engine, records.params, arrays, memory, recorder, rows):
            times.append((perf_counter_ns() - start) / 1e6)
        else:
            capacity *= 4 if record_steps else 1
            memory = with_larger_gap_log(memory)
    steps = recorded_steps(recorder, memory.scalars[0]) if record_steps else None
    return Outcome(memory, *plain_rows(*rows), steps, median(times))


def _call(
    engine: npt.NDArray[np.void],
    params: npt.NDArray[np.void],
    arrays: WorkloadArrays,
    memory: Memory,
    recorder: Recorder,
    rows: tuple[npt.NDArray[np.void], npt.NDArray[np.void]],
    first: int = 0,
) -> int:
    """One call of the kernel, which fills `rows` from number `first` on; returns how many it did."""
    floats, ints = rows[0][first:], rows[1][first:]
    scratch = np.empty(scratch_size(len(arrays.prompt_tokens)))
    return int(run_chunk(engine, params, memory, arrays, recorder, scratch, floats, ints))


def compile_kernels() -> float:
    """Compile the kernels, or load them from the cache. Returns the seconds it took; nothing if done before."""
    if getattr(run_chunk, "signatures", True):  # interpreted: nothing to compile
        return 0.0
    start = perf_counter()
    records = record_of(Config(engine=EngineConfig(num_gpu_blocks=2)))
    nothing = workload_arrays(Workload.from_arrays(np.zeros(0, np.int64), np.zeros(0, int), np.zeros(0, int)))
    memory = new_memory(records.engine, nothing)
    _call(records.engine, records.params, nothing, memory, new_recorder(1), new_rows(1))
    return perf_counter() - start
